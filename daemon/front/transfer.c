/*
 * buffer.write, buffer.read, buffer.copy: bytes moved by the worker, as jobs, so that they keep
 * their order with the products of their connection.
 */
#include "handlers.h"

#include "../core/error.h"
#include "server.h"

#include <inttypes.h>
#include <string.h>

static void job_freep(struct job **job)
{
    *job = job_free(*job);
}

/* One end of a transfer, as the request names it. */
struct end {
    const char *buffer_argument, *offset_argument;
    uint64_t id, offset, length;
    bool is_written;
};

static int find(const struct session *session,
                const struct end *end,
                struct buffer **ret_buffer,
                struct fault *fault)
{
    struct handle *handle = handles_find(&session->handles, end->id);
    uint64_t last;

    if (!handle) {
        (void)fault_set(fault, STATUS_NOT_FOUND, end->buffer_argument,
                        "%s is %" PRIu64 "; this connection has no such buffer",
                        end->buffer_argument, end->id);
        return SESSION_E_FAULT;
    }
    if (end->is_written && !handle_may_write(handle, end->buffer_argument, end->id, fault))
        return SESSION_E_FAULT;
    if (add_overflows(end->offset, end->length, &last) || last > handle->buffer->size) {
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, end->offset_argument,
                        "%s %" PRIu64 " and length %" PRIu64 " exceed the buffer's %" PRIu64
                        " bytes",
                        end->offset_argument, end->offset, end->length, handle->buffer->size);
        return SESSION_E_FAULT;
    }
    *ret_buffer = handle->buffer;
    return 0;
}

static int job_make(struct session *session,
                    const struct request *request,
                    uint64_t inline_bytes,
                    struct job **ret_job,
                    struct fault *fault)
{
    cleanup(job_freep) struct job *job = job_new();
    struct quota *quota = &session->server->quota;
    int r;

    if (!job)
        return error_origin(-ENOMEM);
    job->session = session;
    job->request = request->id;
    job->method = request->method;
    job->kind = JOB_COPY;
    job->received_ns = session->received_ns;
    r = quota_charge(quota, session->uid, QUOTA_JOBS, 1, &job->charge, fault);
    if (r == 0 && inline_bytes > 0)
        r = quota_charge(quota, session->uid, QUOTA_INLINE_BYTES, inline_bytes, &job->charge_inline,
                         fault);
    if (r != 0)
        return r == QUOTA_E_LIMIT ? SESSION_E_FAULT : error_trace(r);
    *ret_job = steal(job, NULL);
    return 0;
}

static int stage(struct session *session, struct job *job, enum operand_role role, uint64_t bytes)
{
    struct job_operand *operand = &job->operand[role];
    int r = staging_take(&session->server->staging, bytes, &operand->staging);

    if (r < 0)
        return error_trace(r);
    operand->is_used = true;
    operand->span = bytes;
    return 0;
}

static bool is_on_host(const struct job *job, enum operand_role role)
{
    return job_memory(job, role)->kind == LINK_MEMORY_HOST;
}

/* What takes long leaves the main track to the products. */
static enum gemmd_track track_of(const struct server *server, const struct job *job, uint64_t bytes)
{
    if (server->device.is_cpu || bytes < QUEUE_COPY_BYTES)
        return GEMMD_TRACK_MAIN;
    if (is_on_host(job, OPERAND_A))
        return GEMMD_TRACK_IN;
    return is_on_host(job, OPERAND_D) ? GEMMD_TRACK_OUT : GEMMD_TRACK_MAIN;
}

static void submit(struct session *session, struct job *job, uint64_t bytes)
{
    struct server *server = session->server;

    job->predicted_seconds =
        2e-6 + (double)bytes / (server->device.is_cpu ? 5e9 : QUEUE_BUS_BYTES_PER_SECOND);
    job->track = track_of(server, job, bytes);
    server->stats.copies++;
    server->stats.copied_bytes += bytes;
    queue_submit(&server->queue, job, &session->stream);
}

int transfer_write(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_buffer *body = &request->body.buffer;
    const struct end end = {"buffer", "offset", body->id, body->offset, body->length, true};
    cleanup(job_freep) struct job *job = NULL;
    struct buffer *buffer;
    int r = find(session, &end, &buffer, fault);

    if (r != 0)
        return r;
    if (body->length == 0) {
        session_answer_empty(session, request->id);
        return 0;
    }
    r = job_make(session, request, body->length, &job, fault);
    if (r != 0)
        return r;
    r = stage(session, job, OPERAND_A, body->length);
    if (r < 0)
        return error_trace(r);
    memcpy(staging_data(&job->operand[OPERAND_A].staging), body->data, body->length);
    job_use_buffer(job, OPERAND_D, buffer_ref(buffer), body->offset, body->length);
    submit(session, steal(job, NULL), body->length);
    return 0;
}

int transfer_read(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_buffer *body = &request->body.buffer;
    const struct end end = {"buffer", "offset", body->id, body->offset, body->length, false};
    cleanup(job_freep) struct job *job = NULL;
    struct buffer *buffer;
    int r;

    if (body->length > REQUEST_INLINE_MAX) {
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, "length",
                        "length is %" PRIu64 "; allowed is at most %u", body->length,
                        (unsigned)REQUEST_INLINE_MAX);
        return SESSION_E_FAULT;
    }
    r = find(session, &end, &buffer, fault);
    if (r != 0)
        return r;
    if (body->length == 0) {
        session_answer_buffer(session, request->id, &(struct reply_buffer){.data = ""}, -1);
        return 0;
    }
    r = job_make(session, request, body->length, &job, fault);
    if (r != 0)
        return r;
    r = stage(session, job, OPERAND_D, body->length);
    if (r < 0)
        return error_trace(r);
    job_use_buffer(job, OPERAND_A, buffer_ref(buffer), body->offset, body->length);
    job->reply_bytes = body->length;
    socket_expect(&session->socket, job->reply_bytes);
    submit(session, steal(job, NULL), body->length);
    return 0;
}

int transfer_copy(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_copy *body = &request->body.copy;
    const struct end source = {
        "source", "source_offset", body->source, body->source_offset, body->length, false};
    const struct end destination = {"destination",     "destination_offset",
                                    body->destination, body->destination_offset,
                                    body->length,      true};
    cleanup(job_freep) struct job *job = NULL;
    struct buffer *from, *to;
    int r = find(session, &source, &from, fault);

    if (r == 0)
        r = find(session, &destination, &to, fault);
    if (r != 0)
        return r;
    if (body->length == 0) {
        session_answer_empty(session, request->id);
        return 0;
    }
    if (buffer_is_same_memory(from, to) && source.offset < destination.offset + body->length &&
        destination.offset < source.offset + body->length) {
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, "destination_offset",
                        "source and destination overlap; allowed are ranges that do not");
        return SESSION_E_FAULT;
    }
    r = job_make(session, request, 0, &job, fault);
    if (r != 0)
        return r;
    job_use_buffer(job, OPERAND_A, buffer_ref(from), source.offset, body->length);
    job_use_buffer(job, OPERAND_D, buffer_ref(to), destination.offset, body->length);
    submit(session, steal(job, NULL), body->length);
    return 0;
}
