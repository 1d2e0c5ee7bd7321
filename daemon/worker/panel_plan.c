#include "panel_plan.h"

#define ROW_ALIGNMENT  16  /* bytes; what vector loads and tensor copies need */
#define AREA_ALIGNMENT 256 /* as cuMemAlloc gives */
#define AREA_MARGIN    (AREA_ALIGNMENT + ROW_ALIGNMENT) /* what lay_out() adds, at most */
#define RING_LEAST     3   /* slots: one computed, one coming in, one in between */
#define SMALL_EXTENT   128 /* of the first panels: less does not keep a tile busy */

/* --- arithmetic ------------------------------------------------------------------------------ */

/* Sizes that no memory has are all the same. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return mul_overflows(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return add_overflows(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t align(uint64_t value, uint64_t alignment)
{
    return plus(value, alignment - 1) / alignment * alignment;
}

static uint64_t divide_up(uint64_t value, uint64_t by)
{
    return value / by + (value % by != 0);
}

static uint64_t cut_down(uint64_t value, uint64_t unit)
{
    return value / unit * unit;
}

/* --- what the job says ----------------------------------------------------------------------- */

static void describe(struct panel_plan *plan, const struct gemmd_job *job)
{
    uint64_t in = dtype_size((enum dtype)job->input), out = dtype_size((enum dtype)job->output);
    bool has_product = job->k > 0 && job->alpha != 0;
    bool is_dense = job->m > 1 && job->ldd == job->n;

    *plan = (struct panel_plan){
        .m = job->m,
        .n = job->n,
        .k = has_product ? job->k : 0,
        .batch = job->batch,
        .group = 1,
        .stays = 1,
        .area = {{.is_staged = has_product && (job->flags & GEMMD_JOB_HOST_A),
                  .is_shared = job->stride_a == 0,
                  .is_by_rows = !(job->flags & GEMMD_JOB_TRANS_A),
                  .element = in},
                 {.is_staged = has_product && (job->flags & GEMMD_JOB_HOST_B),
                  .is_shared = job->stride_b == 0,
                  .is_by_rows = job->flags & GEMMD_JOB_TRANS_B,
                  .element = in}},
        .has_block =
            (job->flags & GEMMD_JOB_HOST_D) || ((job->flags & GEMMD_JOB_HOST_C) && job->beta != 0),
        .block_element = out,
        .dense_columns = is_dense ? job->n : 0,
        .items_are_dense = is_dense && job->stride_d == job->m * job->n,
    };
    plan->axis[0].extent = job->m;
    plan->axis[1].extent = job->n;
}

static uint64_t rounds_of(const struct panel_plan *plan)
{
    const struct panel_axis *stays = &plan->axis[plan->stays];

    return times(divide_up((uint64_t)plan->batch, (uint64_t)plan->group),
                 divide_up((uint64_t)stays->extent, (uint64_t)stays->band));
}

/* --- blocks ---------------------------------------------------------------------------------- */

/* Bytes of a block of D: at least a wave of the kernel, so that no multiprocessor idles. */
static void
size_block(struct panel_plan *plan, const struct gemmd_job *job, const struct panel_limits *limits)
{
    double products =
        dtype_size((enum dtype)job->input) > 2 ? PANEL_BLOCK_PRODUCTS_WIDE : PANEL_BLOCK_PRODUCTS;
    uint64_t by_time = (uint64_t)(products / (double)MAX(plan->k, 1));
    uint64_t wave = times(times(limits->unit_m, limits->unit_n), limits->wave);
    uint64_t elements = MAX(wave, MIN(PANEL_BLOCK_BYTES / plan->block_element, by_time));
    uint64_t whole = times((uint64_t)plan->m,
                           align(times((uint64_t)plan->n, plan->block_element), ROW_ALIGNMENT));
    uint64_t least = PANEL_CUT * PANEL_CUT * plan->block_element; /* see choose_block() */
    uint64_t most = plan->has_block ? limits->scratch / (4 * PANEL_BLOCK_SLOTS) : UINT64_MAX / 2;
    uint64_t size = MIN(times(elements, plan->block_element), times(whole, (uint64_t)plan->batch));

    size = MAX(MIN(size, cut_down(most, AREA_ALIGNMENT)), least);
    plan->block_size = align(size, AREA_ALIGNMENT);
    plan->size = plan->has_block ? PANEL_BLOCK_SLOTS * plan->block_size : 0;
}

/* Whole units of the kernel where a block has room for one. */
static void choose_units(struct panel_plan *plan, const struct panel_limits *limits)
{
    uint64_t m = align(limits->unit_m, PANEL_CUT), n = align(limits->unit_n, PANEL_CUT);
    bool fits = times(times(m, n), plan->block_element) <= plan->block_size;

    plan->axis[0].unit = fits ? (int64_t)m : PANEL_CUT;
    plan->axis[1].unit = fits ? (int64_t)n : PANEL_CUT;
}

/* --- panels ---------------------------------------------------------------------------------- */

static uint64_t input_bytes(const struct panel_plan *plan, int i)
{
    return plan->area[i].is_staged ? times((uint64_t)plan->k, plan->area[i].element) : 0;
}

