#include "plan_fixture.h"

#include <string.h>

Test(plan, gives_the_same_answer_to_the_same_question)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 1000, 1000, 1000);
    struct plan first = choose(&problem, aligned), again = choose(&problem, aligned);

    cr_assert(config_equal(&first.config, &again.config));
    cr_assert_str_eq(first.reason, again.reason);
}

Test(plan, ranks_what_it_could_choose_with_its_choice_first)
{
    static const int64_t sizes[] = {64, 512, 4096};
    struct fault fault = FAULT_NONE;

    for (size_t i = 0; i < ARRAY_SIZE(sizes) * 2; i++) {
        int64_t size = sizes[i / 2] + (int64_t)i % 2; /* also rows that are off */
        struct problem problem = product(DTYPE_BF16, DTYPE_BF16, size, size, size);
        struct plan first = choose(&problem, aligned);
        struct plan_ranking ranking;

        cr_assert_eq(plan_rank(&problem, aligned, &h200, &ranking, &fault), STATUS_OK);
        cr_assert_geq(ranking.count, 2);
        cr_assert(config_equal(&ranking.plan[0].config, &first.config));
        cr_assert_str_eq(ranking.plan[0].reason, first.reason);
        for (size_t j = 1; j < ranking.count; j++) {
            cr_assert_geq(ranking.plan[j].predicted_seconds, ranking.plan[j - 1].predicted_seconds);
            for (size_t l = 0; l < j; l++)
                cr_assert_not(config_equal(&ranking.plan[j].config, &ranking.plan[l].config));
        }
    }
}

Test(plan, does_not_depend_on_scalars_but_for_what_they_read)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4096, 4096);
    struct plan one = choose(&problem, aligned), other;

    problem.alpha = -3.5;
    other = choose(&problem, aligned);
    cr_assert(config_equal(&one.config, &other.config));
}

Test(plan, takes_large_tiles_for_large_products_and_small_ones_for_small)
{
    struct problem large = product(DTYPE_BF16, DTYPE_BF16, 4096, 4096, 4096);
    struct problem small = product(DTYPE_BF16, DTYPE_BF16, 256, 256, 256);

    struct config of_large = choose(&large, aligned).config;
    struct config of_small = choose(&small, aligned).config;

    cr_assert_eq(of_large.tile_m * of_large.tile_n, 128 * 256);
    cr_assert_leq(of_small.tile_m * of_small.tile_n, 64 * 64);
}

Test(plan, takes_tensor_copies_where_their_rules_hold_and_only_there)
{
    static const struct {
        enum dtype input, output;
        int64_t m, n, k, batch, ld_a;
        enum config_family family;
    } cases[] = {
        {DTYPE_BF16, DTYPE_BF16, 512, 512, 512, 1, 512, CONFIG_HOPPER},
        {DTYPE_FP16, DTYPE_FP32, 512, 512, 512, 1, 512, CONFIG_HOPPER},
        {DTYPE_FP32, DTYPE_FP32, 512, 512, 512, 1, 512, CONFIG_PORTABLE},
        {DTYPE_INT8, DTYPE_INT32, 512, 512, 512, 1, 512, CONFIG_PORTABLE},
        {DTYPE_FP32, DTYPE_FP32, 512, 512, 512, 1, 513, CONFIG_PORTABLE},
        {DTYPE_BF16, DTYPE_BF16, 512, 512, 512, 1, 520, CONFIG_HOPPER},
        /* coordinates have 32 bits, strides 40, tiles are counted in 32 */
        {DTYPE_BF16, DTYPE_BF16, 1ll << 31, 64, 64, 1, 64, CONFIG_PORTABLE},
        {DTYPE_BF16, DTYPE_BF16, 64, 64, 64, 1ll << 31, 64, CONFIG_PORTABLE},
        {DTYPE_BF16, DTYPE_BF16, 64, 64, 64, 1, 1ll << 39, CONFIG_PORTABLE},
        {DTYPE_BF16, DTYPE_BF16, 1 << 24, 1 << 24, 64, 1, 64, CONFIG_PORTABLE},
        {DTYPE_BF16, DTYPE_BF16, 1 << 20, 1 << 20, 64, 1, 64, CONFIG_HOPPER},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct problem problem =
            product(cases[i].input, cases[i].output, cases[i].m, cases[i].n, cases[i].k);

        problem.batch = cases[i].batch;
        problem.operand[OPERAND_A].ld = cases[i].ld_a;
        cr_expect_eq(choose(&problem, aligned).config.family, cases[i].family, "case %zu", i);
    }
}

