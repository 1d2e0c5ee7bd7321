/*
 * One job: a product, a copy or a clearing, from its request to its answer. It holds what it uses
 * (buffers, staged bytes, charges) and gives everything back in job_free(), whatever happened.
 *
 * Owner: the queue from queue_submit() until it hands the job to `finished`. Thread: loop.
 */
#pragma once

#include "../../proto/request.h"
#include "../core/list.h"
#include "../core/problem.h"
#include "../plan/config.h"
#include "buffer.h"
#include "kernel.h"
#include "quota.h"
#include "staging.h"
#include "turns.h"

enum job_kind {
    JOB_PRODUCT,
    JOB_COPY, /* operand A to operand D */
    JOB_ZERO, /* operand D */
};

enum job_state {
    JOB_NEW,
    JOB_WAITING,   /* for an earlier job, memory or its kernel */
    JOB_READY,     /* for its turn; of a sliced job some slices may be under way */
    JOB_COMMITTED, /* all of it */
};

struct job_operand {
    bool is_used;
    uint64_t offset, span;         /* bytes in `buffer` or in the region */
    struct buffer *buffer;         /* counted; NULL: staged */
    struct staging_region staging; /* when there is no buffer */
};

struct job {
    struct list stream_link;   /* in stream.jobs, in the order of requests */
    struct list queue_link;    /* in one of the queue's lists, by state */
    struct list deadline_link; /* in queue.timed */
    struct stream *stream;     /* of its session; NULL once the client is gone */
    struct session *session;   /* NULL once the client is gone */
    struct charge charge, charge_inline;
    uint32_t request;
    enum method method;

    enum job_kind kind;
    struct problem problem; /* row-major, defaults filled, k = 0 when A and B are not read */
    struct config config;
    uint32_t splits;       /* of each tile, along K: struct plan */
    struct kernel *kernel; /* NULL: the worker needs none */
    struct job_operand operand[OPERAND_COUNT];
    struct buffer *made; /* METHOD_BUFFER_CREATE: the buffer to be answered; counted */

    enum job_state state;
    enum gemmd_track track;
    uint64_t number;       /* in commands and completions */
    uint32_t blockers;     /* earlier jobs of this stream for which job_blocks() */
    uint32_t in_flight;    /* commands without a completion */
    int priority;          /* -1, 0 or 1, among jobs of its uid */
    bool is_quick;         /* queue.h: QUEUE_QUICK_SECONDS */
    bool is_suspect;       /* was taken by a worker that died: runs alone until it passes */
    bool is_prime_suspect; /* and ran when its device faulted: a worker stands by before it does */
    bool awaits_kernel;    /* it was being compiled when the request came */
    bool was_taken, is_lost;  /* by a worker that died, while that is sorted out */
    uint32_t still_deaths;    /* of workers that had taken it, and whose device stood still */
    double predicted_seconds; /* by plan or size */
    double estimate_seconds;  /* the same, corrected by what was measured: queue_submit() */
    uint64_t estimate_class;

    /* Slices. Tiles are counted as the kernel does, in what a cluster computes together; `tiles` is
     * 0 for what cannot be sliced. */
    uint64_t tiles, wave_tiles; /* in all; what the device computes at once */
    uint64_t slice_tiles;       /* of a slice; 0: one command for all */
    uint64_t tiles_done, tiles_committed;
    enum status status; /* the first slice's that was not OK */
    uint64_t started_ns;
    double measured_seconds; /* of the slices that are done */
    bool was_beside_others;  /* so that it is not what the job cost (track.h) */

    /* Of a job of the tuner's. */
    uint32_t repeats, repeat_sets; /* as in struct gemmd_job */
    uint64_t repeat_step;
    void (*ended)(struct job *job, const struct fault *fault); /* instead of an answer */
    void *context;                                             /* of that */

    uint32_t epoch; /* that its configuration follows from */
    uint64_t received_ns;
    uint64_t deadline_ns; /* when it must have started; 0: any time */
    size_t reply_bytes;   /* of D, when it comes back inline: socket_expect() */
};

struct job *job_new(void); /* NULL: no memory */
struct job *job_free(struct job *job);

/* What operand `role` is: after this the job counts as using it. Takes the buffer's reference. */
void job_use_buffer(
    struct job *job, enum operand_role role, struct buffer *buffer, uint64_t offset, uint64_t span);
struct memory *job_memory(const struct job *job, enum operand_role role); /* NULL: not used */

/* Whether the order of the two matters: one writes what the other touches. */
bool job_conflicts(const struct job *a, const struct job *b);
/* Whether `writer` writes what `job` reads. */
bool job_reads_from(const struct job *job, const struct job *writer);

/* Whether `job` has to wait for an earlier one of its stream: until that is committed where the
 * worker keeps the order from then on (in one track, by addresses), and until it is over where it
 * does not. */
bool job_blocks(const struct job *earlier, const struct job *job);

enum job_verdict {
    JOB_WAIT, /* memory or kernel on their way */
    JOB_GO,
    JOB_FAIL, /* the fault says why */
};

enum job_verdict job_verdict(const struct job *job, struct fault *ret_fault);
/* The next command of the job, as the current worker knows its memory; the verdict was GO. */
void job_command(const struct job *job, struct gemmd_command *ret_command);

/* --- slices ---------------------------------------------------------------------------------- */

/* Makes a job one that can be cut: `tiles` are what its CTAs compute, in all. */
void job_count_tiles(struct job *job, uint64_t tiles, uint32_t multiprocessors);
/* A job hardly longer than a slice is one. Its few tiles more would be a launch of their own, out
 * of step with what runs: on an H200, 4096^3 by 16 clients is 650 TFLOP/s in two slices, 658 in
 * one. */
#define JOB_WHOLE_SLICES 1.5

/* Cuts a job that takes longer than `seconds` into slices of about that, in whole waves, so that
 * only the last one leaves multiprocessors idle. A suspect is never cut: one ordinary launch. */
void job_slice(struct job *job, double seconds);
/* Tiles after the next command; its part of the estimate. */
uint64_t job_slice_end(const struct job *job);
double job_slice_seconds(const struct job *job);
/* What jobs that take equally long for their prediction have in common (estimate.h). */
uint64_t job_estimate_class(const struct job *job);