/* The operand that comes in whole before the other one's panels; 2: none does. */
static int first_of(const struct panel_plan *plan, const struct gemmd_job *job)
{
    double m = (double)plan->m, n = (double)plan->n;
    bool is_wide = dtype_size((enum dtype)job->input) > 2;

    if (m * n / (m + n) >= (is_wide ? PANEL_BALANCE_WIDE : PANEL_BALANCE))
        return 2;
    return m < n ? 0 : 1;
}

/* So wide that a step moves PANEL_BYTES, in or out, and that rows of D are worth a copy. */
static void size_panels(struct panel_plan *plan, const struct gemmd_job *job)
{
    for (int i = 0; i < 2; i++) {
        struct panel_axis *axis = &plan->axis[i];
        uint64_t least = i == 0 ? SMALL_EXTENT : PANEL_ROW_BYTES / plan->block_element;
        uint64_t extent = (uint64_t)axis->extent, unit = (uint64_t)axis->unit;
        uint64_t across = MIN((uint64_t)plan->axis[1 - i].extent,
                              plan->block_size / plan->block_element / (4 * SMALL_EXTENT));
        uint64_t out = job->flags & GEMMD_JOB_HOST_D ? times(across, plan->block_element) : 0;
        uint64_t wide = PANEL_BYTES / MAX(plus(input_bytes(plan, i), out), 1u);
        uint64_t small = i == first_of(plan, job) ? extent : MAX(wide / 4, least);

        axis->panel = 4 * (int64_t)MIN(align(small, unit), align(extent, unit));
        axis->band = axis->extent;
    }
}

/* Whether rows without a gap are copied best without one. */
static bool may_be_dense(uint64_t width)
{
    return width % ROW_ALIGNMENT == 0 || width < PANEL_ROW_BYTES;
}

/* Memory for `extent` rows of op(A) or columns of op(B) in which panels lie side by side. Short
 * rows that lie without a gap at the client's stay so, at its alignment; all others start on 16
 * bytes, which is what a kernel for any alignment would otherwise make of them for each block anew.
 * So do items, which for that have their alignment also when they come one by one.
 */
static void lay_out(struct panel_plan *plan, const struct gemmd_job *job, int i, int64_t extent)
{
    struct panel_area *area = &plan->area[i];
    int64_t ld = i == 0 ? job->lda : job->ldb, stride = i == 0 ? job->stride_a : job->stride_b;
    int64_t rows = area->is_by_rows ? extent : plan->k;
    int64_t columns = area->is_by_rows ? plan->k : extent;
    int64_t whole_rows = area->is_by_rows ? plan->axis[i].extent : plan->k;
    uint64_t items = area->is_shared ? 1 : (uint64_t)plan->group;
    uint64_t width = times((uint64_t)columns, area->element), item, size;
    uint64_t client_item = times((uint64_t)stride, area->element);
    bool is_dense = whole_rows > 1 && ld == columns && may_be_dense(width);
    bool items_are_dense =
        is_dense && !area->is_shared && client_item == times((uint64_t)whole_rows, width);

    area->pitch = is_dense ? width : align(width, ROW_ALIGNMENT);
    area->along = area->is_by_rows ? area->pitch : area->element;
    item = times((uint64_t)rows, area->pitch);
    area->item = items == 1 || items_are_dense ? item : align(item, ROW_ALIGNMENT);
    area->item_shift = items_are_dense ? client_item % ROW_ALIGNMENT : 0;
    size = plus(times(items, area->item), area->item_shift ? ROW_ALIGNMENT : 0);
    area->size = area->is_staged ? align(size, AREA_ALIGNMENT) : 0;
    area->copies = 1;
}

static uint64_t place(struct panel_plan *plan)
{
    uint64_t size = plan->has_block ? PANEL_BLOCK_SLOTS * plan->block_size : 0;

    for (int i = 0; i < 2; i++) {
        plan->area[i].offset = size;
        size = plus(size, times(plan->area[i].size, plan->area[i].copies));
    }
    return plan->size = size;
}

/* All of both operands; twice, when the next round can then come in while this one is computed. */
static bool keep_all(struct panel_plan *plan, const struct gemmd_job *job, uint64_t scratch)
{
    for (int i = 0; i < 2; i++) {
        lay_out(plan, job, i, plan->axis[i].extent);
        plan->area[i].copies = rounds_of(plan) > 1 && !plan->area[i].is_shared ? 2 : 1;
    }
    if (place(plan) <= scratch)
        return true;
    plan->area[0].copies = plan->area[1].copies = 1;
    return place(plan) <= scratch;
}