/* Which is in 32 bits, and the smallest have 16 rows. */
Test(plan, ranks_nothing_whose_tiles_its_kernels_cannot_count)
{
    for (int64_t m = 1; m <= 65; m += 8) {
        struct problem problem = product(DTYPE_BF16, DTYPE_BF16, m, 1, 1);
        struct plan_ranking ranking;
        struct fault fault = FAULT_NONE;

        problem.batch = 1431655766; /* 33 rows of each are 94 GB */
        problem.operand[OPERAND_A].stride = problem.operand[OPERAND_B].stride = 0;
        cr_assert_eq(plan_rank(&problem, aligned, &h200, &ranking, &fault), STATUS_OK);
        for (size_t i = 0; i < ranking.count; i++) {
            const struct config *config = &ranking.plan[i].config;
            int64_t tiles = (m + config->tile_m - 1) / config->tile_m * problem.batch;

            cr_expect(config->family != CONFIG_HOPPER || tiles < INT64_C(1) << 31,
                      "%lld rows in tiles of %u", (long long)m, config->tile_m);
        }
    }
}

Test(plan, fills_the_device_before_it_enlarges_tiles)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 1024, 1024, 1024);
    struct plan plan = choose(&problem, aligned);

    cr_expect_geq(plan.tiles, 64);
}

Test(plan, predicts_more_time_for_more_work)
{
    double last = 0;

    for (int64_t k = 64; k <= 65536; k *= 4) {
        struct problem problem = product(DTYPE_FP16, DTYPE_FP16, 2048, 2048, k);
        struct plan plan = choose(&problem, aligned);

        cr_assert_gt(plan.predicted_seconds, last);
        last = plan.predicted_seconds;
    }
}

/* Of one layer of a model, which meets every M: each configuration is a kernel to compile, to load
 * and to keep. */
static size_t cubins_for_every_m(int64_t n, int64_t k)
{
    struct config seen[64];
    size_t count = 0;

    for (int64_t m = 1; m <= 4096; m++) {
        struct problem problem = layer(m, n, k);
        struct config config = choose(&problem, aligned).config;
        size_t i = 0;

        while (i < count && !config_equal(&seen[i], &config))
            i++;
        if (i == count && count < ARRAY_SIZE(seen))
            seen[count++] = config;
    }
    return count;
}

Test(plan, needs_at_most_twelve_cubins_for_every_m_of_a_layer)
{
    static const int64_t layers[][2] = {{4096, 7168},  {7168, 2048},  {2112, 7168}, {24576, 1536},
                                        {7168, 16384}, {57344, 8192}, {512, 512},   {1000, 4096}};

    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        cr_expect_leq(cubins_for_every_m(layers[i][0], layers[i][1]), 12, "n %lld, k %lld",
                      (long long)layers[i][0], (long long)layers[i][1]);
}

Test(plan, never_predicts_less_time_for_a_larger_product)
{
    static const int64_t sizes[] = {1,   8,   16,   24,   64,   72,   128,  136,   256,
                                    512, 640, 1024, 2048, 2056, 4096, 8192, 16384, 65536};

    for (size_t axis = 0; axis < 3; axis++) {
        for (size_t other = 0; other < ARRAY_SIZE(sizes); other += 3) {
            double last = 0;

            for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int64_t m = axis == 0 ? sizes[i] : sizes[other];
                int64_t n = axis == 1 ? sizes[i] : sizes[(other + 5) % ARRAY_SIZE(sizes)];
                int64_t k = axis == 2 ? sizes[i] : 4096;
                struct problem problem = product(DTYPE_BF16, DTYPE_BF16, m, n, k);
                double seconds;

                /* Rows that are off have other kernels, those off whole lines take longer. */
                if (n % 64 != 0 || k % 64 != 0)
                    continue;
                seconds = choose(&problem, aligned).predicted_seconds;
                cr_expect_geq(seconds, last * (1 - 1e-9), "%lld x %lld x %lld", (long long)m,
                              (long long)n, (long long)k);
                last = seconds;
            }
        }
    }
}

