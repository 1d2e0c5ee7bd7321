/*
 * Which job hangs. Commands run in the order of their commitment, so it is the oldest one that can
 * keep the others waiting, and it runs from the look at which it was first seen taken and oldest.
 */
#include "queue.h"

#include "../core/log.h"

#include <inttypes.h>

static double seconds_allowed(const struct queue *queue, const struct job *job)
{
    double least = queue->job_seconds > 0 ? queue->job_seconds : QUEUE_OVERDUE_SECONDS;

    return MAX(least, QUEUE_OVERDUE_ESTIMATES * job->estimate_seconds);
}

/* NULL when no job is known to run. */
static const struct job *running(const struct queue *queue)
{
    const struct job *oldest;

    if (list_is_empty(&queue->committed))
        return NULL;
    oldest = container_of(queue->committed.next, struct job, queue_link);
    return oldest->link_index < link_commands_taken(&queue->worker->link) ? oldest : NULL;
}

bool queue_is_overdue(struct queue *queue)
{
    const struct job *job = running(queue);
    bool is_bounded = queue->job_seconds > 0 || queue->worker->device.kind == LINK_DEVICE_CUDA;

    if (!job || job->number != queue->watched) {
        queue->watched = job ? job->number : 0;
        queue->looks = 0;
        return false;
    }
    if (!is_bounded || ++queue->looks <= seconds_allowed(queue, job))
        return false;
    log_warning("job=%" PRIu64 " uid=%u state=overdue estimate_ms=%.3f seconds=%u", job->number,
                (unsigned)job->charge.account->uid, job->estimate_seconds * 1e3, queue->looks);
    return true;
}
