/*
 * The table of gemmctl selftest: rows are types and layouts, columns kinds of shapes.
 */
#include "gemmctl_selftest.h"

#include <math.h>
#include <string.h>

#define DETAILS_MAX 16 /* printed after the table; more would repeat them */

static const char *const kinds[] = {"aligned", "odd",     "tiny", "k=0",
                                    "batch",   "stride0", "beta", "fused"};

enum { ALIGNED, ODD, TINY, K_0, BATCH, STRIDE_0, BETA, FUSED, KIND_COUNT };

static const struct {
    enum dtype input, output;
} pairs[] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

/* Sizes around tiles and pipelines: one off them, shorter than they are, much longer. */
static const struct selftest_shape shapes[] = {
    {ALIGNED, 128, 192, 64, 1, 0, .is_quick = true},
    {ALIGNED, 256, 256, 256, 1, 0, .batch = 1},
    {ALIGNED, 512, 384, 1024, 1, 0, .batch = 1},
    {ODD, 127, 129, 65, 1, 0, .padding = 3, .offset = 1, .is_quick = true},
    {ODD, 33, 257, 20, -0.75, 0, .padding = 1},
    {ODD, 9, 130, 576, 1, 1, .padding = 5, .offset = 3},
    {ODD, 261, 67, 63, 1, 0, .batch = 1},
    {TINY, 1, 1, 1, 1, 0, .is_quick = true},
    {TINY, 1, 7, 24, 2, 0, .padding = 1},
    {TINY, 7, 9, 3, 1, -1, .offset = 1},
    {TINY, 5, 1, 2000, 1, 0, .batch = 1},
    {K_0, 65, 37, 0, 1, 0, .is_quick = true},
    {K_0, 65, 37, 0, 1, 2, .padding = 2, .is_quick = true},
    {K_0, 3, 1025, 0, 1, 1, .batch = 3},
    {K_0, 64, 64, 64, 0, 0, .batch = 1},  /* alpha = 0: A and B stay NaN */
    {K_0, 33, 31, 17, 0, -3, .batch = 1}, /* the same, D = beta C */
    {BATCH, 65, 66, 67, 1, 0, .batch = 3, .padding = 1, .is_quick = true},
    {BATCH, 64, 128, 64, 1, 0.5, .batch = 4},
    {BATCH, 2, 3, 40, 1, 0, .batch = 33, .offset = 1},
    {STRIDE_0, 48, 80, 33, 1, 0, .batch = 3, .is_b_shared = true, .is_quick = true},
    {STRIDE_0, 48, 80, 64, 1, 0, .batch = 3, .is_a_shared = true},
    {STRIDE_0, 17, 19, 23, 1, 1, .batch = 5, .padding = 2, .is_a_shared = true,
     .is_b_shared = true},
    {BETA, 96, 80, 40, -0.75, 2, .is_quick = true},
    {BETA, 130, 66, 96, 1, 1, .padding = 2, .is_in_place = true, .is_quick = true},
    {BETA, 64, 64, 128, 3, -1, .batch = 2, .is_in_place = true},
    {FUSED, 96, 80, 40, 1, 0, .bias = BIAS_PER_COLUMN, .activation = ACTIVATION_GELU,
     .is_quick = true},
    {FUSED, 33, 70, 20, 2, 1, .padding = 1, .is_in_place = true, .bias = BIAS_PER_ROW,
     .activation = ACTIVATION_SILU},
    {FUSED, 128, 72, 64, 1, 0, .batch = 2, .bias = BIAS_PER_ROW, .is_bias_shared = true,
     .activation = ACTIVATION_RELU},
    {FUSED, 65, 37, 0, 1, 0, .batch = 2, .offset = 1, .bias = BIAS_PER_COLUMN,
     .activation = ACTIVATION_GELU_TANH},
};

struct cell {
    double worst;
    int products;
    char detail[SELFTEST_DETAIL_MAX];
};

struct table {
    struct selftest test;
    bool quick, as_json;
    bool is_right;
    int products, done; /* of all */
    size_t details;
    char detail[DETAILS_MAX][SELFTEST_DETAIL_MAX + 80];
};

static bool takes_part(const struct table *table, const struct selftest_shape *shape)
{
    return !table->quick || shape->is_quick;
}

