#include "queue.h"

#include "../core/log.h"

#include <inttypes.h>

static void list_move_all(struct list *destination, struct list *source)
{
    while (!list_is_empty(source)) {
        struct list *first = source->next;

        list_unlink(first);
        list_append(destination, first);
    }
}

static struct job *job_of(struct list *queue_link)
{
    return container_of(queue_link, struct job, queue_link);
}

void queue_init(struct queue *queue,
                struct worker_process *worker,
                struct stats *stats,
                queue_finished_fn finished)
{
    *queue =
        (struct queue){.worker = worker, .stats = stats, .finished = finished, .next_number = 1};
    list_init(&queue->waiting);
    list_init(&queue->lanes);
    list_init(&queue->suspects);
    list_init(&queue->committed);
}

void queue_deinit(struct queue *queue)
{
    assert(queue->count == 0);
    (void)queue;
}

/* --- ready ----------------------------------------------------------------------------------- */

/* A uid that comes back after a pause starts level with the others: idle time is not saved up. */
static void make_ready(struct queue *queue, struct job *job)
{
    struct account *account = job->charge.account;

    list_unlink(&job->queue_link);
    job->state = JOB_READY;
    if (job->is_suspect) {
        list_append(&queue->suspects, &job->queue_link);
        return;
    }
    if (list_is_empty(&account->ready)) {
        account->virtual_seconds = MAX(account->virtual_seconds, queue->virtual_seconds);
        list_append(&queue->lanes, &account->lane);
    }
    list_append(&account->ready, &job->queue_link);
}

static void leave_lane(struct job *job)
{
    struct account *account = job->charge.account;

    list_unlink(&job->queue_link);
    if (list_is_empty(&account->ready))
        list_unlink(&account->lane);
}

static void finish(struct queue *queue,
                   struct job *job,
                   const struct fault *fault,
                   const struct gemmd_completion *completion);

/* Puts a job where it belongs now. */
static void settle(struct queue *queue, struct job *job)
{
    struct fault fault;
    enum job_verdict verdict = job_verdict(job, &fault);

    if (verdict == JOB_FAIL) {
        finish(queue, job, &fault, NULL);
    } else if (verdict == JOB_GO && job->blockers == 0) {
        make_ready(queue, job);
    } else {
        list_unlink(&job->queue_link);
        job->state = JOB_WAITING;
        list_append(&queue->waiting, &job->queue_link);
    }
}

/* Later jobs of the session that waited for this one. */
static void unblock(struct queue *queue, struct job *done)
{
    struct list *cursor = done->session_link.next;

    list_unlink(&done->session_link);
    while (cursor != done->session_jobs) {
        struct job *job = container_of(cursor, struct job, session_link);

        cursor = cursor->next;
        if (job->blockers > 0 && job_conflicts(done, job) && --job->blockers == 0 &&
            job->state == JOB_WAITING) {
            struct fault fault;

            /* Not settle(): a failing job's end would unlink jobs that this loop stands on. It
             * stays in `waiting`, where the review that follows each event finds it. */
            if (job_verdict(job, &fault) == JOB_GO)
                make_ready(queue, job);
        }
    }
}

static void finish(struct queue *queue,
                   struct job *job,
                   const struct fault *fault,
                   const struct gemmd_completion *completion)
{
    if (job->state == JOB_READY && !job->is_suspect)
        leave_lane(job);
    list_unlink(&job->queue_link);
    if (job->session_jobs)
        unblock(queue, job);
    queue->count--;
    queue->finished(queue, job, fault, completion);
}

/* --- commit ---------------------------------------------------------------------------------- */

static struct account *next_lane(struct queue *queue)
{
    struct account *best = NULL;

    list_for_each(cursor, &queue->lanes)
    {
        struct account *account = container_of(cursor, struct account, lane);

        if (!best || account->virtual_seconds < best->virtual_seconds)
            best = account;
    }
    return best;
}

/* Suspects run alone: only with nothing committed, and nothing is committed beside them. */
static struct job *next_job(struct queue *queue)
{
    struct account *account;
    struct job *oldest;

    if (!list_is_empty(&queue->suspects))
        return list_is_empty(&queue->committed) ? job_of(queue->suspects.next) : NULL;
    if (!list_is_empty(&queue->committed)) {
        oldest = job_of(queue->committed.next);
        if (oldest->is_suspect ||
            queue->committed_seconds - oldest->estimate_seconds > QUEUE_HORIZON_SECONDS)
            return NULL;
    }
    account = next_lane(queue);
    return account ? job_of(account->ready.next) : NULL;
}

static void commit(struct queue *queue, struct job *job)
{
    struct account *account = job->charge.account;
    struct gemmd_command command;
    struct fault fault;

    job_command(job, &command);
    if (worker_submit(queue->worker, &command, &job->link_index) < 0) {
        (void)fault_set(&fault, STATUS_INTERNAL, "", "the worker cannot be reached");
        finish(queue, job, &fault, NULL);
        return;
    }
    if (!job->is_suspect) {
        leave_lane(job);
        queue->virtual_seconds = account->virtual_seconds;
        account->virtual_seconds += job->estimate_seconds;
    }
    list_unlink(&job->queue_link);
    list_append(&queue->committed, &job->queue_link);
    job->state = JOB_COMMITTED;
    queue->committed_count++;
    queue->committed_seconds += job->estimate_seconds;
}

