/*
 * A job's end becomes the answer to its request.
 */
#include "handlers.h"

#include "../core/error.h"
#include "server.h"

#include <string.h>

static int encode_product(const struct job *job,
                          const struct gemmd_completion *completion,
                          struct message *ret_message)
{
    const struct job_operand *d = &job->operand[OPERAND_D];
    struct reply_gemm reply = {
        .queued_ns = completion->started_ns - MIN(job->received_ns, completion->started_ns),
        .device_ns = completion->finished_ns - MIN(completion->started_ns, completion->finished_ns),
        .epoch = job->epoch,
        .compile_seconds = job->awaits_kernel && job->kernel ? job->kernel->compile_seconds : 0,
    };

    static_assert(sizeof(reply.configuration) >= CONFIG_TEXT_MAX, "every text fits");
    if (job->kernel)
        (void)strcpy(reply.configuration, job->kernel->text);
    else
        config_to_text(&job->config, reply.configuration);
    if (!d->buffer) {
        reply.data = staging_data(&d->staging);
        reply.size = d->span;
    }
    return error_trace(reply_encode_gemm(job->request, &reply, ret_message));
}

static int encode_read(const struct job *job, struct message *ret_message)
{
    const struct job_operand *d = &job->operand[OPERAND_D];
    const struct buffer *buffer = job->operand[OPERAND_A].buffer;
    struct reply_buffer reply = {
        .size = buffer->size,
        .kind = buffer->kind,
        .data = staging_data(&d->staging),
        .data_size = d->span,
    };

    return error_trace(reply_encode_buffer(job->request, &reply, 0, ret_message));
}

static int encode(const struct job *job,
                  const struct fault *fault,
                  const struct gemmd_completion *completion,
                  struct message *ret_message)
{
    if (fault->status != STATUS_OK)
        return error_trace(reply_encode_fault(job->request, fault, ret_message));
    if (job->method == METHOD_GEMM)
        return error_trace(encode_product(job, completion, ret_message));
    if (job->method == METHOD_BUFFER_READ)
        return error_trace(encode_read(job, ret_message));
    return error_trace(reply_encode_empty(job->request, ret_message));
}

static void count(struct stats *stats,
                  const struct job *job,
                  const struct fault *fault,
                  const struct gemmd_completion *completion)
{
    if (job->method != METHOD_GEMM)
        return;
    stats->products_by_status[(unsigned)fault->status % STATS_STATUSES]++;
    if (fault->status != STATUS_OK || !completion)
        return;
    stats_record(&stats->queued,
                 completion->started_ns - MIN(job->received_ns, completion->started_ns));
    stats_record(&stats->device,
                 completion->finished_ns - MIN(completion->started_ns, completion->finished_ns));
}

void answer_job(struct queue *queue,
                struct job *job,
                const struct fault *fault,
                const struct gemmd_completion *completion)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    struct session *session = job->session;

    count(queue->stats, job, fault, completion);
    if (job->ended)
        job->ended(job, fault);
    if (session)
        socket_unexpect(&session->socket, job->reply_bytes);
    if (job->made) {
        allocate_answer(job->made, fault);
    } else if (session && encode(job, fault, completion, &message) == 0) {
        session_answer(session, &message, -1);
    } else if (session) {
        session->in_flight--;
        session_close(session, "no memory for an answer");
    }
    (void)job_free(job);
}
