/*
 * How products on host memory are cut: every step of many plans is played against a model of the
 * scratch memory that knows, for each place, what was copied there and who still reads it.
 */
#include "../../daemon/worker/panel_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define HOST (GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_B | GEMMD_JOB_HOST_C | GEMMD_JOB_HOST_D)

static const struct panel_limits h200 = {
    .scratch = (uint64_t)4 << 30, .unit_m = 128, .unit_n = 256, .wave = 132};

static struct gemmd_job product(int64_t m, int64_t n, int64_t k, uint32_t flags)
{
    struct gemmd_job job = {.m = m,
                            .n = n,
                            .k = k,
                            .batch = 1,
                            .alpha = 1,
                            .input = DTYPE_BF16,
                            .output = DTYPE_BF16,
                            .flags = flags};

    job.lda = flags & GEMMD_JOB_TRANS_A ? m : k;
    job.ldb = flags & GEMMD_JOB_TRANS_B ? k : n;
    job.ldc = job.ldd = n;
    job.stride_a = m * k;
    job.stride_b = n * k;
    job.stride_c = job.stride_d = m * n;
    return job;
}

/* --- the model ------------------------------------------------------------------------------- */

/* One index of an axis in the scratch memory. */
struct cell {
    int64_t item, index; /* what is there; index -1: nothing */
    uint64_t readers;    /* one past the last step that reads it */
};

struct model {
    const struct gemmd_job *job;
    struct panel_plan plan;
    struct cell *cells[2];
    size_t cell_count[2];
    unsigned char *written; /* cells of D, PANEL_CUT x PANEL_CUT elements each */
    int64_t grid[2];
    double bytes_in, first_bytes, elements;
    uint64_t steps;
    int64_t last_loaded; /* D's elements computed since the last load */
};

static size_t cells_of_one(const struct panel_area *area)
{
    return (size_t)((area->is_by_rows ? area->size : area->pitch) / area->along);
}

static struct cell *cell_at(struct model *model, int axis, int64_t item, uint64_t offset)
{
    const struct panel_area *area = &model->plan.area[axis];
    uint64_t first = area->offset + (uint64_t)item * area->item_shift % 16;
    uint64_t in_area = offset - first;
    size_t at;

    cr_assert_geq(offset, first);
    at = in_area / area->size * cells_of_one(area) + in_area % area->size / area->along;
    cr_assert_lt(at, model->cell_count[axis], "outside the area");
    return &model->cells[axis][at];
}

static void model_load(struct model *model, const struct panel_step *step, int i)
{
    const struct panel_load *load = &step->load[i];
    const struct panel_area *area = &model->plan.area[load->axis];

    cr_assert(area->is_staged);
    cr_assert_lt(load->begin, load->end);
    cr_assert_leq(load->after, step->number);
    if (load->begin % PANEL_CUT)
        cr_assert_fail("a cut at %ld", (long)load->begin);
    for (int64_t index = load->begin; index < load->end; index++) {
        struct cell *cell = cell_at(model, load->axis, step->item,
                                    load->offset + (uint64_t)(index - load->begin) * area->along);

        cr_assert_leq(cell->readers, load->after, "step %lu overwrites what step %lu reads",
                      (unsigned long)step->number, (unsigned long)cell->readers - 1);
        *cell = (struct cell){.item = area->is_shared ? 0 : step->item, .index = index};
    }
    model->bytes_in += (double)(load->end - load->begin) * (double)model->plan.k *
                       (double)area->element * (double)(area->is_shared ? 1 : step->items);
}

static void model_read(struct model *model, const struct panel_step *step, int i)
{
    const struct panel_area *area = &model->plan.area[i];
    int64_t begin = i == 0 ? step->row : step->column;
    int64_t count = i == 0 ? step->rows : step->columns;

    for (int64_t at = 0; area->is_staged && at < count; at++) {
        struct cell *cell =
            cell_at(model, i, step->item, step->operand_offset[i] + (uint64_t)at * area->along);

        cr_assert_eq(cell->index, begin + at, "step %lu: axis %d: %ld is where %ld should be",
                     (unsigned long)step->number, i, (long)cell->index, (long)(begin + at));
        cr_assert_eq(cell->item, area->is_shared ? 0 : step->item);
        cell->readers = step->number + 1;
    }
}

