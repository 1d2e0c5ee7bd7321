/*
 * How a product on host memory is cut so that it streams: panels of A and B that are copied in,
 * blocks of D that are computed from them and copied out, in steps of which one comes in while
 * another is computed and a third goes out. Pure C, no CUDA.
 *
 * A panel is some rows of op(A) or columns of op(B), with all of K, and a row begins as far behind
 * a multiple of 16 bytes wherever the cuts are, since kernels that sum by chunks begin with the
 * first whole one: no result depends on the cuts. As far as the scratch memory goes everything
 * comes in once: the smaller operand, then the other one in panels, each computed at once, so that
 * blocks of D are as wide as D or nearly, and few. The next product's operands come in while the
 * last blocks go out. A product that computes for longer than it copies does not wait for a whole
 * operand: panels of both come alternately, each computed with all that is there of the other one.
 * The last panels are small, so that little is left to compute when the bus falls silent.
 *
 * What does not fit: one operand stays, as much of it as fits (a band), and the other one streams
 * past it through a ring of slots, once for each band. The one that makes fewer bytes stays.
 *
 * Small items of a batch go in groups, several to a step.
 *
 * The order of the steps, what each loads, and where to, follow from the job and the limits alone.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "../core/problem.h"

#define PANEL_BLOCK_SLOTS 4  /* of D: one is computed, one goes out, one waits each way */
#define PANEL_RING_SLOTS  16 /* at most */

/* Copies shorter than this do not reach the bus's rate (8 MiB are 150 us), nor pay for the driver
 * calls of a step. */
#define PANEL_BYTES (8u << 20)

/* A block of D, which waits in four slots: fewer of them cost fewer events and driver calls. */
#define PANEL_BLOCK_BYTES (16u << 20)

/* Products of a block, about 300 us of a device at work: who else wants it waits no longer. */
#define PANEL_BLOCK_PRODUCTS      100e9 /* 16-bit operands and int8 */
#define PANEL_BLOCK_PRODUCTS_WIDE 10e9

/* Bytes of a row below which strided copies are slow: 45 GB/s of 55 with half as many. */
#define PANEL_ROW_BYTES 4096

/* m n / (m + n) from which a product computes for about as long as it copies, on a device that does
 * 690 TFLOP/s (50 in wide types) behind a bus of 55 GB/s: then both operands come in panels. With
 * less the smaller one comes first and whole, so that blocks of D are as wide as D, or nearly. */
#define PANEL_BALANCE      10000 /* 16-bit operands and int8 */
#define PANEL_BALANCE_WIDE 1000

/* Where a cut may be: 16 elements are 16 bytes of any type. */
#define PANEL_CUT 16

struct panel_limits {
    uint64_t scratch;        /* bytes */
    uint64_t unit_m, unit_n; /* what the kernel computes at a time: cuts at multiples of it */
    uint64_t wave;           /* so many of them at once on the device */
};

/* Where an operand's panels, or D's blocks, lie in the scratch memory. */
struct panel_area {
    bool is_staged;
    bool is_shared;        /* one item for the whole batch */
    bool is_by_rows;       /* a panel is whole stored rows; else a part of each */
    uint64_t element;      /* bytes */
    uint64_t offset;       /* of the area */
    uint64_t pitch, item;  /* bytes from stored row to stored row, from item to item */
    uint64_t item_shift;   /* so much further behind a multiple of 16 each item begins */
    uint64_t along;        /* bytes from one index of the panels' axis to the next */
    uint64_t size, copies; /* bytes of one; 2: rounds take turns */
};

/* m with the panels of A, or n with those of B. */
struct panel_axis {
    int64_t extent;
    int64_t unit;  /* cuts are at multiples of it */
    int64_t panel; /* extent of a panel; the first and last ones are smaller */
    int64_t band;  /* what is there at a time, of the operand that stays */
    int64_t slots; /* of the ring; 0: every panel of a band has its place */
};

struct panel_plan {
    int64_t m, n, k, batch;
    int64_t group; /* items of a round */
    int stays;     /* the axis whose operand stays: 0 (m, A) or 1 (n, B) */
    struct panel_axis axis[2];
    struct panel_area area[2];
    bool has_block;                    /* C or D is staged, and has slots */
    uint64_t block_element;            /* bytes */
    uint64_t block_offset, block_size; /* of a slot */
    int64_t dense_columns; /* blocks so wide lie without gaps, as in the client's D; 0: none do */
    bool items_are_dense;  /* and their items, too */
    uint64_t size;         /* of the scratch memory */
};

/* A panel to be copied in. */
struct panel_load {
    int axis;           /* 0: A, 1: B */
    int64_t begin, end; /* rows of op(A), columns of op(B) */
    uint64_t offset;    /* in the scratch memory */
    uint64_t after;     /* all steps of the product before this one are computed: they read what was
                           there; 0: nothing was */
};

/* Panels to be copied in, and the block that is computed from them and earlier ones. */
struct panel_step {
    uint64_t number;
    int64_t item, items;
    int64_t row, rows, column, columns; /* of D */
    int loads;
    struct panel_load load[2];
    uint64_t operand_offset[2]; /* of the block's rows of op(A), columns of op(B) */
    uint64_t block_offset, block_pitch, block_item; /* of D's slot */
};

struct panel_cursor {
    const struct panel_plan *plan;
    uint64_t number;
    int64_t item, band; /* of the round: an item or group, and a band */
    uint64_t round;
    uint64_t round_step, before_step; /* numbers of this round's and the last round's first step */
    int64_t loaded[2];                /* panels of the round that are there */
    int64_t first[2], last[2];        /* extents now computed with each other: [first, last) */
    int64_t at[2];                    /* the next block of those */
    int64_t block[2];                 /* extents of a block */
    uint64_t slot_step[PANEL_RING_SLOTS]; /* one past the last step that reads the slot */
};

enum {
    PANEL_E_SCRATCH = 1, /* k is too large for panels of it to fit */
};

/* The job has at least one element and at least one operand in host memory. 0 or PANEL_E_SCRATCH.
 */
int panel_plan_init(struct panel_plan *plan,
                    const struct gemmd_job *job,
                    const struct panel_limits *limits);

void panel_cursor_init(struct panel_cursor *cursor, const struct panel_plan *plan);
/* False after the last step. */
bool panel_next(struct panel_cursor *cursor, struct panel_step *ret_step);