void queue_advance(struct queue *queue)
{
    struct job *job;

    if (queue->is_advancing)
        return;
    queue->is_advancing = true;
    while (worker_room(queue->worker) > 0 && (job = next_job(queue))) {
        struct fault fault;

        /* A worker that was replaced may have lost memory or refused a kernel since. */
        if (job_verdict(job, &fault) == JOB_GO) {
            commit(queue, job);
        } else {
            if (!job->is_suspect)
                leave_lane(job);
            job->state = JOB_WAITING;
            settle(queue, job);
        }
    }
    queue->is_advancing = false;
}

static void uncommit(struct queue *queue, struct job *job)
{
    list_unlink(&job->queue_link);
    queue->committed_count--;
    queue->committed_seconds -= job->estimate_seconds;
    /* Sums of differences drift; an empty ring is exactly no work. */
    if (queue->committed_count == 0)
        queue->committed_seconds = 0;
}

void queue_completed(struct queue *queue, const struct gemmd_completion *completion)
{
    struct fault fault = FAULT_NONE;

    list_for_each(cursor, &queue->committed)
    {
        struct job *job = job_of(cursor);

        if (job->number != completion->job)
            continue;
        if (completion->status != STATUS_OK)
            (void)fault_set(&fault, (enum status)completion->status, "", "%s",
                            status_meaning((enum status)completion->status));
        uncommit(queue, job);
        job->is_suspect = false;
        finish(queue, job, &fault, completion);
        queue_advance(queue);
        return;
    }
    log_warning("completion=%" PRIu64 " matches no job, ignoring", completion->job);
}

/* --- coming and going ------------------------------------------------------------------------ */

void queue_submit(struct queue *queue, struct job *job, struct list *session_jobs)
{
    job->number = queue->next_number++;
    job->session_jobs = session_jobs;
    queue->count++;
    list_for_each(cursor, session_jobs)
    {
        if (job_conflicts(container_of(cursor, struct job, session_link), job))
            job->blockers++;
    }
    list_append(session_jobs, &job->session_link);
    settle(queue, job);
    queue_advance(queue);
}

void queue_review(struct queue *queue)
{
    struct list looked_at;

    /* A job's end may unblock others anywhere in the list: take from the front until all are seen.
     */
    list_init(&looked_at);
    list_move_all(&looked_at, &queue->waiting);
    while (!list_is_empty(&looked_at))
        settle(queue, job_of(looked_at.next));
    queue_advance(queue);
}

void queue_abandon(struct queue *queue, struct list *session_jobs)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_CANCELLED, "", "the client is gone");
    list_for_each_safe(cursor, following, session_jobs)
    {
        struct job *job = container_of(cursor, struct job, session_link);

        job->session = NULL;
        job->session_jobs = NULL;
        list_unlink(&job->session_link);
        if (job->state != JOB_COMMITTED)
            finish(queue, job, &fault, NULL);
    }
}

static void end(struct queue *queue, struct job *job)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_SHUTTING_DOWN, "", "%s", status_meaning(STATUS_SHUTTING_DOWN));
    if (job->state == JOB_COMMITTED)
        uncommit(queue, job);
    finish(queue, job, &fault, NULL);
}

static void end_all(struct queue *queue, struct list *jobs)
{
    while (!list_is_empty(jobs))
        end(queue, job_of(jobs->next));
}

void queue_end(struct queue *queue)
{
    struct account *account;

    /* The lanes last: an end can move a job that waited for it there. */
    end_all(queue, &queue->committed);
    end_all(queue, &queue->suspects);
    end_all(queue, &queue->waiting);
    while ((account = next_lane(queue)))
        end(queue, job_of(account->ready.next));
}

/* --- the worker died ------------------------------------------------------------------------- */

/* Computing it again gives the same: it did not overwrite what it reads, and neither did another
 * that had been started. */
static bool is_replayable(const struct queue *queue, const struct job *job, uint64_t taken)
{
    if (job_reads_from(job, job))
        return false;
    list_for_each(cursor, &queue->committed)
    {
        const struct job *other = job_of(cursor);

        if (other != job && other->link_index < taken && job_reads_from(job, other))
            return false;
    }
    return true;
}

void queue_worker_died(struct queue *queue, uint64_t taken)
{
    struct list failed, again;
    struct fault fault;

    queue->watched = 0;
    list_init(&failed);
    list_init(&again);
    list_for_each(cursor, &queue->committed)
    {
        struct job *job = job_of(cursor);

        /* A suspect was alone, and not for the first time: guilty. Others may be unlucky. */
        job->is_lost =
            job->link_index < taken && (job->is_suspect || !is_replayable(queue, job, taken));
    }
    list_for_each_safe(cursor, following, &queue->committed)
    {
        struct job *job = job_of(cursor);

        uncommit(queue, job);
        list_append(job->is_lost ? &failed : &again, &job->queue_link);
        if (job->is_lost && job->is_suspect) {
            job->charge.account->faults++;
            log_warning("job=%" PRIu64 " uid=%u state=guilty: the worker died with it alone",
                        job->number, (unsigned)job->charge.account->uid);
            queue->stats->suspects_guilty++;
        }
        if (!job->is_lost && job->link_index < taken) {
            job->is_suspect = true;
            queue->stats->replayed++;
        }
    }
    list_for_each_safe(cursor, following, &again)
    {
        settle(queue, job_of(cursor));
    }
    list_for_each_safe(cursor, following, &failed)
    {
        (void)fault_set(&fault, STATUS_GPU_FAULT, "",
                        "the worker died while this job ran; its output is undefined");
        finish(queue, job_of(cursor), &fault, NULL);
    }
}
