/*
 * gemmd-bench's own arithmetic: a figure is worth what its statistics, its loop and its table are.
 */
#include "../bench/flow.h"
#include "../bench/kernels_table.h"
#include "../bench/service_rows.h"
#include "../bench/shapes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- statistics ------------------------------------------------------------------------------ */

Test(bench, takes_percentiles_of_unsorted_samples)
{
    double values[101];
    struct samples samples = {values, 101};

    for (int i = 0; i <= 100; i++)
        values[i] = (i * 37) % 101;
    cr_expect_eq(samples_percentile(&samples, 0), 0);
    cr_expect_eq(samples_median(&samples), 50);
    cr_expect_eq(samples_percentile(&samples, 99), 99);
    cr_expect_eq(samples_percentile(&samples, 100), 100);
}

Test(bench, has_no_percentile_of_nothing)
{
    struct samples samples = {0};

    cr_expect(isnan(samples_median(&samples)));
}

Test(bench, fills_with_data_that_a_benchmark_is_worth_something_with)
{
    enum { COUNT = 4096 };

    static float values[COUNT], again[COUNT];
    double sum = 0;

    bench_fill(DTYPE_FP32, values, COUNT, 7);
    bench_fill(DTYPE_FP32, again, COUNT, 7);
    for (int i = 0; i < COUNT; i++) {
        cr_assert(fabsf(values[i]) <= 1);
        sum += fabs((double)values[i]);
    }
    cr_expect_float_eq(sum / COUNT, 0.5, 0.05);
    cr_expect_eq(memcmp(values, again, sizeof(values)), 0);
}

/* --- options --------------------------------------------------------------------------------- */

Test(bench, reads_shapes)
{
    struct shape shape;

    cr_assert(shape_from_text("3x40x500", "fp16", "tn", &shape));
    cr_expect_eq(shape.m, 3);
    cr_expect_eq(shape.n, 40);
    cr_expect_eq(shape.k, 500);
    cr_expect_eq(shape.dtype, DTYPE_FP16);
    cr_expect(shape.trans_a);
    cr_expect_not(shape.trans_b);
    cr_expect_eq(shape_flop(&shape), 2.0 * 3 * 40 * 500);
}

Test(bench, refuses_what_is_no_shape)
{
    static const char *const wrong[][3] = {
        {"", "bf16", "nt"},      {"4x4", "bf16", "nt"},    {"4x4x4x4", "bf16", "nt"},
        {"4x0x4", "bf16", "nt"}, {"4x-4x4", "bf16", "nt"}, {"4x4x4 ", "bf16", "nt"},
        {"4x4x4", "bf17", "nt"}, {"4x4x4", "int32", "nt"}, {"4x4x4", "none", "nt"},
        {"4x4x4", "bf16", "n"},  {"4x4x4", "bf16", "nx"},  {"4x4x4", "bf16", "ntn"},
    };
    struct shape shape;

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        cr_expect_not(shape_from_text(wrong[i][0], wrong[i][1], wrong[i][2], &shape), "%s %s %s",
                      wrong[i][0], wrong[i][1], wrong[i][2]);
}

Test(bench, lays_operands_out_aligned)
{
    struct shape shape = {.dtype = DTYPE_INT8, .m = 3, .n = 5, .k = 7};
    size_t bytes[3];

    shape_bytes(&shape, bytes);
    cr_expect_eq(bytes[0], 256);
    cr_expect_eq(bytes[2], 256);
    shape.m = 100;
    shape_bytes(&shape, bytes);
    cr_expect_eq(bytes[2], 2048); /* 100 x 5 int32 */
}

Test(bench, knows_its_options)
{
    char *right[] = {"share", "--procs", "4", "--alone", "--seconds", "1"};
    char *unknown[] = {"share", "--proc", "4"};
    char *part[] = {"share", "--seconds", "1", "in-flight"};
    char *no_value[] = {"share", "--alone", "--procs"};
    const char *names = "procs seconds in-flight alone?";

    cr_expect(bench_options_are_known(6, right, names));
    cr_expect_not(bench_options_are_known(3, unknown, names));
    cr_expect_not(bench_options_are_known(4, part, names));
    cr_expect_not(bench_options_are_known(3, no_value, names));
    cr_expect(bench_flag(6, right, "--alone"));
    cr_expect_eq(bench_option_number(6, right, "--procs", 1), 4);
    cr_expect_eq(bench_option_number(6, right, "--in-flight", 9), 9);
}