static void model_write(struct model *model, const struct panel_step *step)
{
    const struct panel_plan *plan = &model->plan;
    uint64_t last = (uint64_t)(step->items - 1) * step->block_item +
                    (uint64_t)(step->rows - 1) * step->block_pitch +
                    (uint64_t)step->columns * plan->block_element;

    cr_assert(step->rows > 0 && step->columns > 0 && step->items > 0);
    cr_assert_leq(last, plan->block_size);
    cr_assert_geq(step->block_pitch, (uint64_t)step->columns * plan->block_element);
    cr_assert_eq(step->row % PANEL_CUT, 0);
    cr_assert_eq(step->column % PANEL_CUT, 0);
    for (int64_t item = step->item; item < step->item + step->items; item++)
        for (int64_t i = step->row; i < step->row + step->rows; i += PANEL_CUT)
            for (int64_t j = step->column; j < step->column + step->columns; j += PANEL_CUT) {
                unsigned char *cell =
                    &model->written[(item * model->grid[0] + i / PANEL_CUT) * model->grid[1] +
                                    j / PANEL_CUT];

                cr_assert_eq(*cell, 0, "an element twice");
                *cell = 1;
            }
    model->elements += (double)step->rows * (double)step->columns * (double)step->items;
    model->last_loaded = step->loads ? 0 : model->last_loaded;
    model->last_loaded += step->rows * step->columns * step->items;
}

static void model_free(struct model *model)
{
    free(model->cells[0]);
    free(model->cells[1]);
    free(model->written);
}

/* Plays the whole plan. */
static struct model play(const struct gemmd_job *job, const struct panel_limits *limits)
{
    struct model model = {.job = job};
    struct panel_cursor cursor;
    struct panel_step step;

    cr_assert_eq(panel_plan_init(&model.plan, job, limits), 0);
    cr_assert_leq(model.plan.size, limits->scratch,
                  "%ld x %ld x %ld, %ld items, flags %x: %lu bytes of %lu", (long)job->m,
                  (long)job->n, (long)job->k, (long)job->batch, job->flags,
                  (unsigned long)model.plan.size, (unsigned long)limits->scratch);
    for (int i = 0; i < 2; i++) {
        const struct panel_area *area = &model.plan.area[i];

        if (area->is_staged)
            model.cell_count[i] = cells_of_one(area) * area->copies;
        model.cells[i] = calloc(model.cell_count[i] + 1, sizeof(struct cell));
        for (size_t c = 0; c < model.cell_count[i]; c++)
            model.cells[i][c].index = -1;
    }
    model.grid[0] = job->m / PANEL_CUT + 1;
    model.grid[1] = job->n / PANEL_CUT + 1;
    model.written = calloc((size_t)(model.grid[0] * model.grid[1] * job->batch), 1);
    panel_cursor_init(&cursor, &model.plan);
    for (; panel_next(&cursor, &step); model.steps++) {
        cr_assert_eq(step.number, model.steps);
        for (int i = 0; i < step.loads; i++)
            model_load(&model, &step, i);
        if (model.steps == 0)
            model.first_bytes = model.bytes_in;
        for (int i = 0; i < 2; i++)
            model_read(&model, &step, i);
        model_write(&model, &step);
    }
    cr_assert_eq(model.elements, (double)job->m * (double)job->n * (double)job->batch);
    return model;
}

static double bytes_of(const struct gemmd_job *job, int i)
{
    uint32_t flag = i == 0 ? GEMMD_JOB_HOST_A : GEMMD_JOB_HOST_B;
    int64_t items = (i == 0 ? job->stride_a : job->stride_b) == 0 ? 1 : job->batch;

    if (!(job->flags & flag) || job->k == 0 || job->alpha == 0)
        return 0;
    return (double)(i == 0 ? job->m : job->n) * (double)job->k *
           (double)dtype_size((enum dtype)job->input) * (double)items;
}

/* --- what fits ------------------------------------------------------------------------------- */

Test(panel_plan, what_fits_comes_in_once)
{
    static const struct {
        int64_t m, n, k;
        uint32_t flags;
    } cases[] = {{11776, 11776, 11776, HOST},
                 {11776, 11776, 11776, HOST | GEMMD_JOB_TRANS_A | GEMMD_JOB_TRANS_B},
                 {4097, 5001, 777, HOST},
                 {1, 30000, 4096, HOST},
                 {100000, 16, 512, HOST},
                 {16384, 16384, 64, HOST},
                 {512, 512, 1 << 20, HOST},
                 {9000, 9000, 4096, GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_D},
                 {9000, 9000, 4096, GEMMD_JOB_HOST_B},
                 {9000, 9000, 4096, GEMMD_JOB_HOST_D},
                 {9000, 9000, 0, HOST}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct gemmd_job job = product(cases[i].m, cases[i].n, cases[i].k, cases[i].flags);
        struct model model = play(&job, &h200);

        cr_expect_eq(model.bytes_in, bytes_of(&job, 0) + bytes_of(&job, 1), "case %zu", i);
        model_free(&model);
    }
}