static void types_to_text(const struct selftest_types *types, char *ret_text, size_t size)
{
    (void)snprintf(ret_text, size, "%s %s %c%c", dtype_name(types->input),
                   dtype_name(types->output), types->trans_a ? 't' : 'n',
                   types->trans_b ? 't' : 'n');
}

static void
run_cell(struct table *table, const struct selftest_types *types, int kind, struct cell *ret_cell)
{
    struct cell cell = {0};
    char text[64];

    types_to_text(types, text, sizeof(text));
    for (size_t i = 0; i < ARRAY_SIZE(shapes) && !table->test.is_lost; i++) {
        const struct selftest_shape *shape = &shapes[i];
        char detail[SELFTEST_DETAIL_MAX] = "";
        double ratio;

        if (shape->kind != kind || !takes_part(table, shape))
            continue;
        ctl_progress(table->test.ctl, "%d of %d  %s %s", ++table->done, table->products, text,
                     kinds[kind]);
        ratio = selftest_run(&table->test, types, shape, detail);
        cell.products++;
        if (ratio > cell.worst) {
            cell.worst = ratio;
            memcpy(cell.detail, detail, sizeof(detail));
        }
    }
    *ret_cell = cell;
}

/* --- output ---------------------------------------------------------------------------------- */

static void print_json_text(const char *text)
{
    (void)putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            (void)putchar('\\');
        (void)putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    (void)putchar('"');
}

static void print_json_cell(const struct selftest_types *types,
                            int kind,
                            const struct cell *cell,
                            bool is_first)
{
    (void)printf("%s\n    {\"input\": \"%s\", \"output\": \"%s\", \"layout\": \"%c%c\", "
                 "\"shape\": \"%s\", \"products\": %d, \"right\": %s, \"error_over_bound\": ",
                 is_first ? "" : ",", dtype_name(types->input), dtype_name(types->output),
                 types->trans_a ? 't' : 'n', types->trans_b ? 't' : 'n', kinds[kind],
                 cell->products, cell->worst <= 1 ? "true" : "false");
    if (isfinite(cell->worst))
        (void)printf("%.6g", cell->worst);
    else
        (void)printf("null");
    (void)printf(", \"detail\": ");
    print_json_text(cell->detail);
    (void)putchar('}');
}

static void print_cell(const struct cell *cell)
{
    if (cell->products == 0)
        (void)printf("%9s", "-");
    else if (cell->worst <= 1)
        (void)printf("%9.3f", cell->worst);
    else if (cell->worst < 1e4)
        (void)printf("%8.1f!", cell->worst);
    else
        (void)printf("%9s", "wrong!");
}

static void print_head(const struct table *table, const gemmd_info *info)
{
    const char *memory = table->test.memory == GEMMD_DEVICE ? "device" : "host";

    if (table->as_json) {
        (void)printf("{\n  \"device\": ");
        print_json_text(info->device);
        (void)printf(",\n  \"device_kind\": \"%s\",\n  \"memory\": \"%s\",\n  \"cells\": [",
                     info->device_kind, memory);
        return;
    }
    (void)printf("%s (%s), operands in %s memory\nworst error as a share of its bound:\n\n",
                 info->device, info->device_kind, memory);
    (void)printf("%-13s %-6s", "types", "layout");
    for (int kind = 0; kind < KIND_COUNT; kind++)
        (void)printf("%9s", kinds[kind]);
    (void)putchar('\n');
}

static void print_tail(const struct table *table)
{
    if (table->as_json) {
        (void)printf("\n  ],\n  \"products\": %d,\n  \"right\": %s\n}\n", table->done,
                     table->is_right ? "true" : "false");
        return;
    }
    (void)putchar('\n');
    for (size_t i = 0; i < MIN(table->details, DETAILS_MAX); i++)
        (void)printf("%s\n", table->detail[i]);
    if (table->details > DETAILS_MAX)
        (void)printf("and %zu more cells\n", table->details - DETAILS_MAX);
    (void)printf("%d products, %s\n", table->done,
                 table->is_right ? "all within the bound" : "NOT all right");
}

static void note_failure(struct table *table,
                         const struct selftest_types *types,
                         int kind,
                         const struct cell *cell)
{
    char text[64];

    table->is_right = false;
    types_to_text(types, text, sizeof(text));
    if (table->details < DETAILS_MAX)
        (void)snprintf(table->detail[table->details], sizeof(*table->detail), "%.40s %s: %s", text,
                       kinds[kind], cell->detail);
    table->details++;
}

/* --- the run --------------------------------------------------------------------------------- */

