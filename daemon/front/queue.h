/*
 * Order and admission of jobs.
 *
 * Order: jobs of one connection that touch the same memory (one of them writing) are committed in
 * the order of their requests, and a track's commands take effect in the order they were committed
 * (backend.h). Where the tracks differ, or keep no order, the later job is committed when the
 * earlier one is over; others may overlap. Between connections there is no order but what a client
 * makes by waiting.
 *
 * Admission: the ring cannot be preempted, so of each track at most QUEUE_HORIZON_SECONDS of
 * estimated work is committed beyond what runs. A larger job of the main track (job.h says
 * how much larger) goes as slices of its tiles, same tiling and order, same bits; one that cannot
 * be sliced (on the CPU; with operands in host memory) is committed alone. Of the other tracks one
 * may always wait, so that the copy engines do not: a streamed product begins to come in while the
 * one before it goes out. Among ready jobs, turns.h says whose turn it is. Estimates are the
 * plan's, corrected by what was measured (estimate.h).
 *
 * When a worker dies (queue_replay.c): what it had not taken goes again. What it had taken goes
 * again if that computes the same, as suspects: one at a time, alone. One that takes the worker
 * with it while it runs alone is guilty and answered GPU_FAULT. The one of them that ran when the
 * device faulted goes last, and when a new worker is about to stand by, it waits for that: others
 * then miss the worker for no longer than it takes to change places.
 *
 * Owner: the server. Thread: loop.
 */
#pragma once

#include "estimate.h"
#include "job.h"
#include "stats.h"
#include "track.h"
#include "turns.h"

#define QUEUE_HORIZON_SECONDS 200e-6 /* what a small job may have to wait behind */

/* A job of the main track that takes no longer goes first in the worker, before committed ones that
 * have not begun: it has a horizon of its own, since it waits only behind what runs and its like.
 * That is for the prediction to say. What was measured of such jobs contains their launch, copies
 * from memory that is used for the first time, and a busy CPU's delays: up to QUEUE_QUICK_MEASURED
 * it is no reason to make them wait.
 */
#define QUEUE_QUICK_SECONDS  20e-6
#define QUEUE_QUICK_MEASURED QUEUE_HORIZON_SECONDS

/* What has a track beside the main one: products with so many bytes on host memory, copies of so
 * many. Less is over sooner than the tracks can be told of each other. */
#define QUEUE_STREAM_BYTES (8u << 20)
#define QUEUE_COPY_BYTES   (4u << 20)

/* From and to registered memory, a little under what was measured (PCIe 5). */
#define QUEUE_BUS_BYTES_PER_SECOND 50e9

/* A command hangs when it has run so many times longer than estimated, and at least so long on a
 * GPU. Estimates are within a factor of two; another process's work on the GPU is what the rest is
 * for. The CPU's estimate knows neither the library nor the load: there only an operator's limit
 * holds.
 *
 * Only time in which the device did other things for the worker counts (link_device_answers). One
 * that does nothing for it may do nothing for anybody: the driver has not got rid of a process that
 * died, or is busy. No job is blamed for that.
 *
 * Both kinds of patience double with workers that die in vain (worker_patience). They have an end,
 * because every wait has: a job that waited for so many workers with a device that stood still is
 * told.
 */
#define QUEUE_OVERDUE_ESTIMATES 20
#define QUEUE_OVERDUE_SECONDS   2
#define QUEUE_STILL_TOLD        2 /* seconds, after which the log tells */
#define QUEUE_STILL_SECONDS     10
#define QUEUE_STILL_DEATHS      4

struct queue;

/* The job's end: answer and job_free(). `completion` is NULL when it never ran; that of a sliced
 * job is from the first slice's start to the last one's end. */
typedef void (*queue_finished_fn)(struct queue *queue,
                                  struct job *job,
                                  const struct fault *fault,
                                  const struct gemmd_completion *completion);

/* A command under way. */
struct queue_command {
    struct job *job; /* NULL: completed out of turn */
    uint64_t link_index;
    uint64_t tiles_end; /* the job's tiles that are done after it */
    struct track_command in_track;
};

struct queue {
    struct worker_process *worker;
    struct stats *stats;
    struct list waiting;   /* jobs in state WAITING */
    struct turns turns;    /* READY */
    struct list suspects;  /* READY jobs that must run alone, before all others */
    struct list committed; /* COMMITTED, in that order */
    struct list timed;     /* jobs with a deadline that have not started */
    uint64_t count;        /* jobs in all states */
    struct queue_command commands[LINK_COMMANDS]; /* by number modulo the size */
    uint64_t commands_done, commands_sent;
    struct track tracks[GEMMD_TRACK_COUNT];
    uint64_t next_number;
    bool is_advancing;    /* queue_advance() does not nest */
    double job_seconds;   /* the operator's QUEUE_OVERDUE_SECONDS; 0: none */
    uint64_t watched;     /* the command that ran at the last look, counted from 1; 0: none */
    uint32_t looks;       /* since it was first seen to run, with an answer of the device */
    uint64_t answers;     /* until the last look */
    uint32_t still_looks; /* in a row, without any */
    bool is_still_told;   /* the log knows of them */
    struct estimates estimates;
    queue_finished_fn finished;
};

void queue_init(struct queue *queue,
                struct worker_process *worker,
                struct stats *stats,
                queue_finished_fn finished);
void queue_deinit(struct queue *queue); /* empty */

/* Takes the job: `stream` is its session's. May finish it before returning. */
void queue_submit(struct queue *queue, struct job *job, struct stream *stream);
/* Memory or kernels changed: look at the waiting jobs again. */
void queue_review(struct queue *queue);
/* Commits what may be committed. */
void queue_advance(struct queue *queue);
void queue_completed(struct queue *queue, const struct gemmd_completion *completion);
/* Ends a request's job with CANCELLED if none of it was committed; false: it runs, or is not here.
 */
bool queue_cancel(struct queue *queue, struct stream *stream, uint32_t request);
/* Ends what has not started by its deadline with DEADLINE. When to call it next; 0: never. */
uint64_t queue_expire(struct queue *queue, uint64_t now_ns);
/* The client is gone: what was not committed is dropped without an answer, the rest runs out. */
void queue_abandon(struct queue *queue, struct stream *stream);
/* There is no worker any more, and none to come: everything ends with SHUTTING_DOWN. */
void queue_end(struct queue *queue);
void queue_worker_died(struct queue *queue, uint64_t taken);

/* queue_overdue.c. Called every WORKER_LOOK_MS while commands are in flight: whether the command
 * that runs has run for so long that it hangs, or the device stands still. */
enum worker_verdict queue_judge(struct queue *queue);
void queue_note_moves(
    struct queue *queue); /* something completed: the device does not stand still */