/* On an H200, in bf16, sustained; kernels change, so this is about the model's form. */
Test(plan, predicts_what_was_measured)
{
    static const struct {
        int64_t m, n, k;
        double microseconds;
    } cases[] = {
        {256, 256, 256, 1.0},     {512, 512, 512, 1.42},     {1024, 1024, 1024, 4.7},
        {2048, 2048, 2048, 28.8}, {4096, 4096, 4096, 207},   {8192, 8192, 8192, 1603},
        {4096, 7168, 2048, 189},  {4096, 24576, 1536, 490},  {4096, 2112, 7168, 199},
        {512, 7168, 2048, 28},    {4096, 57344, 8192, 5642},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct problem problem =
            product(DTYPE_BF16, DTYPE_BF16, cases[i].m, cases[i].n, cases[i].k);
        double ratio = choose(&problem, aligned).predicted_seconds * 1e6 / cases[i].microseconds;

        cr_expect(ratio > 0.8 && ratio < 1.2, "%lld x %lld x %lld: %.2f of it",
                  (long long)cases[i].m, (long long)cases[i].n, (long long)cases[i].k, ratio);
    }
}

Test(plan, takes_a_tile_that_spares_a_round)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 2112, 4096);

    /* 288 tiles of 128 x 256 for 132 multiprocessors need a third round, two thirds of it empty. */
    cr_expect_eq(choose(&problem, aligned).config.tile_n, 192);
}

Test(plan, takes_a_tile_that_fills_a_wave)
{
    struct problem problem = layer(384, 3584, 4096);

    /* 96 of them; of 128 x 128 there are 84, and 48 multiprocessors do nothing. */
    cr_expect_eq(choose(&problem, aligned).config.tile_n, 112);
}

/* Two tiles of 128 rows would be a third more, three of 64 read all of B thrice. */
Test(plan, takes_a_tile_that_has_as_many_rows)
{
    static const int64_t sizes[][3] = {{144, 11008, 3952}, {384, 8192, 4096}, {576, 4096, 2048}};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct problem problem = layer(sizes[i][0], sizes[i][1], sizes[i][2]);

        cr_expect_eq(choose(&problem, aligned).config.tile_m, 192, "%lld", (long long)problem.m);
    }
}

/* With a K tile or two nothing hides how a tile leaves, and D is all there is to do: by 128x64
 * tiles these took 1.2 to 1.4 times as long. */
Test(plan, takes_few_large_tiles_where_k_is_short)
{
    static const int64_t sizes[][3] = {
        {224, 9952, 16}, {192, 10016, 16}, {496, 10640, 16}, {2480, 13200, 16}};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct problem problem = layer(sizes[i][0], sizes[i][1], sizes[i][2]);
        struct config config = choose(&problem, aligned).config;

        cr_expect_geq(config.tile_m * config.tile_n, 128 * 176, "%lldx%lld", (long long)problem.m,
                      (long long)problem.n);
    }
}

/* Memory stores slower than it loads, and at the power limit D's stores add to the products. On an
 * H200, in microseconds. */
Test(plan, counts_the_stores_of_a_large_d)
{
    static const struct {
        int64_t m, n, k;
        double microseconds;
    } cases[] = {
        {224, 9952, 16, 3.55},   {496, 10640, 16, 5.9},     {1616, 4128, 384, 13.5},
        {5984, 5872, 224, 42.1}, {13184, 7184, 240, 104.6}, {2480, 13200, 16, 21.3},
        {65536, 256, 256, 23.4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct problem problem = layer(cases[i].m, cases[i].n, cases[i].k);
        double ratio = choose(&problem, aligned).predicted_seconds * 1e6 / cases[i].microseconds;

        cr_expect(ratio > 0.85 && ratio < 1.3, "%lld x %lld x %lld: %.2f of it",
                  (long long)cases[i].m, (long long)cases[i].n, (long long)cases[i].k, ratio);
    }
}

Test(plan, shares_a_long_k_by_most_of_the_device)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 256, 256, 65536);
    struct plan plan = choose(&problem, aligned);
    uint64_t ctas = plan.tiles * plan.splits * plan.config.cluster_k;

    cr_expect(config_is_split(&plan.config));
    cr_expect_geq(ctas, 90);
    cr_expect_leq(ctas, 132);
}

/* In all layouts: as stored, of gradients, whose K is the number of tokens, and the other two. */
Test(plan, leaves_parts_of_a_long_k_for_a_second_launch)
{
    for (int layout = 0; layout < 4; layout++) {
        struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 128, 128, 131072);
        struct plan plan;

        problem.trans_a = layout & 2;
        problem.trans_b = layout & 1;
        problem.operand[OPERAND_A].ld = problem.trans_a ? problem.m : problem.k;
        problem.operand[OPERAND_B].ld = problem.trans_b ? problem.k : problem.n;
        plan = choose(&problem, aligned);
        cr_expect(config_leaves_parts(&plan.config), "layout %d", layout);
        cr_expect_geq(plan.splits, 32);
    }
}

