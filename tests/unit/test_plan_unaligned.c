/*
 * What the plan does with rows that do not start on 16 bytes, and with products too small for
 * tensor cores.
 */
#include "plan_fixture.h"

#include <string.h>

Test(plan_unaligned, repacks_the_inputs_of_large_products_and_says_so)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4096, 4097);
    struct plan plan = choose(&problem, aligned);

    cr_assert_eq(plan.config.copy, CONFIG_COPY_REPACK);
    cr_expect_float_eq(plan.repack_bytes, 4097 * 4096 * 2, 4096 * 128, "of a alone");
    cr_expect_not_null(strstr(plan.reason, "MB of inputs are copied first"), "%s", plan.reason);
    problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4097, 4096);
    plan = choose(&problem, aligned);
    cr_expect_float_eq(plan.repack_bytes, 4096 * 4097 * 2, 4096 * 128, "of b alone");
    problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4096, 4096);
    problem.operand[OPERAND_D].ld = 4097;
    plan = choose(&problem, aligned);
    cr_expect_eq(plan.config.copy, CONFIG_COPY_REPACK);
    cr_expect_eq(plan.repack_bytes, 0, "stores need no copies");
}

/* Kernels for plain products alone compile in half the time, and are as fast as any for those. */
Test(plan_unaligned, keeps_c_and_rows_that_end_anywhere_from_kernels_for_plain_products)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4096, 4096);

    cr_expect_eq(choose(&problem, aligned).config.copy, CONFIG_COPY_TMA);
    problem.beta = 1;
    cr_expect_eq(choose(&problem, aligned).config.copy, CONFIG_COPY_REPACK);
    cr_expect_eq(choose(&problem, aligned).repack_bytes, 0, "rows are as tensor copies want them");
    problem.beta = 0;
    problem.activation = ACTIVATION_RELU;
    cr_expect_eq(choose(&problem, aligned).config.copy, CONFIG_COPY_REPACK);
    problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4095, 4096);
    problem.operand[OPERAND_B].ld = problem.operand[OPERAND_D].ld = 4096;
    cr_expect_eq(choose(&problem, aligned).config.copy, CONFIG_COPY_REPACK);
    problem = product(DTYPE_BF16, DTYPE_BF16, 16, 4096, 4096);
    problem.beta = 1;
    cr_expect_eq(choose(&problem, aligned).config.copy, CONFIG_COPY_TMA, "split ones have C");
}

Test(plan_unaligned, shifts_what_it_loads_for_small_products_and_says_so)
{
    struct problem problem = layer(157, 89, 185);
    struct plan plan = choose(&problem, aligned);

    cr_assert_eq(plan.config.copy, CONFIG_COPY_REALIGN);
    cr_expect_not_null(strstr(plan.reason, "threads shift what they load"), "%s", plan.reason);
}

/* 357 MB of one operand: repacked they would move three times. */
Test(plan_unaligned, multiplies_a_long_k_of_few_columns_or_rows_where_it_lies_and_says_so)
{
    static const int64_t sizes[][3] = {
        {12982, 6, 13766}, {6, 12982, 13766}, {16096, 23, 6199}, {64, 20000, 3001}};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct problem problem = layer(sizes[i][0], sizes[i][1], sizes[i][2]);
        struct plan plan = choose(&problem, aligned);
        uint64_t ctas = plan.tiles * plan.splits;

        cr_assert(config_streams(&plan.config), "%s", plan.reason);
        cr_expect_eq(plan.config.is_swapped, problem.m < problem.n);
        cr_expect(ctas > 66 && ctas <= 132, "%llu CTAs", (unsigned long long)ctas);
        cr_expect_not_null(strstr(plan.reason, "multiplied where they start"), "%s", plan.reason);
    }
}

/* Candidates of a kind. */
static size_t count_of(const struct problem *problem, bool (*is_kind)(const struct config *config))
{
    struct plan_ranking ranking;
    struct fault fault = FAULT_NONE;
    size_t count = 0;

    cr_assert_eq(plan_rank(problem, aligned, &h200, &ranking, &fault), STATUS_OK);
    for (size_t i = 0; i < ranking.count; i++)
        count += is_kind(&ranking.plan[i].config);
    return count;
}

Test(plan_unaligned, reads_no_rows_again_for_more_columns_than_a_tile_has)
{
    struct problem most = layer(12982, 64, 13766), more = layer(12982, 65, 13766);

    cr_expect_gt(count_of(&most, config_streams), 0);
    cr_expect_eq(count_of(&more, config_streams), 0);
}

Test(plan_unaligned, leaves_short_k_and_few_elements_to_cuda_cores_and_says_so)
{
    static const int64_t outer[][3] = {{730, 11845, 1}, {489, 5746, 1}};
    static const int64_t dot[][3] = {{4, 1, 1}, {97, 1, 15906}, {4, 5, 1772}};
    struct problem problem;
    struct plan plan;

    for (size_t i = 0; i < ARRAY_SIZE(outer); i++) {
        problem = product(DTYPE_BF16, DTYPE_BF16, outer[i][0], outer[i][1], outer[i][2]);
        problem.trans_b = true;
        plan = choose(&problem, aligned);
        cr_expect_eq(plan.config.schedule, CONFIG_SCHEDULE_OUTER);
        cr_expect_not_null(strstr(plan.reason, "CUDA cores multiply"), "%s", plan.reason);
    }
    for (size_t i = 0; i < ARRAY_SIZE(dot); i++) {
        problem = product(DTYPE_FP16, DTYPE_FP16, dot[i][0], dot[i][1], dot[i][2]);
        plan = choose(&problem, aligned);
        cr_expect_eq(plan.config.schedule, CONFIG_SCHEDULE_DOT);
        cr_expect_eq(plan.tiles, (uint64_t)(dot[i][0] * dot[i][1]), "each is an element");
    }
}

