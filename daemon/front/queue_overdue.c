/*
 * Which command hangs, and whether it is the command. Commands may overtake each other, but one
 * that hangs is the oldest sooner or later; it is taken to run from the look at which it was first
 * seen taken and oldest. Of a GPU's, looks count at which the device has done something else since
 * the one before; at others it stands still. When the worker's own loop stands still, in a call of
 * the driver, its heart is what tells (worker_watch.c).
 */
#include "kernel.h"
#include "queue.h"

#include "../core/log.h"

#include <inttypes.h>

static double seconds_allowed(const struct queue *queue, const struct queue_command *command)
{
    double least = queue->job_seconds > 0 ? queue->job_seconds : QUEUE_OVERDUE_SECONDS;

    return worker_patience(queue->worker) *
           MAX(least, QUEUE_OVERDUE_ESTIMATES * command->in_track.seconds);
}

/* NULL when no command is known to run. */
static const struct queue_command *running(const struct queue *queue)
{
    const struct queue_command *oldest = &queue->commands[queue->commands_done % LINK_COMMANDS];

    if (queue->commands_done == queue->commands_sent)
        return NULL;
    return oldest->link_index < link_commands_taken(&queue->worker->link) ? oldest : NULL;
}

/* All that tells a kernel that hangs from a device that stands still, or is somebody else's. */
static void
log_overdue(const struct queue *queue, const struct queue_command *command, double seconds)
{
    const struct job *job = command->job;
    const struct problem *problem = &job->problem;

    log_warning("job=%" PRIu64 " uid=%u state=overdue estimate_ms=%.3f seconds=%.1f kernel=%s "
                "m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " splits=%" PRIu32 " track=%d quick=%s "
                "suspect=%s under_way=%" PRIu64,
                job->number, (unsigned)job->charge.account->uid, command->in_track.seconds * 1e3,
                seconds, job->kernel ? job->kernel->text : "none", problem->m, problem->n,
                problem->k, job->splits, (int)job->track, job->is_quick ? "yes" : "no",
                job->is_suspect ? "yes" : "no", queue->commands_sent - queue->commands_done);
}

/* --- a device that stands still --------------------------------------------------------------- */

void queue_note_moves(struct queue *queue)
{
    if (steal(queue->is_still_told, false))
        log_warning("device=\"%s\" state=moves", queue->worker->device.name);
    queue->still_looks = 0;
}

static void tell_still(struct queue *queue, double seconds)
{
    queue->is_still_told = true;
    log_warning("device=\"%s\" state=still seconds=%.1f under_way=%" PRIu64
                " reason=\"it does nothing for worker=%" PRId64 ", which waits\"",
                queue->worker->device.name, seconds, queue->commands_sent - queue->commands_done,
                queue->worker->pid);
}

static enum worker_verdict judge_device(struct queue *queue)
{
    double seconds = ++queue->still_looks * (WORKER_LOOK_MS / 1000.0);
    double allowed = worker_patience(queue->worker) * MAX(QUEUE_STILL_SECONDS, queue->job_seconds);

    if (!queue->is_still_told && seconds >= QUEUE_STILL_TOLD)
        tell_still(queue, seconds);
    return seconds > allowed ? WORKER_DEVICE_STILL : WORKER_IS_WELL;
}

/* --- a command that hangs --------------------------------------------------------------------- */

static enum worker_verdict judge_command(struct queue *queue, const struct queue_command *command)
{
    bool is_bounded = queue->job_seconds > 0 || queue->worker->device.kind == LINK_DEVICE_CUDA;
    double seconds = ++queue->looks * (WORKER_LOOK_MS / 1000.0);

    if (!is_bounded || seconds <= seconds_allowed(queue, command))
        return WORKER_IS_WELL;
    log_overdue(queue, command, seconds);
    return WORKER_JOB_HANGS;
}

static void watch(struct queue *queue, const struct queue_command *command)
{
    queue->watched = command ? queue->commands_done + 1 : 0;
    queue->looks = 0;
    queue->answers = link_device_answers(&queue->worker->link);
}

enum worker_verdict queue_judge(struct queue *queue)
{
    const struct queue_command *command = running(queue);
    uint64_t answers = link_device_answers(&queue->worker->link);

    if (!command || queue->commands_done + 1 != queue->watched) {
        watch(queue, command);
        return WORKER_IS_WELL;
    }
    if (queue->worker->device.kind != LINK_DEVICE_CUDA)
        return judge_command(queue, command);
    if (queue->worker->beats_missed > 0)
        return WORKER_IS_WELL;
    if (steal(queue->answers, answers) == answers)
        return judge_device(queue);
    queue_note_moves(queue);
    return judge_command(queue, command);
}