/* 4.6 us where its splits wait for each other, 6.3 by two launches. */
Test(plan, adds_up_a_k_of_some_thousands_within_one_launch)
{
    struct problem problem = layer(16, 416, 6752);
    struct plan plan = choose(&problem, aligned);

    cr_expect_not(config_leaves_parts(&plan.config));
    cr_expect_gt(plan.splits, 1);
}

Test(plan, leaves_no_parts_that_the_workspace_has_no_room_for)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 4096, 4096, 65536);
    struct plan_ranking ranking;
    struct fault fault;

    cr_assert_eq(plan_rank(&problem, aligned, &h200, &ranking, &fault), STATUS_OK);
    for (size_t i = 0; i < ranking.count; i++)
        cr_expect_not(config_leaves_parts(&ranking.plan[i].config));
}

Test(plan, takes_larger_tiles_where_copies_cost_more)
{
    struct problem whole = product(DTYPE_BF16, DTYPE_BF16, 640, 640, 640);
    struct problem off = product(DTYPE_BF16, DTYPE_BF16, 648, 648, 648);
    struct config on_lines = choose(&whole, aligned).config;
    struct config off_lines = choose(&off, aligned).config;

    cr_expect_gt(off_lines.tile_m * off_lines.tile_n, on_lines.tile_m * on_lines.tile_n);
}

Test(plan, answers_every_pair_layout_and_alignment_of_every_architecture)
{
    static const uint32_t archs[] = {80, 86, 87, 89, 90, 100, 103, 120};

    static const enum dtype pairs[][2] = {
        {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
        {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
        {DTYPE_INT8, DTYPE_INT32},
    };
    struct fault fault = FAULT_NONE;
    struct plan plan;

    for (size_t i = 0; i < ARRAY_SIZE(archs) * ARRAY_SIZE(pairs) * 8; i++) {
        uint32_t arch = archs[i / 8 % ARRAY_SIZE(archs)];
        struct plan_device device = {
            .arch = arch,
            .multiprocessors = 16,
            .shared_memory_per_block = (arch == 90 ? 227u : 99u) * 1024,
        };
        const enum dtype *pair = pairs[i / 8 / ARRAY_SIZE(archs)];
        struct problem problem = product(pair[0], pair[1], 48, 48, 48);
        bool is_aligned = i & 4;

        problem.trans_a = i & 1;
        problem.trans_b = i & 2;
        if (!is_aligned)
            problem.operand[OPERAND_A].ld = 49;
        cr_assert_eq(plan_choose(&problem, aligned, &device, &plan, &fault), STATUS_OK);
        cr_assert_eq(plan.config.arch, device.arch);
        cr_assert_eq(plan.config.input, pair[0]);
        cr_assert_eq(plan.config.output, pair[1]);
        cr_assert_eq(plan.config.trans_a, problem.trans_a);
        cr_assert_eq(plan.config.trans_b, problem.trans_b);
        if (plan.config.family == CONFIG_HOPPER)
            cr_assert(device.arch == 90 && (config_is_direct(&plan.config) ||
                                            is_aligned == (plan.config.copy == CONFIG_COPY_TMA)));
        else
            cr_assert_eq(plan.config.copy, is_aligned ? CONFIG_COPY_V16 : CONFIG_COPY_ELEMENT);
        cr_assert_gt(strlen(plan.reason), 0);
        cr_assert_eq(plan.reason[strlen(plan.reason) - 1], '.');
    }
}

Test(plan, wants_no_aligned_rows_as_soon_as_one_of_any_operand_is_off)
{
    for (int role = OPERAND_A; role < OPERAND_COUNT; role++) {
        struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 64, 64, 64);
        uint64_t address[OPERAND_COUNT] = {0};

        problem.beta = 1;
        problem.batch = 2;
        if (role == OPERAND_BIAS)
            continue; /* read by elements in any case: the next test */
        cr_assert(plan_rows_are_aligned(&problem, address, 16));
        address[role] = 2;
        cr_assert_not(plan_rows_are_aligned(&problem, address, 16));
        address[role] = 32;
        cr_assert(plan_rows_are_aligned(&problem, address, 16));
        problem.operand[role].ld++;
        cr_assert_not(plan_rows_are_aligned(&problem, address, 16));
        problem.operand[role].ld--;
        problem.operand[role].stride += 4;
        cr_assert_not(plan_rows_are_aligned(&problem, address, 16));
        cr_assert_neq(choose(&problem, address).config.copy, CONFIG_COPY_TMA);
        cr_assert_neq(choose(&problem, address).config.copy, CONFIG_COPY_V16);
    }
}

Test(plan, repacks_nothing_that_would_be_too_large)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 32000, 32001, 32001);

    cr_expect_eq(choose(&problem, aligned).config.copy, CONFIG_COPY_REPACK);
    problem = product(DTYPE_BF16, DTYPE_BF16, 33001, 33001, 33001);
    cr_expect_neq(choose(&problem, aligned).config.copy, CONFIG_COPY_REPACK);
}