Test(panel_plan, it_ends_with_little_to_do)
{
    static const int64_t shapes[][3] = {
        {11776, 11776, 11776}, {24000, 24000, 8192}, {512, 65536, 8192}, {65536, 512, 8192}};

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct gemmd_job job = product(shapes[i][0], shapes[i][1], shapes[i][2], HOST);
        struct model model = play(&job, &h200);

        cr_expect_leq((double)model.last_loaded, 0.15 * model.elements, "case %zu", i);
        cr_expect_leq(model.steps, 160, "case %zu: %lu steps", i, (unsigned long)model.steps);
        model_free(&model);
    }
}

Test(panel_plan, it_starts_before_an_operand_is_there_when_computing_takes_longest)
{
    struct gemmd_job job = product(24000, 24000, 8192, HOST);
    struct model model = play(&job, &h200);

    cr_expect_leq(model.first_bytes, 0.06 * model.bytes_in);
    model_free(&model);
}

/* Strided copies are slow, and slow those of the other direction: rows of D are whole. */
Test(panel_plan, blocks_are_wide_when_copying_takes_longest)
{
    static const int64_t shapes[][3] = {
        {11776, 11776, 11776}, {16384, 16384, 1024}, {8192, 512, 64}};
    struct panel_limits units[] = {h200, h200};
    struct panel_plan plan;
    struct panel_cursor cursor;
    struct panel_step step;

    units[1].unit_m = units[1].unit_n = 256;
    for (size_t i = 0; i < ARRAY_SIZE(shapes) * ARRAY_SIZE(units); i++) {
        const int64_t *shape = shapes[i / ARRAY_SIZE(units)];
        struct gemmd_job job = product(shape[0], shape[1], shape[2], HOST);

        cr_assert_eq(panel_plan_init(&plan, &job, &units[i % ARRAY_SIZE(units)]), 0);
        panel_cursor_init(&cursor, &plan);
        while (panel_next(&cursor, &step))
            cr_expect_eq(step.columns, job.n, "case %zu: %ld", i, (long)step.columns);
    }
}

Test(panel_plan, a_step_moves_enough_to_pay_for_itself)
{
    static const int64_t shapes[][3] = {
        {11776, 11776, 11776}, {100000, 16, 512}, {16384, 16384, 64}, {1, 300000, 4096}};

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct gemmd_job job = product(shapes[i][0], shapes[i][1], shapes[i][2], HOST);
        struct model model = play(&job, &h200);
        double bytes = model.bytes_in + 2 * model.elements;

        cr_expect_geq(bytes / (double)model.steps, 1.0 * (1 << 20), "case %zu: %lu steps", i,
                      (unsigned long)model.steps);
        model_free(&model);
    }
}

/* --- what does not --------------------------------------------------------------------------- */

Test(panel_plan, larger_operands_than_scratch_move_little_more_than_they_must)
{
    static const struct {
        int64_t m, n, k;
        uint64_t scratch;
    } cases[] = {{16384, 16384, 16384, (uint64_t)256 << 20},
                 {65536, 8192, 8192, (uint64_t)128 << 20},
                 {8192, 65536, 8192, (uint64_t)128 << 20},
                 {20000, 30000, 1000, (uint64_t)32 << 20}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct panel_limits limits = h200;
        struct gemmd_job job = product(cases[i].m, cases[i].n, cases[i].k, HOST);
        double a = bytes_of(&job, 0), b = bytes_of(&job, 1);

        limits.scratch = cases[i].scratch;
        struct model model = play(&job, &limits);
        double half = (double)limits.scratch / 2;
        double least = a < b ? a + b * (a / half + 1) : b + a * (b / half + 1);
        cr_expect_leq(model.bytes_in, least, "case %zu: %.2f times A and B", i,
                      model.bytes_in / (a + b));
        model_free(&model);
    }
}

Test(panel_plan, a_k_of_which_no_panel_fits_is_refused)
{
    struct panel_limits limits = h200;
    struct gemmd_job job = product(4096, 4096, 1 << 20, HOST);
    struct panel_plan plan;

    limits.scratch = 1 << 20;
    cr_expect_eq(panel_plan_init(&plan, &job, &limits), PANEL_E_SCRATCH);
    job = product(4096, 4096, INT64_MAX / 16384, HOST);
    cr_expect_eq(panel_plan_init(&plan, &job, &h200), PANEL_E_SCRATCH);
}

