/*
 * What becomes of the commands of a worker that died.
 *
 * Commands take effect in their order, so those with an index below `taken` may have run in part,
 * and no others. Completions that were published have been taken before this: what they say is
 * done, is done, also single slices, and a job goes on behind them.
 *
 * A job of which a command was taken goes again if that gives the same: it does not read what it
 * writes, and nothing that was taken may have overwritten what it reads. An earlier job of the same
 * stream that wrote an input is no obstacle when it goes again itself: it writes the same bytes
 * once more, before this one reads them.
 *
 * When the front ended the worker because the device stood still (queue_overdue.c), that says
 * nothing of any job: nobody becomes a suspect by it, and no suspect is guilty.
 */
#include "queue_internal.h"

#include "../core/log.h"

#include <inttypes.h>
#include <string.h>

static bool is_before(const struct job *a, const struct job *b)
{
    return a->stream && a->stream == b->stream && a->number < b->number;
}

static bool is_replayable(const struct list *stopped, const struct job *job)
{
    if (job_reads_from(job, job))
        return false;
    list_for_each(cursor, stopped)
    {
        const struct job *other = queue_job_of(cursor);

        if (other != job && other->was_taken && job_reads_from(job, other) &&
            (other->is_lost || !is_before(other, job)))
            return false;
    }
    return true;
}

/* Jobs with commands under way, in the order of those, out of all other lists; no command is under
 * way any more. */
static void stop_all(struct queue *queue, uint64_t taken, struct list *ret_stopped)
{
    for (; queue->commands_done < queue->commands_sent; queue->commands_done++) {
        struct queue_command *command = &queue->commands[queue->commands_done % LINK_COMMANDS];
        struct job *job = command->job;

        if (!job)
            continue;
        if (command->link_index < taken)
            job->was_taken = true;
        job->in_flight--;
        turns_served(&queue->turns, job, -command->in_track.seconds);
        if (job->stream)
            job->stream->must_block_again = true;
        queue_withdraw(job);
        list_append(ret_stopped, &job->queue_link);
    }
    memset(queue->tracks, 0, sizeof(queue->tracks));
}

/* What is no longer committed blocks what conflicts with it. */
static void block_again(struct queue *queue, struct stream *stream)
{
    list_for_each(cursor, &stream->jobs)
    {
        struct job *job = container_of(cursor, struct job, stream_link);

        job->blockers = 0;
        for (struct list *earlier = stream->jobs.next; earlier != cursor; earlier = earlier->next) {
            const struct job *other = container_of(earlier, struct job, stream_link);

            if (job_blocks(other, job))
                job->blockers++;
        }
        if (job->blockers > 0 && job->state == JOB_READY) {
            queue_withdraw(job);
            list_append(&queue->waiting, &job->queue_link);
        }
    }
}

/* Whoever lent the memory may have taken it away. */
static void blame_imports(struct job *job)
{
    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        struct buffer *buffer = job->operand[i].buffer;

        if (buffer && buffer_is_imported(buffer)) {
            quota_note_import_fault(buffer->table->quota, buffer->uid);
            return;
        }
    }
}

static void judge(struct queue *queue, struct job *job)
{
    bool was_still = queue->worker->verdict == WORKER_DEVICE_STILL;

    job->tiles_committed = job->tiles_done;
    if (job->was_taken && was_still) {
        queue->stats->replayed += !job->is_lost;
    } else if (job->was_taken && job->is_lost && job->is_suspect) {
        /* It was alone, and not for the first time. Others may be unlucky. */
        job->charge.account->faults++;
        blame_imports(job);
        log_warning("job=%" PRIu64 " uid=%u state=guilty: the worker died with it alone",
                    job->number, (unsigned)job->charge.account->uid);
        queue->stats->suspects_guilty++;
    } else if (job->was_taken && !job->is_lost) {
        job->is_suspect = true;
        queue->stats->replayed++;
    }
    job->was_taken = false; /* also for one that an earlier job's end makes ready before its turn */
}

/* A track's commands run in their order, so of the main one's that were taken the first without a
 * completion is the one that ran, and the likeliest culprit. NULL: none was taken. */
static struct job *running_job(const struct queue *queue, uint64_t taken)
{
    for (uint64_t i = queue->commands_done; i < queue->commands_sent; i++) {
        const struct queue_command *command = &queue->commands[i % LINK_COMMANDS];

        if (command->job && command->job->track == GEMMD_TRACK_MAIN)
            return command->link_index < taken ? command->job : NULL;
    }
    return NULL;
}

/* Whether a job is why the worker died: not when somebody killed or stopped it. */
static bool was_a_jobs_fault(const struct queue *queue)
{
    return queue->worker->verdict == WORKER_JOB_HANGS ||
           queue->worker->lost.status == STATUS_GPU_FAULT;
}

/* What was taken is asked for again, or not. */
static bool is_over(const struct queue *queue, const struct list *stopped, struct job *job)
{
    bool has_had_its_turns = job->is_suspect;

    if (queue->worker->verdict == WORKER_DEVICE_STILL)
        has_had_its_turns = ++job->still_deaths >= QUEUE_STILL_DEATHS;
    return has_had_its_turns || !is_replayable(stopped, job);
}

static void tell_lost(struct queue *queue, struct list *lost)
{
    bool was_still = queue->worker->verdict == WORKER_DEVICE_STILL;
    struct fault fault;

    (void)fault_set(&fault, STATUS_GPU_FAULT, "",
                    was_still
                        ? "the device stood still, and so did this job; its output is undefined"
                        : "the worker died while this job ran; its output is undefined");
    while (!list_is_empty(lost))
        queue_finish(queue, queue_job_of(lost->next), &fault, NULL);
}

/* What had not begun may be late again. */
static void go_again(struct queue *queue, struct job *job)
{
    if (job->deadline_ns != 0 && !queue_has_started(job))
        list_append(&queue->timed, &job->deadline_link);
    queue_settle(queue, job);
}

void queue_worker_died(struct queue *queue, uint64_t taken)
{
    bool is_prime = was_a_jobs_fault(queue);
    struct job *running = running_job(queue, taken);
    struct list stopped, again, lost;

    queue->watched = 0;
    queue->still_looks = 0;
    list_init(&stopped);
    list_init(&again);
    list_init(&lost);
    stop_all(queue, taken, &stopped);
    list_for_each(cursor, &stopped)
    {
        struct job *job = queue_job_of(cursor);

        job->is_lost = job->was_taken && is_over(queue, &stopped, job);
    }
    list_for_each_safe(cursor, following, &stopped)
    {
        struct job *job = queue_job_of(cursor);

        judge(queue, job);
        list_unlink(&job->queue_link);
        list_append(job->is_lost ? &lost : &again, &job->queue_link);
        if (job->stream && steal(job->stream->must_block_again, false))
            block_again(queue, job->stream);
    }
    /* Behind the other suspects: they are answered before it may take the next worker with it. */
    if (running && !running->is_lost && queue->worker->verdict != WORKER_DEVICE_STILL) {
        running->is_prime_suspect = is_prime;
        list_unlink(&running->queue_link);
        list_append(&again, &running->queue_link);
    }
    while (!list_is_empty(&again))
        go_again(queue, queue_job_of(again.next));
    tell_lost(queue, &lost);
}
