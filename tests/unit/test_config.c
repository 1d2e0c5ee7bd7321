#include "../../daemon/plan/config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const uint32_t archs[] = {80, 86, 87, 89, 90, 100, 103, 120};

/* What the driver grants a CTA at most, by opt-in, and what a multiprocessor has in all. */
static uint32_t shared_memory_limit(uint32_t arch)
{
    if (arch == 90)
        return 227 * 1024;
    return arch == 86 || arch == 89 || arch == 120 ? 99 * 1024 : 163 * 1024;
}

Test(config, lists_no_more_than_the_budget_and_every_dtype_layout_and_copy)
{
    struct config configs[CONFIG_LIST_MAX];

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        size_t count = config_list(archs[a], configs);

        cr_assert_leq(count, CONFIG_LIST_MAX);
        if (archs[a] != 90)
            cr_assert_eq(count, 7u * 4 * 2 * 2);
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < i; j++)
                cr_assert_not(config_equal(&configs[i], &configs[j]));
    }
    cr_assert_eq(config_list(75, configs), 0);
}

Test(config, lists_the_hopper_family_on_nine_zero_alone)
{
    struct config configs[CONFIG_LIST_MAX];

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        size_t count = config_list(archs[a], configs), hopper = 0, layouts = 0;

        for (size_t i = 0; i < count; i++) {
            bool is_hopper = configs[i].family == CONFIG_HOPPER;

            hopper += is_hopper;
            layouts |= is_hopper ? 1u << (configs[i].trans_a * 2 + configs[i].trans_b) : 0;
            cr_expect_eq(is_hopper, configs[i].schedule >= CONFIG_SCHEDULE_TILED);
            cr_expect(is_hopper || configs[i].cluster_m * configs[i].cluster_n == 1);
        }
        cr_expect_eq(hopper > 0, archs[a] == 90);
        cr_expect_eq(layouts, archs[a] == 90 ? 0xf : 0);
    }
}

static bool is_of_kind(const struct config *config, const struct config *kind)
{
    return config->input == kind->input && config->output == kind->output &&
           config->trans_a == kind->trans_a && config->trans_b == kind->trans_b;
}

/* Without clusters no hopper configuration of the largest tile is planned: those are the ladder. */
static bool is_ladder(const struct config *config)
{
    return config->family == CONFIG_HOPPER && config->cluster_m * config->cluster_n == 1 &&
           config->tile_m == 128 && config->tile_n == 256;
}

Test(config, plans_what_it_lists_of_a_kind_but_the_lower_steps_of_the_ladder)
{
    struct config configs[CONFIG_LIST_MAX], planned[CONFIG_PLANNED_MAX];

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        size_t count = config_list(archs[a], configs);

        for (size_t k = 0; k < count; k++) {
            size_t planned_count = config_list_planned(&configs[k], planned), at = 0;

            for (size_t i = 0; i < count; i++) {
                if (!is_of_kind(&configs[i], &configs[k]) || is_ladder(&configs[i]))
                    continue;
                cr_assert_lt(at, planned_count);
                cr_assert(config_equal(&configs[i], &planned[at++]));
            }
            cr_assert_eq(at, planned_count);
        }
    }
}

Test(config, plans_nothing_for_what_it_does_not_know)
{
    struct config planned[CONFIG_PLANNED_MAX];
    struct config unknown_arch = {.arch = 75, .input = DTYPE_BF16, .output = DTYPE_BF16};
    struct config unknown_pair = {.arch = 90, .input = DTYPE_BF16, .output = DTYPE_INT32};

    cr_expect_eq(config_list_planned(&unknown_arch, planned), 0);
    cr_expect_eq(config_list_planned(&unknown_pair, planned), 0);
}

/* A box is what one copy instruction moves: the hardware takes at most 256 rows, and rows of the
 * swizzle's 128 bytes. */