/* --- batches --------------------------------------------------------------------------------- */

Test(panel_plan, small_items_go_together_and_a_shared_operand_comes_once)
{
    struct gemmd_job job = product(128, 256, 512, HOST);
    struct model model;

    job.batch = 1000;
    model = play(&job, &h200);
    cr_expect_eq(model.bytes_in, bytes_of(&job, 0) + bytes_of(&job, 1));
    cr_expect_leq(model.steps, 60, "%lu steps", (unsigned long)model.steps);
    model_free(&model);

    job.stride_b = 0;
    model = play(&job, &h200);
    cr_expect_eq(model.bytes_in, bytes_of(&job, 0) + bytes_of(&job, 1));
    model_free(&model);

    job = product(2048, 4096, 1024, HOST);
    job.batch = 5;
    job.stride_a = 0;
    model = play(&job, &h200);
    cr_expect_eq(model.bytes_in, bytes_of(&job, 0) + bytes_of(&job, 1));
    model_free(&model);
}

enum { BATCH = 40 };

/* How far behind a multiple of 16 bytes each item's first row of A lies. */
static void alignments(const struct gemmd_job *job, uint64_t scratch, uint64_t ret_beyond[BATCH])
{
    struct panel_limits limits = {.scratch = scratch, .unit_m = 1, .unit_n = 1, .wave = 4};
    struct panel_plan plan;
    struct panel_cursor cursor;
    struct panel_step step;

    cr_assert_eq(panel_plan_init(&plan, job, &limits), 0);
    panel_cursor_init(&cursor, &plan);
    while (panel_next(&cursor, &step))
        for (int64_t i = 0; i < step.items && step.row == 0; i++) {
            uint64_t at = step.operand_offset[0] + (uint64_t)i * plan.area[0].item;

            ret_beyond[step.item + i] = at % 16;
        }
}

/* Kernels that sum by aligned chunks take what lies before the first of them by itself. */
Test(panel_plan, items_lie_alike_however_many_come_together)
{
    static const int64_t shapes[][3] = {{3, 5, 301}, {7, 900, 45}, {40, 2, 9}, {2, 2, 3}};

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct gemmd_job job =
            product(shapes[i][0], shapes[i][1], shapes[i][2], HOST | GEMMD_JOB_TRANS_B);
        uint64_t roomy[BATCH] = {0}, tight[BATCH] = {0};

        job.batch = BATCH;
        alignments(&job, (uint64_t)1 << 30, roomy);
        for (uint64_t scratch = 1 << 21; scratch > 1 << 15; scratch = scratch / 4 * 3) {
            alignments(&job, scratch, tight);
            cr_expect_arr_eq(tight, roomy, sizeof(roomy), "case %zu: %lu bytes", i,
                             (unsigned long)scratch);
        }
    }
}

/* --- all of it ------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

static int64_t random_upto(int64_t most)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return 1 + (int64_t)((random_state >> 33) % (uint64_t)most);
}

Test(panel_plan, any_plan_computes_each_element_once_from_what_is_there, .timeout = 60)
{
    static const enum dtype types[][2] = {
        {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64}, {DTYPE_INT8, DTYPE_INT32}};

    unsigned refused = 0;

    for (int i = 0; i < 2000; i++) {
        int64_t most = i % 2 ? 6000 : 300;
        struct gemmd_job job =
            product(random_upto(most), random_upto(most), random_upto(most), HOST);
        struct panel_limits limits = {.scratch = (uint64_t)random_upto(1 << (12 + i % 14)),
                                      .unit_m = (uint64_t)random_upto(4) * 64,
                                      .unit_n = (uint64_t)random_upto(4) * 64,
                                      .wave = (uint64_t)random_upto(132)};
        struct panel_plan plan;
        const enum dtype *type = types[random_upto(3) - 1];

        job.flags = (uint32_t)random_upto(256) - 1;
        job.lda += random_upto(2) - 1;
        job.ldd += random_upto(2) - 1;
        job.input = type[0];
        job.output = type[1];
        job.beta = (double)random_upto(2) - 1;
        job.batch = i % 3 ? 1 : random_upto(7);
        job.stride_b *= random_upto(2) - 1;
        if (panel_plan_init(&plan, &job, &limits) != 0) {
            refused++;
            continue;
        }
        struct model model = play(&job, &limits);
        model_free(&model);
    }
    cr_expect_lt(refused, 1200);
}
