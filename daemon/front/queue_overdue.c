/*
 * Which command hangs. Commands may overtake each other, but one that hangs is the oldest sooner or
 * later; it is taken to run from the look at which it was first seen taken and oldest.
 */
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
    log_warning("job=%" PRIu64 " uid=%u state=overdue estimate_ms=%.3f seconds=%.1f",
                command->job->number, (unsigned)command->job->charge.account->uid,
                command->in_track.seconds * 1e3, seconds);
    return true;
}
