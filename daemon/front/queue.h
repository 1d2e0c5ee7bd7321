/*
 * Order and admission of jobs.
 *
 * Order: jobs of one connection that touch the same memory (one of them writing) run in the order
 * of their requests, each after the other's completion; others may overlap. Between connections
 * there is no order but what a client makes by waiting.
 *
 * Admission: the ring cannot be preempted, so at most QUEUE_HORIZON_SECONDS of estimated work is
 * committed beyond what runs. Among ready jobs the uid with the least estimated time used goes
 * first; within a uid, first come first served.
 *
 * When a worker dies: what it had not taken goes again. What it had taken goes again if that
 * computes the same (replay.c), as suspects: one at a time, alone. One that takes the worker with
 * it while it runs alone is guilty and answered GPU_FAULT.
 *
 * Owner: the server. Thread: loop.
 */
#pragma once

#include "job.h"
#include "stats.h"

#define QUEUE_HORIZON_SECONDS 200e-6 /* what a small job may have to wait behind */

/* A job hangs when it has run so many times longer than estimated, and at least so long on a GPU.
 * Estimates are within a factor of two; another process's work on the GPU is what the rest is for.
 * The CPU's estimate knows neither the library nor the load: there only an operator's limit holds.
 */
#define QUEUE_OVERDUE_ESTIMATES 20
#define QUEUE_OVERDUE_SECONDS   2

struct queue;

/* The job's end: answer and job_free(). `completion` is NULL when it never ran. */
typedef void (*queue_finished_fn)(struct queue *queue,
                                  struct job *job,
                                  const struct fault *fault,
                                  const struct gemmd_completion *completion);

struct queue {
    struct worker_process *worker;
    struct stats *stats;
    struct list waiting;   /* jobs in state WAITING */
    struct list lanes;     /* accounts with READY jobs */
    struct list suspects;  /* READY jobs that must run alone, before all others */
    struct list committed; /* in the order of their commands */
    uint64_t count;        /* jobs in all states */
    uint32_t committed_count;
    double committed_seconds;
    double virtual_seconds; /* of the uid that committed last */
    uint64_t next_number;
    bool is_advancing;  /* queue_advance() does not nest */
    double job_seconds; /* the operator's QUEUE_OVERDUE_SECONDS; 0: none */
    uint64_t watched;   /* the job that ran at the last look; 0: none */
    uint32_t looks;     /* since it was first seen to run */
    queue_finished_fn finished;
};

void queue_init(struct queue *queue,
                struct worker_process *worker,
                struct stats *stats,
                queue_finished_fn finished);
void queue_deinit(struct queue *queue); /* empty */

/* Takes the job: `session_jobs` are its session's, in order. May finish it before returning. */
void queue_submit(struct queue *queue, struct job *job, struct list *session_jobs);
/* Memory or kernels changed: look at the waiting jobs again. */
void queue_review(struct queue *queue);
/* Commits what may be committed. */
void queue_advance(struct queue *queue);
void queue_completed(struct queue *queue, const struct gemmd_completion *completion);
/* The client is gone: what was not committed is dropped without an answer, the rest runs out. */
void queue_abandon(struct queue *queue, struct list *session_jobs);
/* There is no worker any more, and none to come: everything ends with SHUTTING_DOWN. */
void queue_end(struct queue *queue);
void queue_worker_died(struct queue *queue, uint64_t taken);

/* queue_overdue.c. Called once a second while commands are in flight: whether the job that runs has
 * run for so long that it hangs. */
bool queue_is_overdue(struct queue *queue);
