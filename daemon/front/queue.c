#include "queue_internal.h"

#include "../core/clock.h"
#include "../core/log.h"

#include <inttypes.h>

void queue_init(struct queue *queue,
                struct worker_process *worker,
                struct stats *stats,
                queue_finished_fn finished)
{
    *queue =
        (struct queue){.worker = worker, .stats = stats, .finished = finished, .next_number = 1};
    list_init(&queue->waiting);
    list_init(&queue->suspects);
    list_init(&queue->committed);
    list_init(&queue->timed);
    turns_init(&queue->turns);
}

void queue_deinit(struct queue *queue)
{
    assert(queue->count == 0);
    turns_deinit(&queue->turns);
}

bool queue_has_started(const struct job *job)
{
    return job->in_flight > 0 || job->tiles_done > 0 || job->is_suspect || job->still_deaths > 0;
}

/* --- ready ----------------------------------------------------------------------------------- */

/* Before the one that may well take the worker with it. */
static void join_suspects(struct queue *queue, struct job *job)
{
    struct list *position = queue->suspects.next;

    while (position != &queue->suspects &&
           (job->is_prime_suspect || !queue_job_of(position)->is_prime_suspect))
        position = position->next;
    list_insert_before(position, &job->queue_link);
}

static void make_ready(struct queue *queue, struct job *job)
{
    list_unlink(&job->queue_link);
    job->state = JOB_READY;
    if (job->is_suspect)
        join_suspects(queue, job);
    else
        turns_enter(&queue->turns, job);
}

void queue_withdraw(struct job *job)
{
    if (job->state == JOB_READY && !job->is_suspect)
        turns_leave(job);
    list_unlink(&job->queue_link);
    job->state = JOB_WAITING;
}

void queue_settle(struct queue *queue, struct job *job)
{
    struct fault fault;
    enum job_verdict verdict = job_verdict(job, &fault);

    if (verdict == JOB_FAIL) {
        queue_finish(queue, job, &fault, NULL);
    } else if (verdict == JOB_GO && job->blockers == 0) {
        make_ready(queue, job);
    } else {
        list_unlink(&job->queue_link);
        job->state = JOB_WAITING;
        list_append(&queue->waiting, &job->queue_link);
    }
}

/* Whether that is over for which `job` waited: `done` is committed, or `is_over`. */
static bool was_blocked(const struct job *done, const struct job *job, bool is_over)
{
    return is_over ? job_blocks(done, job) : !job_blocks(done, job) && job_conflicts(done, job);
}

/* Later jobs of the stream that waited for this one. */
static void unblock(struct queue *queue, struct job *done, bool is_over)
{
    struct list *cursor = done->stream_link.next;

    while (done->stream && cursor != &done->stream->jobs) {
        struct job *job = container_of(cursor, struct job, stream_link);

        cursor = cursor->next;
        if (job->blockers > 0 && was_blocked(done, job, is_over) && --job->blockers == 0 &&
            job->state == JOB_WAITING && !job->is_lost) {
            struct fault fault;

            /* Not queue_settle(): a failing job's end would unlink jobs that this loop stands on.
             * It stays in `waiting`, where the review that follows each event finds it. */
            if (job_verdict(job, &fault) == JOB_GO)
                make_ready(queue, job);
        }
    }
}

void queue_finish(struct queue *queue,
                  struct job *job,
                  const struct fault *fault,
                  const struct gemmd_completion *completion)
{
    assert(job->in_flight == 0);
    if (job->state != JOB_COMMITTED)
        queue_withdraw(job);
    unblock(queue, job, /* is_over= */ true);
    list_unlink(&job->queue_link);
    list_unlink(&job->stream_link);
    list_unlink(&job->deadline_link);
    queue->count--;
    queue->finished(queue, job, fault, completion);
}

/* --- commit ---------------------------------------------------------------------------------- */

