/*
 * What an instrumented kernel (-DGEMMD_STAMPS=1) writes down of its own course, in a variable of
 * its module: each recording thread of the first CTAs has a lane of records, in the order in which
 * it made them. kernels_src/pipe/stamps.cuh writes, tests/bench/stamps.c reads.
 *
 * Clocks are the low word of the multiprocessor's.
 */
#ifndef GEMMD_ABI_STAMP_H
#define GEMMD_ABI_STAMP_H

#include "job.h"

/* What a record tells of, and its clocks: of what happened after the one before. */
enum {
    GEMMD_STAMP_NONE,       /* what is behind the last record */
    GEMMD_STAMP_COPIES,     /* of one K tile, by this CTA: issued */
    GEMMD_STAMP_TILE_BEGIN, /* of D: begin; the same; the first K tile's slot seen full */
    GEMMD_STAMP_K_TILE,     /* products issued; end of the wait behind that, for products whose slot
                               is then released; the next slot seen full, or all products done */
    GEMMD_STAMP_TILE_END,   /* end of the epilogue, which began when all products were done */
};

/* Who records: the loading warp's first thread, the first thread of each group that multiplies. */
enum { GEMMD_STAMP_LOADER, GEMMD_STAMP_GROUP_0, GEMMD_STAMP_GROUP_1, GEMMD_STAMP_LANES };

#define GEMMD_STAMP_CTAS         512
#define GEMMD_STAMP_RECORDS      1024 /* of a lane, a power of two; the last one is never written */
#define GEMMD_STAMP_SYMBOL       "gemmd_stamp_buffer"
#define GEMMD_STAMP_LANDED_SHIFT 4

/* Of a K tile also: how many of those behind it had landed when its products were issued. */
struct GEMMD_ALIGNED(16) gemmd_stamp {
    gemmd_u32 what; /* in the low bits, that number above them */
    gemmd_u32 clock[3];
};

/* Two clocks at the two ends of a lane; those that only load have no end. */
struct GEMMD_ALIGNED(16) gemmd_stamp_span {
    gemmd_u64 begin_ns; /* of the device's timer */
    gemmd_u32 begin_clock, multiprocessor;
    gemmd_u64 end_ns;
    gemmd_u32 end_clock, reserved;
};

struct gemmd_stamps {
    struct gemmd_stamp_span spans[GEMMD_STAMP_CTAS][GEMMD_STAMP_LANES];
    struct gemmd_stamp records[GEMMD_STAMP_CTAS][GEMMD_STAMP_LANES][GEMMD_STAMP_RECORDS];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_stamp) == 16, "written at once");
GEMMD_STATIC_ASSERT(sizeof(struct gemmd_stamp_span) == 32, "stamp size is ABI");

#endif
