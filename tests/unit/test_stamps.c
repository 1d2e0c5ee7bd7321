/*
 * The figures of gemmd-bench ladder, from records made by hand: two groups that share a tile, a
 * clock that is a nanosecond.
 */
#include "../bench/ladder_steps.h"
#include "../bench/trace.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN 4294960000u /* the clocks' low word goes round during the launch */

static struct gemmd_stamps *stamps;
static size_t next[GEMMD_STAMP_LANES];

static void start(void)
{
    stamps = calloc(1, sizeof(*stamps));
    memset(next, 0, sizeof(next));
    cr_assert_not_null(stamps);
}

static void stop(void)
{
    free(stamps);
}

TestSuite(stamps, .init = start, .fini = stop);

static void add(int lane, uint32_t what, uint32_t clock0, uint32_t clock1, uint32_t clock2)
{
    stamps->records[0][lane][next[lane]++] =
        (struct gemmd_stamp){what, {BEGIN + clock0, BEGIN + clock1, BEGIN + clock2}};
}

static void span(uint32_t clocks)
{
    for (int lane = 0; lane < GEMMD_STAMP_LANES; lane++)
        stamps->spans[0][lane] = (struct gemmd_stamp_span){.begin_ns = 1000,
                                                           .end_ns = 1000 + clocks,
                                                           .begin_clock = BEGIN,
                                                           .end_clock = BEGIN + clocks};
}

static struct stamps_launch launch(void)
{
    return (struct stamps_launch){.ctas = 1,
                                  .multiprocessors = 1,
                                  .groups = 2,
                                  .stages = 2,
                                  .slot_bytes = 1024,
                                  .products_behind = 1,
                                  .k_tiles = 2,
                                  .k_tile_clocks = 500};
}

/* One tile of two K tiles: copies at 0 and 100, the first slot waited for until 1000, the second
 * found there at the look at 1100; products of the second behind those of the first. */
static void add_tile(void)
{
    uint32_t one_landed = 1u << GEMMD_STAMP_LANDED_SHIFT;

    add(GEMMD_STAMP_LOADER, GEMMD_STAMP_COPIES, 0, 0, 0);
    add(GEMMD_STAMP_LOADER, GEMMD_STAMP_COPIES, 100, 0, 0);
    for (int lane = GEMMD_STAMP_GROUP_0; lane <= GEMMD_STAMP_GROUP_1; lane++) {
        add(lane, GEMMD_STAMP_TILE_BEGIN, 10, 10, 1000);
        add(lane, GEMMD_STAMP_K_TILE | one_landed, 1100, 1105, 1110);
        add(lane, GEMMD_STAMP_K_TILE, 1200, 1500, 2100);
        add(lane, GEMMD_STAMP_TILE_END, 2500, 0, 0);
    }
    span(2500);
}

Test(stamps, give_the_figures_of_a_launch)
{
    struct stamps_launch of = launch();
    struct stamps_figures figures;

    add_tile();
    cr_assert(stamps_measure(stamps, &of, &figures));
    cr_expect_float_eq(figures.idle, 1 - 2 * 500 / 2500.0, 1e-9);
    cr_expect_float_eq(figures.unfed, 1 - 1100 / 2500.0, 1e-9);
    /* the first until 1000; the second seen at 1100 and not before its issue: in the middle */
    cr_expect_float_eq(figures.loads, (1000 + 500) / 2500.0, 1e-9);
    cr_expect_float_eq(figures.gap_clocks, 1100 / 2.0 - 500, 1e-9);
    cr_expect_float_eq(figures.clocks_per_ns, 1, 1e-9);
    cr_expect(!figures.is_cut);
}

Test(stamps, count_idle_multiprocessors)
{
    struct stamps_launch of = launch();
    struct stamps_figures figures;

    of.multiprocessors = 4;
    add_tile();
    cr_assert(stamps_measure(stamps, &of, &figures));
    cr_expect_float_eq(figures.idle, 1 - 2 * 500 / (4 * 2500.0), 1e-9);
}

Test(stamps, say_that_a_launch_has_more_ctas_than_they_have_room_for)
{
    struct stamps_launch of = launch();
    struct stamps_figures figures;

    add_tile();
    for (uint32_t cta = 1; cta < GEMMD_STAMP_CTAS; cta++) {
        memcpy(stamps->records[cta], stamps->records[0], sizeof(stamps->records[0]));
        memcpy(stamps->spans[cta], stamps->spans[0], sizeof(stamps->spans[0]));
    }
    of.ctas = GEMMD_STAMP_CTAS + 1;
    cr_assert(stamps_measure(stamps, &of, &figures));
    cr_expect(figures.is_cut);
    cr_expect_float_eq(figures.idle, 1 - 2 * 500 / 2500.0, 1e-9, "of the CTAs' own time");
}

Test(stamps, are_refused_out_of_order)
{
    struct stamps_launch of = launch();
    struct stamps_figures figures;

    add(GEMMD_STAMP_GROUP_0, GEMMD_STAMP_TILE_BEGIN, 10, 10, 20);
    add(GEMMD_STAMP_GROUP_0, GEMMD_STAMP_TILE_END, 30, 0, 0);
    cr_expect(!stamps_measure(stamps, &of, &figures));
}

Test(stamps, are_refused_when_there_are_none)
{
    struct stamps_launch of = launch();
    struct stamps_figures figures;

    cr_expect(!stamps_measure(stamps, &of, &figures));
}

Test(stamps, of_a_kernel_that_was_cut_lose_only_the_end)
{
    struct stamps_launch of = launch();
    static struct stamps_course course;

    of.k_tiles = 2 * GEMMD_STAMP_RECORDS;
    add(GEMMD_STAMP_GROUP_0, GEMMD_STAMP_TILE_BEGIN, 0, 0, 100);
    while (next[GEMMD_STAMP_LOADER] < GEMMD_STAMP_RECORDS - 1)
        add(GEMMD_STAMP_LOADER, GEMMD_STAMP_COPIES, 1, 0, 0);
    while (next[GEMMD_STAMP_GROUP_0] < GEMMD_STAMP_RECORDS - 1)
        add(GEMMD_STAMP_GROUP_0, GEMMD_STAMP_K_TILE, 110, 120, 130);
    cr_assert(stamps_read(stamps, &of, 0, &course));
    cr_expect(course.is_cut);
    cr_expect_eq(course.product_count[0], GEMMD_STAMP_RECORDS - 3, "those seen to end");
}

Test(stamps, are_refused_with_more_k_tiles_than_a_tile_has)
{
    struct stamps_launch of = launch();
    struct stamps_figures figures;

    add(GEMMD_STAMP_GROUP_0, GEMMD_STAMP_TILE_BEGIN, 10, 10, 20);
    for (int i = 0; i < 3; i++)
        add(GEMMD_STAMP_GROUP_0, GEMMD_STAMP_K_TILE, 30, 40, 50);
    cr_expect(!stamps_measure(stamps, &of, &figures));
}

Test(stamps, name_every_step_of_the_list)
{
    struct ladder_step steps[LADDER_STEPS];

    cr_assert(ladder_steps(steps));
    for (size_t i = 1; i < LADDER_STEPS; i++)
        cr_expect(!config_equal(&steps[i - 1].config, &steps[i].config), "%s", steps[i].name);
    cr_expect_eq(ladder_launch(&steps[6].config, 4096, 132, 132).k_tile_clocks, 1024);
    cr_expect_eq(ladder_launch(&steps[6].config, 4097, 132, 132).k_tiles, 65);
}