/* Several items in a step, when one alone would be less than a copy worth making. */
static bool group_items(struct panel_plan *plan, const struct gemmd_job *job, uint64_t scratch)
{
    uint64_t block =
        align(times((uint64_t)plan->m,
                    align(times((uint64_t)plan->n, plan->block_element), ROW_ALIGNMENT)),
              ROW_ALIGNMENT);
    uint64_t in = 0, group;

    for (int i = 0; i < 2; i++)
        if (!plan->area[i].is_shared)
            in = plus(in, times((uint64_t)plan->axis[i].extent, input_bytes(plan, i)));
    group = MIN(plan->block_size / MAX(block, 1u), MIN(PANEL_BYTES, scratch / 8) / MAX(in, 1u));
    group = MIN(group, (uint64_t)plan->batch);
    if (group < 2)
        return false;

    struct panel_plan grouped = *plan;
    grouped.group = (int64_t)group;
    for (int i = 0; i < 2; i++)
        grouped.axis[i].panel =
            4 * (int64_t)align((uint64_t)plan->axis[i].extent, (uint64_t)plan->axis[i].unit);
    if (!keep_all(&grouped, job, scratch))
        return false;
    *plan = grouped;
    return true;
}

/* --- when it does not fit -------------------------------------------------------------------- */

/* Slots for panels of the operand that streams, within so many bytes. */
static bool make_ring(struct panel_plan *plan, const struct gemmd_job *job, int i, uint64_t bytes)
{
    struct panel_axis *axis = &plan->axis[i];
    uint64_t each, most, panel = (uint64_t)axis->panel, unit = (uint64_t)axis->unit;

    lay_out(plan, job, i, axis->extent);
    each = plan->area[i].is_by_rows ? plan->area[i].pitch : input_bytes(plan, i);
    bytes -= MIN(bytes, AREA_MARGIN);
    most = bytes / each / RING_LEAST;
    if (most < panel)
        panel = most < unit ? cut_down(most, PANEL_CUT) : cut_down(most, unit);
    if (panel == 0)
        return false;
    axis->panel = (int64_t)panel;
    axis->slots = (int64_t)MIN(bytes / each / panel, PANEL_RING_SLOTS);
    lay_out(plan, job, i, axis->panel * axis->slots);
    return true;
}

/* As much as fits of the other one. */
static bool make_band(struct panel_plan *plan, const struct gemmd_job *job, int i, uint64_t bytes)
{
    struct panel_axis *axis = &plan->axis[i];
    uint64_t each, band, bands, extent = (uint64_t)axis->extent, unit = (uint64_t)axis->unit;

    lay_out(plan, job, i, axis->extent);
    each = plan->area[i].is_by_rows ? plan->area[i].pitch : input_bytes(plan, i);
    band = (bytes - MIN(bytes, AREA_MARGIN)) / each;
    if (band < unit)
        unit = PANEL_CUT;
    band = MIN(cut_down(band, unit), extent);
    if (band == 0)
        return false;
    bands = divide_up(extent, band);
    axis->unit = (int64_t)unit;
    axis->panel = (int64_t)MAX(cut_down((uint64_t)axis->panel, 4 * unit), 4 * unit);
    axis->band = (int64_t)MIN(align(divide_up(extent, bands), unit), extent);
    lay_out(plan, job, i, axis->band);
    return true;
}

/* `stays` as much as fits, the other one past it. */
static bool
stream(struct panel_plan *plan, const struct gemmd_job *job, int stays, uint64_t scratch)
{
    uint64_t left = scratch - plan->size;

    plan->stays = stays;
    if (!plan->area[stays].is_staged)
        return make_ring(plan, job, 1 - stays, left);
    return make_ring(plan, job, 1 - stays, left / 4) &&
           make_band(plan, job, stays, left - plan->area[1 - stays].size);
}

static double traffic(const struct panel_plan *plan)
{
    double bytes[2];

    for (int i = 0; i < 2; i++)
        bytes[i] = (double)plan->axis[i].extent * (double)input_bytes(plan, i);
    return bytes[plan->stays] * (double)plan->batch +
           bytes[1 - plan->stays] * (double)rounds_of(plan);
}

static int stream_one(struct panel_plan *plan, const struct gemmd_job *job, uint64_t scratch)
{
    struct panel_plan tries[2] = {*plan, *plan};
    bool fits[2];

    tries[0].size = tries[1].size = plan->has_block ? PANEL_BLOCK_SLOTS * plan->block_size : 0;
    for (int i = 0; i < 2; i++) {
        tries[i].axis[0].slots = tries[i].axis[1].slots = 0;
        /* What is on the device already stays, or it would not be what streams. */
        fits[i] = tries[i].area[1 - i].is_staged && stream(&tries[i], job, i, scratch);
    }
    if (!fits[0] && !fits[1])
        return PANEL_E_SCRATCH;
    *plan = !fits[1] || (fits[0] && traffic(&tries[0]) < traffic(&tries[1])) ? tries[0] : tries[1];
    (void)place(plan);
    return 0;
}

int panel_plan_init(struct panel_plan *plan,
                    const struct gemmd_job *job,
                    const struct panel_limits *limits)
{
    describe(plan, job);
    size_block(plan, job, limits);
    choose_units(plan, limits);
    size_panels(plan, job);
    if (plan->size > limits->scratch)
        return PANEL_E_SCRATCH;
    if (group_items(plan, job, limits->scratch) || keep_all(plan, job, limits->scratch))
        return 0;
    return stream_one(plan, job, limits->scratch);
}