static void run_row(struct table *table, const struct selftest_types *types, bool is_first)
{
    struct cell cells[KIND_COUNT];
    char pair[32];

    for (int kind = 0; kind < KIND_COUNT; kind++)
        run_cell(table, types, kind, &cells[kind]);
    ctl_progress_end(table->test.ctl);
    (void)snprintf(pair, sizeof(pair), "%s %s", dtype_name(types->input),
                   dtype_name(types->output));
    if (!table->as_json)
        (void)printf("%-13s %c%c    ", pair, types->trans_a ? 't' : 'n',
                     types->trans_b ? 't' : 'n');
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        if (!table->as_json)
            print_cell(&cells[kind]);
        else if (cells[kind].products > 0)
            print_json_cell(types, kind, &cells[kind], is_first && kind == 0);
        if (!(cells[kind].worst <= 1))
            note_failure(table, types, kind, &cells[kind]);
    }
    if (!table->as_json)
        (void)putchar('\n');
    (void)fflush(stdout);
}

static int run_table(struct table *table, const gemmd_info *info)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        table->products += takes_part(table, &shapes[i]) ? 4 * (int)ARRAY_SIZE(pairs) : 0;
    table->is_right = true;
    print_head(table, info);
    for (size_t i = 0; i < 4 * ARRAY_SIZE(pairs) && !table->test.is_lost; i++) {
        struct selftest_types types = {
            .input = pairs[i / 4].input,
            .output = pairs[i / 4].output,
            .trans_a = i & 2,
            .trans_b = i & 1,
        };

        run_row(table, &types, i == 0);
    }
    print_tail(table);
    if (table->test.is_lost)
        return CTL_NO_DAEMON;
    return table->is_right ? CTL_OK : CTL_FAILED;
}

/* The device is known to a connection made after the worker started: a product waits for that. */
static int await_device(struct gemmctl *ctl, gemmd_info *ret_info)
{
    float one = 1, d;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    int status = ctl_connect(ctl);

    *ret_info = (gemmd_info){.size = sizeof(*ret_info)};
    if (status != CTL_OK)
        return status;
    if (gemmd_get_info(ctl->connection, ret_info) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    if (ret_info->ready)
        return CTL_OK;
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = product.b.data = &one;
    product.d.data = &d;
    ctl_progress(ctl, "waiting for the device");
    if (gemmd_gemm(ctl->connection, &product, NULL) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    gemmd_close(steal(ctl->connection, NULL));
    status = ctl_connect(ctl);
    if (status == CTL_OK && gemmd_get_info(ctl->connection, ret_info) != GEMMD_OK)
        status = ctl_daemon_error(ctl);
    return status;
}

enum {
    OPTION_QUICK = CTL_OPTION_OWN,
    OPTION_JSON,
    OPTION_MEMORY,
};

static int take_option(struct table *table, int option)
{
    switch (option) {
    case OPTION_QUICK:
        table->quick = true;
        return CTL_OK;
    case OPTION_JSON:
        table->as_json = true;
        return CTL_OK;
    default:
        if (strcmp(optarg, "host") == 0)
            table->test.memory = GEMMD_HOST;
        else if (strcmp(optarg, "device") == 0)
            table->test.memory = GEMMD_DEVICE;
        else
            return ctl_usage(table->test.ctl, "--memory is '%s'; host or device is wanted", optarg);
        return CTL_OK;
    }
}

static void table_deinit(struct table *table)
{
    selftest_deinit(&table->test);
}

int ctl_selftest(struct gemmctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"quick", no_argument, NULL, OPTION_QUICK},
        {"json", no_argument, NULL, OPTION_JSON},
        {"memory", required_argument, NULL, OPTION_MEMORY},
        CTL_COMMON_OPTIONS,
    };
    cleanup(table_deinit) struct table table = {.test.ctl = ctl};
    gemmd_info info;
    int option, status;

    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_option(&table, option) != CTL_OK)
            return CTL_USAGE;
    }
    status = ctl_no_more(ctl, argc, argv);
    if (status == CTL_OK)
        status = await_device(ctl, &info);
    if (status != CTL_OK)
        return status;
    if (!table.test.memory)
        table.test.memory = strcmp(info.device_kind, "cuda") == 0 ? GEMMD_DEVICE : GEMMD_HOST;
    status = selftest_init(&table.test);
    return status == CTL_OK ? run_table(&table, &info) : status;
}