static struct queue_command *command_at(struct queue *queue, uint64_t number)
{
    return &queue->commands[number % LINK_COMMANDS];
}

/* What runs in the track. It has commands under way. */
static const struct queue_command *oldest_of(struct queue *queue, enum gemmd_track track)
{
    uint64_t i = queue->commands_done;

    while (!command_at(queue, i)->job || command_at(queue, i)->job->track != track)
        i++;
    return command_at(queue, i);
}

static bool is_within_horizon(struct queue *queue, const struct job *job)
{
    const struct track *track = &queue->tracks[job->track];
    double beyond;

    if (track->under_way == 0)
        return true;
    if (job->is_quick)
        return track->quick_seconds + job->estimate_seconds <= QUEUE_HORIZON_SECONDS;
    beyond = track->seconds - oldest_of(queue, job->track)->in_track.seconds;
    /* A slice is never shorter than a wave, however long that takes: one may always wait, so that
     * the device does not. */
    return beyond + job_slice_seconds(job) <= QUEUE_HORIZON_SECONDS ||
           (track->under_way == 1 && (job->slice_tiles > 0 || job->track != GEMMD_TRACK_MAIN));
}

static struct job *next_in_turn(struct queue *queue)
{
    for (int track = 0; track < GEMMD_TRACK_COUNT; track++) {
        struct job *job = turns_next(&queue->turns, (enum gemmd_track)track);

        if (job && is_within_horizon(queue, job))
            return job;
    }
    return NULL;
}

/* NULL: none, or only such as wait for a worker to stand by. */
static struct job *next_suspect(struct queue *queue)
{
    list_for_each(cursor, &queue->suspects)
    {
        struct job *job = queue_job_of(cursor);

        if (!job->is_prime_suspect || worker_is_covered(queue->worker))
            return job;
    }
    return NULL;
}

/* Suspects run alone: only with nothing under way, and nothing is committed beside them. */
static struct job *next_job(struct queue *queue)
{
    struct job *suspect = next_suspect(queue);
    bool is_busy = queue->commands_sent > queue->commands_done;

    if (suspect)
        return is_busy ? NULL : suspect;
    if (is_busy && command_at(queue, queue->commands_done)->job->is_suspect)
        return NULL;
    return next_in_turn(queue);
}

/* Commands pass one that takes long, and are done before it; their places are free only with its
 * own, since it is the oldest. */
static bool has_place(const struct queue *queue)
{
    return queue->commands_sent - queue->commands_done < LINK_COMMANDS;
}

static void record(struct queue *queue, struct job *job, uint64_t link_index)
{
    struct queue_command *command = command_at(queue, queue->commands_sent);
    double seconds = job_slice_seconds(job);

    *command = (struct queue_command){
        .job = job,
        .link_index = link_index,
        .tiles_end = job_slice_end(job),
    };
    track_begin(&queue->tracks[job->track], job, queue->commands_sent, seconds, &command->in_track);
    queue->commands_sent++;
    turns_charge(&queue->turns, job, seconds);
    job->tiles_committed = command->tiles_end;
    job->in_flight++;
    list_unlink(&job->deadline_link);
}

static void commit(struct queue *queue, struct job *job)
{
    struct gemmd_command command;
    struct fault fault;
    uint64_t link_index;

    job_command(job, &command);
    if (worker_submit(queue->worker, &command, &link_index) < 0) {
        /* What is under way of it ends before its memory may go. */
        (void)fault_set(&fault, STATUS_INTERNAL, "", "the worker cannot be reached");
        job->status = STATUS_INTERNAL;
        job->tiles_committed = job->tiles;
        if (job->in_flight == 0) {
            queue_finish(queue, job, &fault, NULL);
            return;
        }
    } else {
        record(queue, job, link_index);
    }
    if (job->tiles_committed < job->tiles)
        return;
    queue_withdraw(job);
    list_append(&queue->committed, &job->queue_link);
    job->state = JOB_COMMITTED;
    unblock(queue, job, /* is_over= */ false);
}

