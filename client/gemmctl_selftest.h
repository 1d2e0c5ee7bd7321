/*
 * The two halves of gemmctl selftest: one product and its judgement (gemmctl_selftest.c), and the
 * table of all of them (gemmctl_selftest_table.c).
 */
#pragma once

#include "gemmctl.h"

#define SELFTEST_DETAIL_MAX 320

struct selftest_types {
    enum dtype input, output;
    bool trans_a, trans_b;
};

struct selftest_shape {
    int kind; /* column of the table */
    int64_t m, n, k;
    double alpha, beta;
    int64_t batch;                 /* 0: 1 */
    int64_t padding;               /* elements after each row and each batch item */
    int64_t offset;                /* elements in front of the first: breaks 16-byte alignment */
    bool is_a_shared, is_b_shared; /* stride 0 */
    bool is_in_place;              /* C is D */
    enum bias bias;
    enum activation activation; /* of int32 results: relu, if any */
    bool is_bias_shared;
    bool is_quick;
};

struct selftest_run {
    const struct selftest_shape *shape;
    struct problem problem;
};

/* Owns the memory. */
struct selftest {
    struct gemmctl *ctl;
    gemmd_memory memory;
    gemmd_buffer *buffer[OPERAND_COUNT];
    unsigned char *local[OPERAND_COUNT];
    bool is_lost; /* the daemon is gone: no use to go on */
};

/* CTL_OK or an exit status, with the reason printed. */
int selftest_init(struct selftest *test);
void selftest_deinit(struct selftest *test);
/* Worst error over bound: at most 1 when all is right; Inf with `ret_detail` for other faults. */
double selftest_run(struct selftest *test,
                    const struct selftest_types *types,
                    const struct selftest_shape *shape,
                    char ret_detail[SELFTEST_DETAIL_MAX]);
