#include "../../daemon/front/plans.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct plans plans;
static struct fault fault;
static struct plan_device device = {.arch = 90,
                                    .multiprocessors = 132,
                                    .shared_memory_per_block = 227 << 10,
                                    .clock_hz = 1.9e9,
                                    .memory_bytes_per_second = 4e12};

static struct problem problem_of(unsigned *seed)
{
    struct problem problem = {
        .input = rand_r(seed) % 2 ? DTYPE_BF16 : DTYPE_FP32,
        .m = 1 + rand_r(seed) % 5 * 200,
        .n = 1 + rand_r(seed) % 5 * 100,
        .k = 64,
        .batch = 1,
        .trans_b = rand_r(seed) % 2,
        .alpha = 1,
        .beta = rand_r(seed) % 2,
    };

    problem.output = problem.input;
    for (size_t i = 0; i < OPERAND_COUNT; i++)
        problem.operand[i] =
            (struct problem_operand){.ld = PROBLEM_DEFAULT, .stride = PROBLEM_DEFAULT};
    problem.operand[OPERAND_A].ld = 1000 + rand_r(seed) % 4;
    problem_fill_defaults(&problem);
    return problem;
}

static bool is_same(const struct plan *a, const struct plan *b)
{
    return config_equal(&a->config, &b->config) && a->predicted_seconds == b->predicted_seconds &&
           strcmp(a->reason, b->reason) == 0;
}

/* More shapes than places, so some push others out. */
Test(plans, are_what_would_be_chosen)
{
    unsigned seed = 3;

    for (int i = 0; i < 5000; i++) {
        struct problem problem = problem_of(&seed);
        uint64_t offset[OPERAND_COUNT] = {0, 2u * (rand_r(&seed) % 2u), 0, 4096};
        struct plan chosen, remembered;

        cr_assert_eq(plan_choose(&problem, offset, &device, &chosen, &fault), STATUS_OK);
        cr_assert_eq(plans_choose(&plans, &problem, offset, &device, &remembered, &fault),
                     STATUS_OK);
        cr_assert(is_same(&chosen, &remembered), "problem %d", i);
    }
}

Test(plans, are_chosen_anew_for_another_device)
{
    unsigned seed = 4;
    struct problem problem = problem_of(&seed);
    uint64_t offset[OPERAND_COUNT] = {0};
    struct plan before, after;

    cr_assert_eq(plans_choose(&plans, &problem, offset, &device, &before, &fault), STATUS_OK);
    device.arch = 80;
    plans_forget(&plans);
    cr_assert_eq(plans_choose(&plans, &problem, offset, &device, &after, &fault), STATUS_OK);
    cr_expect_eq(after.config.arch, 80);
}

Test(plans, do_not_remember_a_fault)
{
    unsigned seed = 5;
    struct problem problem = problem_of(&seed);
    uint64_t offset[OPERAND_COUNT] = {0};
    struct plan plan;

    device.arch = 30;
    cr_expect_eq(plans_choose(&plans, &problem, offset, &device, &plan, &fault),
                 STATUS_UNSUPPORTED);
    device.arch = 90;
    cr_expect_eq(plans_choose(&plans, &problem, offset, &device, &plan, &fault), STATUS_OK);
}