Test(plan, ignores_the_alignment_of_what_is_not_read_or_has_no_second_row)
{
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 64, 64, 64);
    uint64_t address[OPERAND_COUNT] = {[OPERAND_C] = 2};

    cr_assert(plan_rows_are_aligned(&problem, address, 16), "beta = 0: C is not read");
    problem.beta = 1;
    cr_assert_not(plan_rows_are_aligned(&problem, address, 16));
    problem.beta = 0;
    problem.k = 0;
    address[OPERAND_A] = address[OPERAND_B] = 1;
    cr_assert(plan_rows_are_aligned(&problem, address, 16), "k = 0: A and B are not read");
    problem = product(DTYPE_BF16, DTYPE_BF16, 1, 64, 64);
    problem.operand[OPERAND_A].ld = 65;
    cr_assert(plan_rows_are_aligned(&problem, aligned, 16), "one row: no other one to misalign");
}

/* Tensor copies to D have no place for them; threads that store do, by wgmma where it is worth it.
 */
Test(plan, gives_bias_and_activation_to_kernels_that_can)
{
    static const int64_t sizes[] = {64, 513, 4096};

    for (size_t i = 0; i < ARRAY_SIZE(sizes) * 2; i++) {
        struct problem problem =
            product(DTYPE_BF16, DTYPE_BF16, sizes[i / 2], sizes[i / 2], sizes[i / 2]);
        struct plan plan;

        problem.bias = i % 2 ? BIAS_PER_COLUMN : BIAS_NONE;
        problem.activation = i % 2 ? ACTIVATION_NONE : ACTIVATION_GELU;
        plan = choose(&problem, aligned);
        cr_expect_neq(plan.config.copy, CONFIG_COPY_TMA);
        if (sizes[i / 2] == 4096)
            cr_expect_eq(plan.config.family, CONFIG_HOPPER);
        problem.input = problem.output = DTYPE_FP32;
        cr_expect_neq(choose(&problem, aligned).config.family, CONFIG_HOPPER);
    }
}

Test(plan, names_the_operand_that_prevents_wide_copies)
{
    struct problem problem = product(DTYPE_FP32, DTYPE_FP32, 64, 64, 64);

    problem.operand[OPERAND_B].ld = 65;
    cr_assert_not_null(strstr(choose(&problem, aligned).reason, "rows of b"));
}

Test(plan, survives_the_largest_problem_that_can_be_named)
{
    struct problem problem = product(DTYPE_INT8, DTYPE_INT32, 1ll << 40, 1ll << 40, 1ll << 40);
    struct plan plan;

    problem.batch = 1ll << 40;
    plan = choose(&problem, aligned);
    cr_assert_gt(plan.predicted_seconds, 0);
    cr_assert_eq(plan.tiles, UINT64_MAX);
}

Test(plan, sends_everything_to_the_blas_of_a_cpu)
{
    struct plan_device cpu = {.is_cpu = true, .multiprocessors = 2};
    struct problem problem = product(DTYPE_FP64, DTYPE_FP64, 33, 65, 7);
    struct fault fault = FAULT_NONE;
    struct plan plan;
    char text[CONFIG_TEXT_MAX];

    problem.trans_b = true;
    cr_assert_eq(plan_choose(&problem, aligned, &cpu, &plan, &fault), STATUS_OK);
    config_to_text(&plan.config, text);
    cr_assert_str_eq(text, "cpu.fp64.fp64.nt");
}

Test(plan, refuses_an_architecture_it_has_no_kernel_for)
{
    struct plan_device device = h200;
    struct problem problem = product(DTYPE_BF16, DTYPE_BF16, 64, 64, 64);
    struct fault fault = FAULT_NONE;
    struct plan plan;

    device.arch = 0;
    cr_assert_eq(plan_choose(&problem, aligned, &device, &plan, &fault), STATUS_UNSUPPORTED);
    cr_assert_not_null(strstr(fault.message, "architecture"));
    device = h200;
    device.shared_memory_per_block = 512;
    cr_assert_eq(plan_choose(&problem, aligned, &device, &plan, &fault), STATUS_UNSUPPORTED);
}