static bool is_late(const struct job *job)
{
    return job->deadline_ns != 0 && !queue_has_started(job) && clock_now_ns() > job->deadline_ns;
}

static void finish_late(struct queue *queue, struct job *job)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_DEADLINE, "deadline_us", "%s", status_meaning(STATUS_DEADLINE));
    queue_finish(queue, job, &fault, NULL);
}

void queue_advance(struct queue *queue)
{
    struct job *job;

    if (queue->is_advancing)
        return;
    queue->is_advancing = true;
    while (worker_room(queue->worker) > 0 && has_place(queue) && (job = next_job(queue))) {
        struct fault fault;

        /* A worker that was replaced may have lost memory or refused a kernel since. */
        if (is_late(job)) {
            finish_late(queue, job);
        } else if (job_verdict(job, &fault) == JOB_GO) {
            commit(queue, job);
        } else {
            queue_withdraw(job);
            queue_settle(queue, job);
        }
    }
    queue->is_advancing = false;
}

/* --- completion ------------------------------------------------------------------------------ */

static struct queue_command *command_find(struct queue *queue, uint64_t job)
{
    /* The oldest: slices of one job complete in their order. */
    for (uint64_t i = queue->commands_done; i < queue->commands_sent; i++) {
        struct queue_command *command = command_at(queue, i);

        if (command->job && command->job->number == job)
            return command;
    }
    return NULL;
}

static void take_completion(struct queue *queue,
                            struct queue_command *command,
                            const struct gemmd_completion *completion)
{
    struct job *job = command->job;
    double estimated = command->in_track.seconds, measured;
    bool is_cost;

    measured = track_end(&queue->tracks[job->track], &command->in_track, completion, &is_cost);

    if (job->tiles_done == 0)
        job->started_ns = completion->started_ns;
    if (job->status == STATUS_OK)
        job->status = (enum status)completion->status;
    job->measured_seconds += measured;
    job->tiles_done = command->tiles_end;
    job->in_flight--;
    job->was_beside_others |= !is_cost;
    turns_served(&queue->turns, job, is_cost ? measured - estimated : 0);
    *command = (struct queue_command){0};
    while (queue->commands_done < queue->commands_sent &&
           !command_at(queue, queue->commands_done)->job)
        queue->commands_done++;
}

static void complete_job(struct queue *queue, struct job *job, struct gemmd_completion completion)
{
    struct fault fault = FAULT_NONE;

    completion.started_ns = job->started_ns;
    completion.status = (gemmd_u32)job->status;
    if (job->status != STATUS_OK)
        (void)fault_set(&fault, job->status, "", "%s", status_meaning(job->status));
    else if (!job->was_beside_others)
        estimate_learn(&queue->estimates, job->estimate_class, job->predicted_seconds,
                       job->measured_seconds);
    job->is_suspect = job->is_prime_suspect = false;
    queue_finish(queue, job, &fault, &completion);
}

void queue_completed(struct queue *queue, const struct gemmd_completion *completion)
{
    struct queue_command *command = command_find(queue, completion->job);
    struct job *job;

    if (!command) {
        log_warning("completion=%" PRIu64 " matches no job, ignoring", completion->job);
        return;
    }
    job = command->job;
    queue_note_moves(queue);
    take_completion(queue, command, completion);
    if (job->in_flight == 0 && job->state == JOB_COMMITTED)
        complete_job(queue, job, *completion);
    queue_advance(queue);
    turns_settle(&queue->turns);
}

/* --- coming and going ------------------------------------------------------------------------ */

