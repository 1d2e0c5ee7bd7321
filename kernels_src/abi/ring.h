/*
 * Slots of the two rings between front and worker (daemon/link/). Laid out so that a resident
 * grid can read commands and write completions itself: one cache-line multiple per slot, a
 * sequence word that is published last, nothing that needs a look-up to be understood.
 *
 * A slot with index i (counting from 0 for ever) holds sequence (i + 1) once it is filled; the
 * writer stores it with release order after the body, the reader loads it with acquire order.
 */
#ifndef GEMMD_ABI_RING_H
#define GEMMD_ABI_RING_H

#include "job.h"

enum gemmd_command_kind {
    GEMMD_COMMAND_GEMM = 1, /* body.gemm, run with `kernel` */
    GEMMD_COMMAND_COPY = 2, /* body.copy: any of host and device on either side */
    GEMMD_COMMAND_ZERO = 3, /* body.copy with source 0: fill with zero bytes */
};

/* What runs beside each other. Commands of one track take effect one after the other, but those of
 * GEMMD_TRACK_STREAM, like those of two tracks, in any order: they touch different memory. */
enum gemmd_track {
    GEMMD_TRACK_MAIN,   /* whatever is short on the device: the CPU knows no other */
    GEMMD_TRACK_IN,     /* large copies to the device */
    GEMMD_TRACK_OUT,    /* and from it */
    GEMMD_TRACK_STREAM, /* products on host memory, in panels */
    GEMMD_TRACK_COUNT,
};

struct gemmd_copy {
    gemmd_u64 destination, source; /* addresses as in struct gemmd_job */
    gemmd_u64 size;                /* bytes */
    gemmd_u32 flags; /* GEMMD_JOB_HOST_A: source in host memory, _HOST_D: destination */
    gemmd_u32 reserved;
};

struct gemmd_command {
    gemmd_u64 sequence; /* 64 bits wide: no wrap in the life of a daemon */
    gemmd_u32 kind;
    gemmd_u32 track;  /* enum gemmd_track */
    gemmd_u64 job;    /* the front's number, returned in the completion */
    gemmd_u64 kernel; /* what LINK_LOAD named; 0 for none (CPU worker, copies) */

    union {
        struct gemmd_job gemm;
        struct gemmd_copy copy;
    } body;

    gemmd_u32 is_quick; /* of the main track: goes before what waits there and is not */
    gemmd_u32 reserved0;
    gemmd_u64 reserved1[3];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_command) == 320, "command slot size is ABI");

struct gemmd_completion {
    gemmd_u64 sequence;
    gemmd_u64 job;
    gemmd_u32 status; /* enum status of daemon/core/status.h */
    gemmd_u32 reserved0;
    gemmd_u64 started_ns;  /* CLOCK_MONOTONIC when the worker took the job */
    gemmd_u64 finished_ns; /* and when it saw the end */
    gemmd_u64 reserved1[3];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_completion) == 64, "completion slot size is ABI");

#endif
