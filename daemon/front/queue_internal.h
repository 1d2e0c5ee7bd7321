/*
 * Shared by queue.c and queue_replay.c. Nobody else includes this.
 */
#pragma once

#include "queue.h"

static inline struct job *queue_job_of(struct list *queue_link)
{
    return container_of(queue_link, struct job, queue_link);
}

/* Puts a job where it belongs now; it may end here. */
void queue_settle(struct queue *queue, struct job *job);
/* Takes a job out of the list it is in; it is WAITING, and in none. */
void queue_withdraw(struct job *job);
void queue_finish(struct queue *queue,
                  struct job *job,
                  const struct fault *fault,
                  const struct gemmd_completion *completion);
/* Whether a part of it is or may be on the device, or was. */
bool queue_has_started(const struct job *job);