Test(config, boxes_are_rows_of_the_swizzle_and_cover_the_tile)
{
    struct config configs[CONFIG_LIST_MAX];
    struct config_resources resources;
    size_t count = config_list(90, configs);

    for (size_t i = 0; i < count; i++) {
        const struct config *config = &configs[i];
        const struct config_box *box = resources.box;

        config_resources(config, &resources);
        if (config->family != CONFIG_HOPPER || config->copy == CONFIG_COPY_REALIGN ||
            config_streams(config) || config_is_direct(config)) {
            cr_expect_eq(box[CONFIG_BOX_A].columns, 0);
            continue;
        }
        cr_expect_eq(box[CONFIG_BOX_A].columns * 2, 128);
        bool is_whole = !resources.repacks && !config_is_split(config);
        bool has_out = config->output == DTYPE_FP32;

        cr_expect_eq(box[CONFIG_BOX_C].columns, 0);
        cr_expect_eq(box[CONFIG_BOX_D].columns * (config->output == DTYPE_FP32 ? 4 : 2),
                     is_whole && has_out ? 128 : 0);
        for (int b = 0; b < CONFIG_BOX_COUNT; b++) {
            if (box[b].columns == 0)
                continue;
            cr_expect_geq(box[b].rows, 8);
            cr_expect_leq(box[b].rows, 256);
        }
        cr_expect_eq(box[CONFIG_BOX_A].rows * config->cluster_n,
                     config->trans_a ? config->tile_k : config->tile_m);
        cr_expect_eq(box[CONFIG_BOX_B].rows * config->cluster_m,
                     config->trans_b ? config->tile_n : config->tile_k);
    }
}

Test(config, text_and_struct_convert_both_ways_without_loss)
{
    struct config configs[CONFIG_LIST_MAX], back;
    char text[CONFIG_TEXT_MAX];

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        size_t count = config_list(archs[a], configs);

        for (size_t i = 0; i < count; i++) {
            config_to_text(&configs[i], text);
            cr_assert(config_from_text(text, &back), "%s", text);
            cr_assert(config_equal(&configs[i], &back), "%s", text);
        }
    }
}

Test(config, text_is_what_the_header_shows)
{
    struct config config;
    char text[CONFIG_TEXT_MAX];

    cr_assert(config_from_text("sm80.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16", &config));
    cr_assert_eq(config.arch, 80);
    cr_assert_eq(config.tile_n, 256);
    cr_assert(!config.trans_a && config.trans_b);
    cr_assert(config_from_text("cpu.int8.int32.tn", &config));
    cr_assert_eq(config.family, CONFIG_CPU);
    config_to_text(&config, text);
    cr_assert_str_eq(text, "cpu.int8.int32.tn");
}

Test(config, text_says_how_many_ctas_share_a_tile_and_that_operands_are_exchanged)
{
    struct config config = {.family = CONFIG_HOPPER,
                            .arch = 90,
                            .input = DTYPE_FP16,
                            .output = DTYPE_FP32,
                            .trans_b = true,
                            .tile_m = 16,
                            .tile_n = 64,
                            .tile_k = 64,
                            .stages = 12,
                            .cluster_m = 1,
                            .cluster_n = 1,
                            .cluster_k = 2,
                            .is_swapped = true,
                            .schedule = CONFIG_SCHEDULE_SPLIT,
                            .copy = CONFIG_COPY_TMA};
    char text[CONFIG_TEXT_MAX];

    config_to_text(&config, text);
    cr_expect_str_eq(text, "sm90a.fp16.fp32.nt.16x64x64.s12.c1x1x2.split.tma.swapped");
    config.cluster_k = 1;
    config.is_swapped = false;
    config_to_text(&config, text);
    cr_expect_str_eq(text, "sm90a.fp16.fp32.nt.16x64x64.s12.c1x1.split.tma");
}

/* The plan tells kinds of products apart, so each needs an answer of its own. */
Test(config, lists_something_for_every_kind_of_product_and_any_alignment)
{
    struct config configs[CONFIG_LIST_MAX];

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        size_t count = config_list(archs[a], configs), any_alignment = 0;
        uint32_t kinds[DTYPE_COUNT][DTYPE_COUNT] = {0};

        for (size_t i = 0; i < count; i++) {
            uint32_t layout = 1u << (configs[i].trans_a * 2 + configs[i].trans_b);
            bool is_element = configs[i].copy == CONFIG_COPY_ELEMENT;

            kinds[configs[i].input][configs[i].output] |= layout << (is_element ? 4 : 0);
        }
        for (size_t i = 0; i < (size_t)DTYPE_COUNT * DTYPE_COUNT; i++)
            any_alignment += kinds[i / DTYPE_COUNT][i % DTYPE_COUNT] == 0xff;
        cr_expect_eq(any_alignment, 7, "architecture %u", archs[a]);
    }
}