/* --- the loop -------------------------------------------------------------------------------- */

/* A device that takes a second for each product, one after the other. */
struct slow {
    double finished_at[FLOW_IN_FLIGHT_MAX], idle_from;
    size_t under_way, most;
    int fails_after; /* starts; negative: never */
};

static double slow_clock;

static double slow_now(void)
{
    return slow_clock;
}

static int slow_start(void *context, size_t slot)
{
    struct slow *slow = context;

    if (slow->fails_after-- == 0)
        return 5;
    slow->idle_from = fmax(slow->idle_from, slow_clock) + 1;
    slow->finished_at[slot] = slow->idle_from;
    slow->under_way++;
    slow->most = MAX(slow->most, slow->under_way);
    return 0;
}

static int slow_finish(void *context, size_t slot, double *ret_device_seconds)
{
    struct slow *slow = context;

    slow_clock = fmax(slow_clock, slow->finished_at[slot]);
    slow->under_way--;
    *ret_device_seconds = 1;
    return 0;
}

static int run_slow(struct slow *slow, size_t in_flight, double seconds, struct flow_figures *f)
{
    struct flow_engine engine = {slow, slow_start, slow_finish, slow_now};

    slow_clock = 1000;
    cr_assert_eq(flow_figures_init(f), 0);
    return flow_run(&engine, in_flight, seconds, f);
}

Test(bench, counts_what_finishes_in_time)
{
    cleanup(flow_figures_deinit) struct flow_figures figures;
    struct slow slow = {.fails_after = -1};

    cr_assert_eq(run_slow(&slow, 1, 10, &figures), 0);
    cr_expect_eq(figures.products, 10);
    cr_expect_float_eq(figures.seconds, 10, 1e-9);
    cr_expect_float_eq(figures.device_seconds, 10, 1e-9);
    cr_expect_float_eq(samples_median(&figures.latencies), 1, 1e-9);
}

Test(bench, keeps_as_many_under_way_as_asked_and_none_at_the_end)
{
    cleanup(flow_figures_deinit) struct flow_figures figures;
    struct slow slow = {.fails_after = -1};

    cr_assert_eq(run_slow(&slow, 4, 10, &figures), 0);
    cr_expect_eq(slow.most, 4);
    cr_expect_eq(slow.under_way, 0);
    cr_expect_eq(figures.products, 10, "the rate is the device's, not four times it");
    cr_expect_float_eq(samples_percentile(&figures.latencies, 99), 4, 1e-9);
}

Test(bench, counts_a_product_that_takes_longer_than_the_round)
{
    cleanup(flow_figures_deinit) struct flow_figures figures;
    struct slow slow = {.fails_after = -1};

    cr_assert_eq(run_slow(&slow, 2, 0.25, &figures), 0);
    cr_expect_eq(figures.products, 1);
    cr_expect_float_eq(figures.seconds, 1, 1e-9);
}

Test(bench, stops_at_a_failure)
{
    cleanup(flow_figures_deinit) struct flow_figures figures;
    struct slow slow = {.fails_after = 3};

    cr_expect_eq(run_slow(&slow, 1, 10, &figures), 5);
}

/* --- figures and table ----------------------------------------------------------------------- */

Test(bench, finds_figures_by_measurement_and_column)
{
    static struct figures figures;
    static const char *const lines[] = {
        "# measurement,of,people",
        "stray,1,2",
        "measurement,shape,p50_us,empty",
        "share,4x4x4,12.5,",
        "",
        "share-mps,4x4x4,9.25,",
        "measurement,compile_ms",
        "compile,300.5",
        "compile,299",
    };

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        figures_take(&figures, lines[i]);
    cr_expect_eq(figures_find(&figures, "share", "p50_us"), 12.5);
    cr_expect_eq(figures_find(&figures, "share-mps", "p50_us"), 9.25);
    cr_expect_eq(figures_find(&figures, "compile", "compile_ms"), 300.5, "the slowest");
    cr_expect(isnan(figures_find(&figures, "share", "empty")));
    cr_expect(isnan(figures_find(&figures, "share", "shape")), "4x4x4 is no number");
    cr_expect(isnan(figures_find(&figures, "stray", "p50_us")));
}

