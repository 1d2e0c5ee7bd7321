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
        uint64_t offset[OPERAND_COUNT] = {
            [OPERAND_B] = 2u * (rand_r(&seed) % 2u), [OPERAND_D] = 4096};
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

/* --- with a tuning database ------------------------------------------------------------------ */

static struct problem square(int64_t size)
{
    struct problem problem = {.input = DTYPE_BF16,
                              .output = DTYPE_BF16,
                              .m = size,
                              .n = size,
                              .k = size,
                              .batch = 1,
                              .alpha = 1};

    for (size_t i = 0; i < OPERAND_COUNT; i++)
        problem.operand[i] =
            (struct problem_operand){.ld = PROBLEM_DEFAULT, .stride = PROBLEM_DEFAULT};
    problem_fill_defaults(&problem);
    return problem;
}

static struct plan choose_aligned(const struct problem *problem)
{
    static const uint64_t aligned[OPERAND_COUNT];
    struct plan plan;

    cr_assert_eq(plans_choose(&plans, problem, aligned, &device, &plan, &fault), STATUS_OK);
    return plan;
}

/* The second of the plan's ranking becomes the class's fastest. */
static struct config tune(struct tuning *tuning, const struct problem *problem, size_t candidate)
{
    static const uint64_t aligned[OPERAND_COUNT];
    struct plan_ranking ranking;
    struct tuning_entry entry = {.class = tuning_classify(problem, true),
                                 .seconds = 1e-6,
                                 .first_seconds = candidate == 0 ? 1e-6 : 2e-6};

    cr_assert_eq(plan_rank(problem, aligned, &device, &ranking, &fault), STATUS_OK);
    entry.config = ranking.plan[candidate].config;
    cr_assert_eq(tuning_set(tuning, &entry), 0);
    plans_forget(&plans);
    return entry.config;
}

Test(plans, take_what_was_the_fastest_for_the_class_and_name_the_epoch)
{
    struct problem problem = square(1024), neighbour = square(1000), other = square(2048);
    struct tuning tuning;
    struct config fastest;
    struct plan plan;

    tuning_init(&tuning);
    plans.tuning = &tuning;
    cr_expect_eq(choose_aligned(&problem).epoch, 0);
    fastest = tune(&tuning, &problem, 1);
    plan = choose_aligned(&problem);
    cr_expect(config_equal(&plan.config, &fastest));
    cr_expect_eq(plan.measured_seconds, 1e-6);
    cr_expect_eq(plan.epoch, tuning.epoch);
    cr_expect(strstr(plan.reason, "timed"));
    plan = choose_aligned(&neighbour);
    cr_expect(config_equal(&plan.config, &fastest));
    plan = choose_aligned(&other);
    cr_expect_eq(plan.measured_seconds, 0);
    cr_expect_eq(plan.epoch, tuning.epoch, "the database was asked, and had nothing");
    tuning_deinit(&tuning);
}

Test(plans, say_so_where_the_models_own_choice_was_kept)
{
    struct problem problem = square(1024);
    struct tuning tuning;

    tuning_init(&tuning);
    plans.tuning = &tuning;
    (void)tune(&tuning, &problem, 0);
    cr_expect(strstr(choose_aligned(&problem).reason, "It is the model's own choice"));
    (void)tune(&tuning, &problem, 1);
    cr_expect(strstr(choose_aligned(&problem).reason, "It was the fastest"));
    tuning_deinit(&tuning);
}

Test(plans, pass_over_a_fastest_that_cannot_compute_the_problem)
{
    struct problem problem = square(1024), wide = problem;
    struct tuning tuning;
    struct tuning_entry entry = {.class = tuning_classify(&problem, true), .seconds = 1e-6};
    struct plan plan;

    wide.operand[OPERAND_A].ld = 1027;
    cr_assert_eq(
        plans_choose(&plans, &wide, (const uint64_t[OPERAND_COUNT]){0}, &device, &plan, &fault),
        STATUS_OK);
    tuning_init(&tuning);
    plans.tuning = &tuning;
    entry.config = plan.config; /* for rows that are off */
    cr_assert_eq(tuning_set(&tuning, &entry), 0);
    plans_forget(&plans);
    plan = choose_aligned(&problem);
    cr_expect_not(config_equal(&plan.config, &entry.config));
    cr_expect_eq(plan.measured_seconds, 0);
    tuning_deinit(&tuning);
}