Test(config, refuses_every_text_that_is_not_canonical)
{
    static const char good[] = "sm80.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16";
    static const char *const bad[] = {
        "",
        ".",
        "sm90a",
        "cpu",
        "cpu.bf16.bf16",
        "cpu.bf16.int32.nn",
        "cpu.bf16.bf16.nn.",
        "sm90.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16",
        "sm90a.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16",
        "sm80.bf16.fp16.nt.128x256x32.s4.c1x1.mma.v16",
        "sm80.bf16.bf16.nt.0128x256x32.s4.c1x1.mma.v16",
        "sm80.bf16.bf16.nt.128x256x32.s4.c2x1.mma.v16",
        "sm80.bf16.bf16.nt.128x256x32.s4.c1x1x1.mma.v16",
        "sm80.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16.swapped",
        "sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.v16",
        "sm90a.bf16.bf16.nt.128x256x64.s4.c1x2.coop.tma",
        "sm80.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma",
        "sm80.bf16.bf16.nt.128x256x32.s99999999999.c1x1.mma.v16",
        " sm80.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16",
        "sm80.bf16.bf16.nt.128x256x32.s4.c1x1.mma.v16 ",
    };
    struct config config;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_expect_not(config_from_text(bad[i], &config), "%s", bad[i]);
    for (size_t i = 0; i < sizeof good - 1; i++) {
        char cut[sizeof good];

        memcpy(cut, good, sizeof good);
        cut[i] = 0;
        cr_expect_not(config_from_text(cut, &config), "%s", cut);
        memcpy(cut, good, sizeof good);
        cut[i] = '#';
        cr_expect_not(config_from_text(cut, &config), "%s", cut);
    }
}

Test(config, different_configurations_never_share_a_define_list)
{
    struct config configs[CONFIG_LIST_MAX];
    static struct config_defines defines[CONFIG_LIST_MAX];
    size_t count = config_list(90, configs);

    for (size_t i = 0; i < count; i++) {
        config_to_defines(&configs[i], &defines[i]);
        cr_assert_gt(defines[i].count, 0);
        for (size_t d = 0; d < defines[i].count; d++)
            cr_assert_eq(strncmp(defines[i].text[d], "-DGEMMD_", 8), 0);
        for (size_t j = 0; j < i; j++)
            cr_assert_neq(memcmp(&defines[i], &defines[j], sizeof defines[i]), 0);
    }
}

Test(config, resources_fit_every_architecture_and_the_promised_ctas)
{
    struct config configs[CONFIG_LIST_MAX];
    struct config_resources resources;

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        uint32_t limit = shared_memory_limit(archs[a]);
        size_t count = config_list(archs[a], configs);

        for (size_t i = 0; i < count; i++) {
            uint32_t ctas;

            config_resources(&configs[i], &resources);
            ctas = resources.ctas_per_multiprocessor;
            cr_assert_geq(ctas, 1);
            cr_assert_leq(resources.threads, 1024);
            cr_assert_leq(resources.shared_memory, limit);
            cr_assert_leq(ctas * (resources.shared_memory + 1024), limit + 1024);
            cr_assert_leq(ctas * resources.threads, 1536);
        }
    }
}

Test(config, finds_a_cubin_that_runs_on_the_device)
{
    static const struct {
        uint32_t major, minor, arch;
    } devices[] = {
        {7, 5, 0},    {8, 0, 80}, {8, 1, 80}, {8, 6, 86},   {8, 7, 87}, {8, 8, 86},
        {8, 9, 89},   {9, 0, 90}, {9, 1, 0},  {10, 0, 100}, {10, 1, 0}, {10, 3, 103},
        {12, 0, 120}, {13, 0, 0}, {0, 80, 0}, {4, 50, 0},   {0, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
        cr_expect_eq(config_arch_for_device(devices[i].major, devices[i].minor), devices[i].arch,
                     "%u.%u", devices[i].major, devices[i].minor);
}

Test(config, names_compiler_source_and_entry)
{
    struct config configs[CONFIG_LIST_MAX];

    cr_assert_str_eq(config_architecture(80), "sm_80");
    cr_assert_str_eq(config_architecture(90), "sm_90a");
    cr_assert_str_eq(config_architecture(100), "sm_100a");
    cr_assert_null(config_architecture(75));
    cr_assert_gt(config_list(80, configs), 0);
    cr_assert_str_eq(config_source(&configs[0]), "entry/gemm_portable.cu");
    cr_assert_str_eq(config_entry(&configs[0]), "gemm");
    cr_assert_eq(config_optimization(&configs[0]), 2);
}