/* Of a D of few columns without gaps a CTA has 512 rows; where rows end one by one it would have
 * too many ends. */
Test(plan_unaligned, takes_tall_tiles_for_few_columns_that_are_one_run_of_memory)
{
    struct problem problem = layer(9971, 11, 1);

    cr_expect_eq(choose(&problem, aligned).config.tile_m, 512);
    problem.operand[OPERAND_D].ld = 13;
    cr_expect_neq(choose(&problem, aligned).config.tile_m, 512);
    problem = layer(15000, 25, 3);
    cr_expect_neq(choose(&problem, aligned).config.tile_m, 512, "more columns than such a tile");
}

/* On an H200 by strips 7.7, 13.5 and 2.3 us; by what was the best before 8.6, 17.8 and 3.0. */
Test(plan_unaligned, leaves_a_short_k_to_strips_of_rows_that_begin_alike_and_says_so)
{
    static const int64_t sizes[][3] = {{3631, 1100, 50}, {1096, 10765, 13}, {16317, 58, 1}};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct problem problem = layer(sizes[i][0], sizes[i][1], sizes[i][2]);
        struct plan plan = choose(&problem, aligned);

        cr_expect_eq(plan.config.schedule, CONFIG_SCHEDULE_STRIP, "%s", plan.reason);
        cr_expect_not_null(strstr(plan.reason, "threads shift what they load"), "%s", plan.reason);
    }
}

static bool is_strip(const struct config *config)
{
    return config->schedule == CONFIG_SCHEDULE_STRIP;
}

Test(plan_unaligned, needs_no_strips_where_rows_start_on_16_bytes)
{
    struct problem whole = layer(512, 4096, 32), odd = layer(512, 4096, 33);

    cr_expect_eq(count_of(&whole, is_strip), 0);
    cr_expect_gt(count_of(&odd, is_strip), 0);
}

/* 0 when it is not among the candidates. */
static double predicted_with(const struct problem *problem,
                             enum config_family family,
                             enum config_schedule schedule)
{
    struct plan_ranking ranking;
    struct fault fault = FAULT_NONE;

    cr_assert_eq(plan_rank(problem, aligned, &h200, &ranking, &fault), STATUS_OK);
    for (size_t i = 0; i < ranking.count; i++)
        if (ranking.plan[i].config.family == family && ranking.plan[i].config.schedule == schedule)
            return ranking.plan[i].predicted_seconds;
    return 0;
}

/* A CTA has an element, 256 threads of it 16 of K at once, and each time waits for memory: 64 us
 * for a million however idle the others are. */
Test(plan_unaligned, shares_a_long_k_of_few_elements_by_many_multiprocessors)
{
    static const int64_t sizes[][3] = {{1, 1, 1 << 20}, {1, 1, (1 << 20) + 1}, {4, 4, 1 << 20}};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct problem problem = layer(sizes[i][0], sizes[i][1], sizes[i][2]);
        struct plan plan = choose(&problem, aligned);
        double by_dot = predicted_with(&problem, CONFIG_HOPPER, CONFIG_SCHEDULE_DOT);

        cr_expect_geq(plan.splits, 32, "%lld", (long long)problem.k);
        cr_expect(by_dot > 60e-6 && by_dot < 90e-6, "%.1f us", by_dot * 1e6);
    }
}

/* On an H200, in microseconds: they are never the choice there, and must not come near it. */
Test(plan_unaligned, knows_what_copies_by_elements_cost)
{
    static const struct {
        int64_t m, n, k;
        double microseconds;
    } cases[] = {
        {4100, 4100, 4100, 2457}, {621, 9794, 833, 208},  {6881, 9274, 230, 823},
        {730, 11845, 1, 74},      {16096, 23, 6199, 405}, {8711, 2534, 5, 163},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct problem problem = layer(cases[i].m, cases[i].n, cases[i].k);
        double ratio;

        problem.operand[OPERAND_D].ld = problem.n | 1;
        ratio = predicted_with(&problem, CONFIG_PORTABLE, CONFIG_SCHEDULE_MMA) * 1e6 /
                cases[i].microseconds;
        cr_expect(ratio > 0.75 && ratio < 1.33, "%lld x %lld x %lld: %.2f of it",
                  (long long)cases[i].m, (long long)cases[i].n, (long long)cases[i].k, ratio);
    }
}

/* Their kernels count elements in 32 bits. */
Test(plan_unaligned, leaves_no_product_of_too_many_elements_to_cuda_cores)
{
    struct problem most = product(DTYPE_BF16, DTYPE_BF16, (1 << 16) - 1, 1 << 15, 1);
    struct problem more = product(DTYPE_BF16, DTYPE_BF16, 1 << 16, 1 << 15, 1);

    cr_expect_gt(count_of(&most, config_is_direct), 0);
    cr_expect_eq(count_of(&more, config_is_direct), 0);
}

Test(plan_unaligned, repacks_and_splits_few_rows_of_a_long_k)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 102, 577, 9177);
    struct plan plan = choose(&problem, aligned);

    cr_assert_eq(plan.config.copy, CONFIG_COPY_REPACK);
    cr_expect(config_is_split(&plan.config));
    cr_expect_gt(plan.splits, 1);
    cr_expect_geq(plan.repack_bytes, (102 + 577) * 9177 * 2.0);
    cr_expect_gt(plan.fixed_seconds, plan.repack_bytes * 2 / 5e12, "the copies cost something");
}
