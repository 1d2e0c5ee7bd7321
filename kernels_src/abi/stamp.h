/*
 * What an instrumented kernel (-DGEMMD_STAMPS=1) writes down of its own course, in a variable of
 * its module: each recording thread of the first CTAs has a lane of records, in the order in which
 * it made them. kernels_src/pipe/stamps.cuh writes, tests/bench/stamps.c reads.
 */
#ifndef GEMMD_ABI_STAMP_H
#define GEMMD_ABI_STAMP_H

#include "job.h"

/* In the order of a K tile's way. */
enum {
    GEMMD_STAMP_NONE,            /* what is behind the last record */
    GEMMD_STAMP_COPY_ISSUED,     /* all copies of a K tile by this CTA */
    GEMMD_STAMP_TILE_BEGIN,      /* of D */
    GEMMD_STAMP_FULL_SEEN,       /* the slot of the next K tile */
    GEMMD_STAMP_PRODUCTS_ISSUED, /* of that K tile */
    GEMMD_STAMP_LANDED,          /* value: K tiles behind it whose copies are there, too */
    GEMMD_STAMP_PRODUCTS_DONE,   /* of the oldest K tile whose products were under way */
    GEMMD_STAMP_SLOT_RELEASED,   /* of that one */
    GEMMD_STAMP_EPILOGUE_BEGIN,
    GEMMD_STAMP_EPILOGUE_END,
};

/* Who records: the loading thread, the first thread of each group that multiplies. */
enum { GEMMD_STAMP_LOADER, GEMMD_STAMP_GROUP_0, GEMMD_STAMP_GROUP_1, GEMMD_STAMP_LANES };

#define GEMMD_STAMP_CTAS    512
#define GEMMD_STAMP_RECORDS 2048 /* of a lane, a power of two; the last one is never written */
#define GEMMD_STAMP_SYMBOL  "gemmd_stamp_buffer"

struct gemmd_stamp {
    gemmd_u32 clock; /* of the multiprocessor, the low word */
    gemmd_u32 what;  /* event, and a value above its 8 bits */
};

/* Two clocks at the two ends of a lane; those that only load have no end. */
struct gemmd_stamp_span {
    gemmd_u64 begin_ns, end_ns; /* of the device's timer */
    gemmd_u32 begin_clock, end_clock;
    gemmd_u32 multiprocessor, reserved;
};

struct gemmd_stamps {
    struct gemmd_stamp_span spans[GEMMD_STAMP_CTAS][GEMMD_STAMP_LANES];
    struct gemmd_stamp records[GEMMD_STAMP_CTAS][GEMMD_STAMP_LANES][GEMMD_STAMP_RECORDS];
};

GEMMD_STATIC_ASSERT(sizeof(struct gemmd_stamp) == 8, "written at once");
GEMMD_STATIC_ASSERT(sizeof(struct gemmd_stamp_span) == 32, "stamp size is ABI");

#endif