Test(bench, passes_over_lines_that_are_too_much)
{
    static struct figures figures;
    char line[4096] = "measurement,", *at = line + strlen(line);

    for (int i = 0; i < 400; i++)
        at += sprintf(at, "column%d,", i);
    figures_take(&figures, line);
    for (int i = 0; i < 2 * FIGURES_MAX; i++)
        figures_take(&figures, "row,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,"
                               "25,26,27,28,29,30,31,32,33,34");
    cr_expect_eq(figures.count, FIGURES_MAX);
    cr_expect_eq(figures_find(&figures, "row", "column0"), 1);
}

Test(bench, judges_each_kind_of_goal)
{
    static const struct {
        struct table_row row;
        enum table_verdict verdict;
    } cases[] = {
        {{.ours = 39, .peer = NAN, .kind = GOAL_AT_MOST, .goal = 40}, TABLE_MET},
        {{.ours = 41, .peer = 1, .kind = GOAL_AT_MOST, .goal = 40}, TABLE_MISSED},
        {{.ours = 0, .peer = NAN, .kind = GOAL_AT_MOST, .goal = 0}, TABLE_MET},
        {{.ours = 0.96, .peer = NAN, .kind = GOAL_AT_LEAST, .goal = 0.95}, TABLE_MET},
        {{.ours = 44, .peer = NAN, .kind = GOAL_WITHIN, .goal = 45, .goal_high = 55}, TABLE_MISSED},
        {{.ours = 55, .peer = NAN, .kind = GOAL_WITHIN, .goal = 45, .goal_high = 55}, TABLE_MET},
        {{.ours = 56, .peer = NAN, .kind = GOAL_WITHIN, .goal = 45, .goal_high = 55}, TABLE_MISSED},
        {{.ours = 20, .peer = 46, .kind = GOAL_AT_MOST_PEER, .goal = 0.5}, TABLE_MET},
        {{.ours = 24, .peer = 46, .kind = GOAL_AT_MOST_PEER, .goal = 0.5}, TABLE_MISSED},
        {{.ours = 705, .peer = 704, .kind = GOAL_AT_LEAST_PEER, .goal = 1}, TABLE_MET},
        {{.ours = 705, .peer = NAN, .kind = GOAL_AT_LEAST_PEER, .goal = 1}, TABLE_NO_PEER},
        {{.ours = NAN, .peer = 704, .kind = GOAL_AT_LEAST_PEER, .goal = 1}, TABLE_NOT_MEASURED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(table_judge(&cases[i].row), cases[i].verdict, "case %zu", i);
}

Test(bench, prints_a_table_that_csv_readers_read)
{
    const struct table_row row = {.name = "16 clients, aggregate",
                                  .unit = "TFLOP/s",
                                  .peer = 704.25,
                                  .ours = 1234.5,
                                  .kind = GOAL_AT_LEAST_PEER,
                                  .goal = 1};
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    table_print_csv(file, &row, 1);
    (void)fclose(file);
    cr_expect_str_eq(text, "measurement,unit,peer,ours,goal,verdict,later\n"
                           "\"16 clients, aggregate\",TFLOP/s,704.2,1234,>= 1 x peer,met,0\n");
    free(text);
}

Test(bench, fills_rows_from_the_parts)
{
    static struct figures figures[PART_COUNT];
    struct table_row rows[SERVICE_ROWS_MAX];

    figures_take(&figures[PART_LATENCY], "measurement,p50_us");
    figures_take(&figures[PART_LATENCY], "latency,35.5");
    figures_take(&figures[PART_SHARE_ONE], "measurement,worst_p50_us");
    figures_take(&figures[PART_SHARE_ONE], "share-sliced,16.5");
    size_t count = service_rows(figures, rows);

    cr_assert_gt(count, 10);
    cr_expect_eq(rows[0].ours, 35.5);
    cr_expect_eq(rows[0].peer, 16.5);
    cr_expect_eq(table_judge(&rows[0]), TABLE_MET);
    for (size_t i = 1; i < count; i++) {
        if (!rows[i].is_later)
            cr_expect_eq(table_judge(&rows[i]), TABLE_NOT_MEASURED, "%s", rows[i].name);
    }
}

Test(bench, shows_what_stands_behind_a_missed_row)
{
    static struct figures figures[PART_COUNT];
    struct table_row rows[SERVICE_ROWS_MAX];
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    figures_take(&figures[PART_LATENCY], "measurement,p50_us");
    figures_take(&figures[PART_LATENCY], "latency,35.5");
    figures_take(&figures[PART_COLD], "measurement,p50_ms");
    figures_take(&figures[PART_COLD], "cold,2.5");
    figures_take(&figures[PART_COLD], "measurement,exec_ms,connect_ms");
    figures_take(&figures[PART_COLD], "cold-stages,0.8,0.2");
    figures_take(&figures[PART_COLD], "cold-other,1,1");
    size_t count = service_rows(figures, rows);
    service_print_stages(file, figures, rows, count);
    (void)fclose(file);
    cr_expect_str_eq(text, "\nwhat stands behind the missed ones\n"
                           "  cold process to its first result, daemon warm, p50: p50_ms 2.5 "
                           "exec_ms 0.8 connect_ms 0.2\n");
    free(text);
}

/* --- the kernels' table ---------------------------------------------------------------------- */

static struct kernels_row kernels_row(const char *group, double ours, double peer, double tuned)
{
    struct kernels_row row = {.shape = {.dtype = DTYPE_BF16, .m = 16, .n = 16, .k = 16},
                              .config = "some.config",
                              .ours = ours,
                              .first = peer,
                              .best = peer,
                              .tuned = tuned};

    (void)snprintf(row.shape.group, sizeof(row.shape.group), "%s", group);
    return row;
}

static char *summary_of(const struct kernels_row *rows, size_t count, bool *ret_is_met)
{
    static char text[4096];
    struct goals goals;
    FILE *file = fmemopen(text, sizeof(text), "w");

    goals_default(&goals);
    *ret_is_met = kernels_table_summary(file, "# ", rows, count, &goals);
    (void)fclose(file);
    return text;
}

Test(bench, knows_the_goals_of_each_group_and_their_exceptions)
{
    struct shape shape = {.group = "prefill", .m = 512, .n = 4096, .k = 7168};
    struct goals goals;

    goals_default(&goals);
    cr_expect_eq(goals_of_group(&goals, "prefill")->mean, 1.04);
    cr_expect_eq(goals_floor(&goals, &shape), 0.97);
    shape.m = 4096;
    shape.n = 2112;
    cr_expect_eq(goals_floor(&goals, &shape), 0.92);
    cr_expect(isnan(goals_of_group(&goals, "random-aligned")->mean));
    cr_expect(goals_of_group(&goals, "fp8")->is_later);
    cr_expect_null(goals_of_group(&goals, "no such group"));
    (void)snprintf(shape.group, sizeof(shape.group), "no such group");
    cr_expect(isnan(goals_floor(&goals, &shape)));
}

Test(bench, judges_each_row_by_its_floor_and_each_group_by_its_mean)
{
    struct kernels_row rows[] = {kernels_row("square", 1.0, 1.10, 0), /* mean 1.04 */
                                 kernels_row("square", 1.0, 0.99, 0)};
    bool is_met;

    cr_expect_not_null(strstr(summary_of(rows, 2, &is_met), "met\n"));
    cr_expect(is_met);
    rows[1].best = 0.96; /* below the floor, though the mean would do */
    rows[0].best = 1.30;
    cr_expect_not_null(strstr(summary_of(rows, 2, &is_met), "missed\n"));
    cr_expect_not(is_met);
    rows[0].best = rows[1].best = 1.0; /* no row is too low, the mean is */
    (void)summary_of(rows, 2, &is_met);
    cr_expect_not(is_met);
}

Test(bench, does_not_judge_what_is_for_later_nor_what_has_no_peer)
{
    struct kernels_row rows[] = {kernels_row("int8", 2.0, 1.0, 0),
                                 kernels_row("square", 2.0, 0, 0)};
    bool is_met;

    cr_expect_not_null(strstr(summary_of(rows, 2, &is_met), "later\n"));
    cr_expect(is_met);
}

Test(bench, judges_first_choices_against_the_best_that_was_tried)
{
    struct kernels_row rows[] = {kernels_row("a", 1.0, 0, 1.0), kernels_row("b", 1.0, 0, 0.95)};
    bool is_met;

    cr_expect_not_null(strstr(summary_of(rows, 2, &is_met), "2 rows: 0.975, goal 0.960: met\n"));
    cr_expect(is_met);
    rows[1].tuned = 0.5;
    (void)summary_of(rows, 2, &is_met);
    cr_expect_not(is_met);
}

Test(bench, reads_back_the_rows_that_it_wrote)
{
    static struct kernels_row read[SHAPES_MAX];
    struct kernels_row row = kernels_row("decode", 20e-6, 25e-6, 19e-6);
    char path[] = "/tmp/bench-rows-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    struct goals goals;
    size_t count;

    goals_default(&goals);
    row.shape.trans_b = true;
    row.error = 0.25;
    row.clock_mhz = 1500;
    fprintf(file, "# a comment\n");
    kernels_table_header(file);
    kernels_table_row(file, &row, &goals);
    fprintf(file, "square,bf16,nt,4096,4096,4096,older,204.20,206.90,202.60,0.9921,,0.199\n");
    (void)fclose(file);
    cr_assert_eq(kernels_table_read(path, read, &count), 0);
    (void)unlink(path);

    cr_assert_eq(count, 2);
    cr_expect_str_eq(read[0].shape.group, "decode");
    cr_expect_str_eq(read[0].config, "some.config");
    cr_expect(read[0].shape.trans_b && !read[0].shape.trans_a);
    cr_expect_float_eq(read[0].ours, row.ours, 1e-9);
    cr_expect_float_eq(read[0].tuned, row.tuned, 1e-9);
    cr_expect_eq(read[0].clock_mhz, 1500);
    cr_expect_float_eq(kernels_row_ratio(&read[1]), 0.9921, 1e-3);
    cr_expect_eq(read[1].tuned, 0);
}

/* --- random products ------------------------------------------------------------------------- */

Test(bench, draws_the_same_products_for_the_same_seed)
{
    enum { COUNT = 200 };

    static struct shape first[COUNT], again[COUNT], other[COUNT];
    size_t layouts = 0, sixteens = 0, decades[5] = {0};

    shapes_random(COUNT, 7, false, first);
    shapes_random(COUNT, 7, false, again);
    shapes_random(COUNT, 8, true, other);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(first[i].m, again[i].m);
        cr_assert(first[i].m >= 1 && first[i].m <= 16384 && first[i].k >= 1 && first[i].k <= 16384);
        cr_assert(!first[i].trans_a && first[i].trans_b && first[i].dtype == DTYPE_BF16);
        sixteens += first[i].m % 16 == 0 && first[i].n % 16 == 0 && first[i].k % 16 == 0;
        layouts |= 1u << (other[i].trans_a * 2 + other[i].trans_b);
        decades[(size_t)log10((double)first[i].n)] += i % 2 == 0; /* rounded up, few are small */
    }
    cr_expect(sixteens >= COUNT / 2 && sixteens < COUNT * 6 / 10);
    cr_expect_eq(layouts, 15u);
    for (size_t i = 0; i < 4; i++) /* log-uniform: about as many in each */
        cr_expect(decades[i] > COUNT / 16, "%zu of 10^%zu", decades[i], i);
}

Test(bench, groups_random_products_by_the_alignment_of_every_row)
{
    static struct shape shapes[100];

    shapes_random(ARRAY_SIZE(shapes), 3, false, shapes);
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        bool is_aligned = shapes[i].k % 8 == 0 && shapes[i].n % 8 == 0;

        cr_expect_str_eq(shapes[i].group, is_aligned ? "random-aligned" : "random-unaligned");
    }
}
