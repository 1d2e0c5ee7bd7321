/*
 * The plan on an H200: for tests of what it chooses.
 */
#pragma once

#include "../../daemon/plan/plan.h"

#include <criterion/criterion.h>

static const struct plan_device h200 = {
    .arch = 90,
    .multiprocessors = 132,
    .shared_memory_per_block = 232448,
    .l2_cache = 60ull << 20,
    .clock_hz = 1.98e9,
    .memory_bytes_per_second = 4.8e12,
};

static const uint64_t aligned[OPERAND_COUNT];

/* In dense rows. */
static inline struct problem
product(enum dtype input, enum dtype output, int64_t m, int64_t n, int64_t k)
{
    struct problem problem = {
        .input = input,
        .output = output,
        .m = m,
        .n = n,
        .k = k,
        .batch = 1,
        .alpha = 1,
    };

    problem_leave_layouts(&problem);
    problem_fill_defaults(&problem);
    return problem;
}

/* The same in bf16, with B as the weights of a layer lie. */
static inline struct problem layer(int64_t m, int64_t n, int64_t k)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, m, n, k);

    problem.trans_b = true;
    problem.operand[OPERAND_B].ld = k;
    return problem;
}

static inline struct plan choose(const struct problem *problem,
                                 const uint64_t address[OPERAND_COUNT])
{
    struct plan plan = {0};
    struct fault fault = FAULT_NONE;

    cr_assert_eq(plan_choose(problem, address, &h200, &plan, &fault), STATUS_OK);
    return plan;
}