void queue_submit(struct queue *queue, struct job *job, struct stream *stream)
{
    job->number = queue->next_number++;
    job->stream = stream;
    job->estimate_class = job_estimate_class(job);
    job->estimate_seconds =
        estimate_correct(&queue->estimates, job->estimate_class, job->predicted_seconds);
    job->is_quick = job->track == GEMMD_TRACK_MAIN &&
                    job->predicted_seconds <= QUEUE_QUICK_SECONDS &&
                    job->estimate_seconds <= QUEUE_QUICK_MEASURED;
    job_slice(job, QUEUE_HORIZON_SECONDS);
    queue->count++;
    list_for_each(cursor, &stream->jobs)
    {
        struct job *earlier = container_of(cursor, struct job, stream_link);

        if (job_blocks(earlier, job))
            job->blockers++;
    }
    list_append(&stream->jobs, &job->stream_link);
    if (job->deadline_ns != 0)
        list_append(&queue->timed, &job->deadline_link);
    queue_settle(queue, job);
    queue_advance(queue);
}

void queue_review(struct queue *queue)
{
    struct list looked_at;

    /* A job's end may unblock others anywhere in the list: take from the front until all are seen.
     */
    list_init(&looked_at);
    while (!list_is_empty(&queue->waiting)) {
        struct list *first = queue->waiting.next;

        list_unlink(first);
        list_append(&looked_at, first);
    }
    while (!list_is_empty(&looked_at))
        queue_settle(queue, queue_job_of(looked_at.next));
    queue_advance(queue);
}

bool queue_cancel(struct queue *queue, struct stream *stream, uint32_t request)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_CANCELLED, "", "%s", status_meaning(STATUS_CANCELLED));
    list_for_each(cursor, &stream->jobs)
    {
        struct job *job = container_of(cursor, struct job, stream_link);

        if (job->request != request)
            continue;
        /* A buffer that is being made has other users than this request. */
        if (queue_has_started(job) || job->state == JOB_COMMITTED || job->made)
            return false;
        queue_finish(queue, job, &fault, NULL);
        queue_advance(queue);
        return true;
    }
    return false;
}

uint64_t queue_expire(struct queue *queue, uint64_t now_ns)
{
    uint64_t next = 0;

    list_for_each_safe(cursor, following, &queue->timed)
    {
        struct job *job = container_of(cursor, struct job, deadline_link);

        if (now_ns > job->deadline_ns)
            finish_late(queue, job);
        else if (next == 0 || job->deadline_ns < next)
            next = job->deadline_ns;
    }
    queue_advance(queue);
    return next;
}

void queue_abandon(struct queue *queue, struct stream *stream)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_CANCELLED, "", "the client is gone");
    list_for_each_safe(cursor, following, &stream->jobs)
    {
        struct job *job = container_of(cursor, struct job, stream_link);
        bool is_in_flow = job->state == JOB_READY && !job->is_suspect;

        job->session = NULL;
        list_unlink(&job->stream_link);
        turns_orphan(&queue->turns, job, is_in_flow, job->in_flight);
        if (job->in_flight == 0 && job->state != JOB_COMMITTED)
            queue_finish(queue, job, &fault, NULL);
    }
}

static void end(struct queue *queue, struct job *job)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_SHUTTING_DOWN, "", "%s", status_meaning(STATUS_SHUTTING_DOWN));
    queue_finish(queue, job, &fault, NULL);
}

static void end_all(struct queue *queue, struct list *jobs)
{
    while (!list_is_empty(jobs))
        end(queue, queue_job_of(jobs->next));
}

void queue_end(struct queue *queue)
{
    struct job *job;

    /* Nothing completes any more: as if no command had ever been taken. */
    queue_worker_died(queue, 0);
    /* The ready ones last: an end can move a job that waited for it there. */
    end_all(queue, &queue->committed);
    end_all(queue, &queue->suspects);
    end_all(queue, &queue->waiting);
    for (int track = 0; track < GEMMD_TRACK_COUNT; track++) {
        while ((job = turns_next(&queue->turns, (enum gemmd_track)track)))
            end(queue, job);
    }
}
