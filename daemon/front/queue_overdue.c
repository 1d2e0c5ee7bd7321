/*
 * Which command hangs. Commands may overtake each other, but one that hangs is the oldest sooner or
 * later; it is taken to run from the look at which it was first seen taken and oldest.
 */
#include "kernel.h"
#include "queue.h"

#include "../core/log.h"

#include <inttypes.h>

static double seconds_allowed(const struct queue *queue, const struct queue_command *command)
{
    double least = queue->job_seconds > 0 ? queue->job_seconds : QUEUE_OVERDUE_SECONDS;

    return MAX(least, QUEUE_OVERDUE_ESTIMATES * command->in_track.seconds);
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

bool queue_is_overdue(struct queue *queue)
{
    const struct queue_command *command = running(queue);
    double seconds;
    bool is_bounded = queue->job_seconds > 0 || queue->worker->device.kind == LINK_DEVICE_CUDA;

    if (!command || queue->commands_done + 1 != queue->watched) {
        queue->watched = command ? queue->commands_done + 1 : 0;
        queue->looks = 0;
        return false;
    }
    seconds = ++queue->looks * (WORKER_LOOK_MS / 1000.0);
    if (!is_bounded || seconds <= seconds_allowed(queue, command))
        return false;
    queue->is_overdue = true;
    log_overdue(queue, command, seconds);
    return true;
}
