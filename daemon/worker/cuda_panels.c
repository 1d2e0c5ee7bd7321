#include "cuda_panels.h"
#include "../core/error.h"
#include "../core/log.h"
#include "cuda_bias.h"
#include "cuda_box.h"
#include "cuda_launch.h"

#include <inttypes.h>

#define HOST_FLAGS                                                                                 \
    ((uint32_t)(GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_B | GEMMD_JOB_HOST_C | GEMMD_JOB_HOST_D |        \
                GEMMD_JOB_HOST_BIAS))

/* Less than this is not worth trying when the device's memory is short. */
#define SCRATCH_LEAST (4u << 20)

int cuda_panels_init(struct cuda_panels *panels,
                     const struct driver *driver,
                     const struct cuda_kernels *kernels,
                     uint32_t multiprocessors,
                     struct cuda_lanes *lanes,
                     struct fault *ret_fault)
{
    int r = 0;

    *panels = (struct cuda_panels){
        .driver = driver,
        .kernels = kernels,
        .multiprocessors = multiprocessors,
        .in = &lanes->lane[CUDA_LANE_PANELS_IN],
        .out = &lanes->lane[CUDA_LANE_STREAM],
        .compute = {&lanes->lane[CUDA_LANE_PANELS_0], &lanes->lane[CUDA_LANE_PANELS_1]},
    };
    for (size_t i = 0; i < CUDA_PANELS_AHEAD; i++) {
        CUevent *events[] = {&panels->steps[i].loaded, &panels->steps[i].computed,
                             &panels->steps[i].stored};

        for (size_t j = 0; j < ARRAY_SIZE(events) && !r; j++)
            r = cu_try(driver, ret_fault, EventCreate, events[j], CU_EVENT_DISABLE_TIMING);
    }
    if (!r)
        r = cuda_panels_scratch_init(&panels->blocks, driver, panels->in->stream, ret_fault);
    return r;
}

void cuda_panels_deinit(struct cuda_panels *panels)
{
    for (size_t i = 0; i < CUDA_PANELS_AHEAD; i++) {
        CUevent events[] = {panels->steps[i].loaded, panels->steps[i].computed,
                            panels->steps[i].stored};

        for (size_t j = 0; j < ARRAY_SIZE(events); j++)
            if (events[j])
                (void)cu(panels->driver)->EventDestroy(events[j]);
        panels->steps[i] = (struct cuda_panels_step){0};
    }
    cuda_panels_scratch_deinit(&panels->blocks);
}

bool cuda_panels_give_back(struct cuda_panels *panels)
{
    return cuda_panels_scratch_give_back(&panels->blocks, panels->is_open && panels->scratch);
}

void cuda_panels_take(struct cuda_panels *panels, const struct cuda_panels_entry *entry)
{
    assert(panels->taken - panels->ended < CUDA_PANELS_DEPTH);
    panels->entries[panels->taken++ % CUDA_PANELS_DEPTH] = *entry;
}

static const struct cuda_panels_entry *current(const struct cuda_panels *panels)
{
    return &panels->entries[panels->ended % CUDA_PANELS_DEPTH];
}

static bool is_staged(const struct gemmd_job *job, uint32_t flag)
{
    return job->flags & flag && (flag != GEMMD_JOB_HOST_C || job->beta != 0);
}

/* --- order ----------------------------------------------------------------------------------- */

static struct cuda_panels_step *step_at(struct cuda_panels *panels, uint64_t number)
{
    return &panels->steps[number % CUDA_PANELS_AHEAD];
}

static int
wait_for(const struct cuda_panels *panels, CUstream stream, CUevent event, struct fault *ret_fault)
{
    return cu_try(panels->driver, ret_fault, StreamWaitEvent, stream, event, CU_EVENT_WAIT_DEFAULT);
}

/* Those steps of the product are computed that read what a panel comes to lie over: the last one of
 * each of the two lanes is. Where nothing lay, the product before may still be computed. */
static int after_readers(struct cuda_panels *panels,
                         CUstream stream,
                         const struct panel_load *load,
                         struct fault *ret_fault)
{
    uint64_t end = panels->first + load->after;
    int r = 0;

    if (load->after == 0)
        return 0;
    for (uint64_t back = 1; back <= 2 && panels->done + back <= end && !r; back++)
        r = wait_for(panels, stream, step_at(panels, end - back)->computed, ret_fault);
    return r;
}

/* The slot of the step's block is free: the one that had it before is stored, or, where nothing is
 * stored, computed. */
static int after_slot(struct cuda_panels *panels,
                      CUstream stream,
                      const struct panel_step *step,
                      struct fault *ret_fault)
{
    uint64_t number = panels->first + step->number - PANEL_BLOCK_SLOTS;

    if (step->number < PANEL_BLOCK_SLOTS || number < panels->done)
        return 0;
    return wait_for(panels, stream,
                    is_staged(&current(panels)->job, GEMMD_JOB_HOST_D)
                        ? step_at(panels, number)->stored
                        : step_at(panels, number)->computed,
                    ret_fault);
}

/* --- boxes ----------------------------------------------------------------------------------- */

static struct cuda_box panel_box(const struct cuda_panels *panels,
                                 const struct panel_step *step,
                                 const struct panel_load *load)
{
    const struct gemmd_job *job = &current(panels)->job;
    const struct panel_area *area = &panels->plan.area[load->axis];
    uint64_t base = load->axis == 0 ? job->a : job->b;
    uint64_t ld = (uint64_t)(load->axis == 0 ? job->lda : job->ldb);
    uint64_t stride = (uint64_t)(load->axis == 0 ? job->stride_a : job->stride_b);
    uint64_t count = (uint64_t)(load->end - load->begin), k = (uint64_t)panels->plan.k;
    uint64_t first = (uint64_t)load->begin * (area->is_by_rows ? ld : 1);
    uint64_t at = first + (uint64_t)step->item * stride;

    return (struct cuda_box){
        .width = (area->is_by_rows ? k : count) * area->element,
        .rows = area->is_by_rows ? count : k,
        .items = area->is_shared ? 1 : (uint64_t)step->items,
        .host_pitch = ld * area->element,
        .host_stride = stride * area->element,
        .host = (char *)(uintptr_t)(base + at * area->element),
        .device_pitch = area->pitch,
        .device_stride = area->item,
        .device = panels->scratch + load->offset,
    };
}

/* A block of C or D between the client's matrix and its slot. */
static struct cuda_box
block_box(const struct cuda_panels *panels, const struct panel_step *step, enum operand_role role)
{
    const struct gemmd_job *job = &current(panels)->job;
    uint64_t element = panels->plan.block_element;
    uint64_t base = role == OPERAND_C ? job->c : job->d;
    uint64_t ld = (uint64_t)(role == OPERAND_C ? job->ldc : job->ldd);
    uint64_t stride = (uint64_t)(role == OPERAND_C ? job->stride_c : job->stride_d);
    uint64_t at = (uint64_t)step->item * stride + (uint64_t)step->row * ld + (uint64_t)step->column;

    return (struct cuda_box){
        .width = (uint64_t)step->columns * element,
        .rows = (uint64_t)step->rows,
        .items = (uint64_t)step->items, /* also of a C that all share: D comes to lie over it */
        .host_pitch = ld * element,
        .host_stride = stride * element,
        .host = (char *)(uintptr_t)(base + at * element),
        .device_pitch = step->block_pitch,
        .device_stride = step->block_item,
        .device = panels->scratch + step->block_offset,
    };
}

/* --- the step's own product ------------------------------------------------------------------ */

static void aim_input(const struct cuda_panels *panels,
                      const struct panel_step *step,
                      int i,
                      struct gemmd_job *job)
{
    const struct panel_area *area = &panels->plan.area[i];
    uint64_t *address = i == 0 ? &job->a : &job->b;
    int64_t *ld = i == 0 ? &job->lda : &job->ldb;
    int64_t *stride = i == 0 ? &job->stride_a : &job->stride_b;
    int64_t first = i == 0 ? step->row : step->column;

    /* Not read by the BLAS rules: no address at all, so that a kernel that reads it is caught. */
    if (panels->plan.k == 0) {
        *address = 0;
    } else if (area->is_staged) {
        *address = panels->scratch + step->operand_offset[i];
        *ld = (int64_t)(area->pitch / area->element);
        *stride = area->is_shared ? 0 : (int64_t)(area->item / area->element);
    } else {
        int64_t at = step->item * *stride + first * (area->is_by_rows ? *ld : 1);
        *address += (uint64_t)at * area->element;
    }
}

static void aim_block(const struct cuda_panels *panels,
                      const struct panel_step *step,
                      bool in_slot,
                      uint64_t *address,
                      int64_t *ld,
                      int64_t *stride)
{
    uint64_t element = panels->plan.block_element;

    if (in_slot) {
        *address = panels->scratch + step->block_offset;
        *ld = (int64_t)(step->block_pitch / element);
        *stride = (int64_t)(step->block_item / element);
    } else {
        int64_t at = step->item * *stride + step->row * *ld + step->column;
        *address += (uint64_t)at * element;
    }
}

static CUdeviceptr bias_copy(const struct cuda_panels *panels)
{
    return panels->scratch + panels->plan.size;
}

static struct gemmd_job step_job(const struct cuda_panels *panels, const struct panel_step *step)
{
    const struct gemmd_job *whole = &current(panels)->job;
    struct gemmd_job job = *whole;

    /* No overflow: D is in memory. */
    job.product_elements = (uint32_t)MIN(whole->m * whole->n * whole->batch, UINT32_MAX);
    job.m = step->rows;
    job.n = step->columns;
    job.k = panels->plan.k;
    job.batch = step->items;
    job.flags &= ~HOST_FLAGS;
    aim_input(panels, step, 0, &job);
    aim_input(panels, step, 1, &job);
    cuda_bias_aim(whole, bias_copy(panels), step, &job);
    aim_block(panels, step, is_staged(whole, GEMMD_JOB_HOST_D), &job.d, &job.ldd, &job.stride_d);
    if (job.beta == 0)
        job.c = 0;
    else
        aim_block(panels, step, is_staged(whole, GEMMD_JOB_HOST_C), &job.c, &job.ldc,
                  &job.stride_c);
    return job;
}

/* --- a step ---------------------------------------------------------------------------------- */

static int
copy_in(struct cuda_panels *panels, const struct panel_step *step, struct fault *ret_fault)
{
    CUstream stream = panels->in->stream;
    bool has_c = is_staged(&current(panels)->job, GEMMD_JOB_HOST_C);
    int r = 0;

    if (step->number == 0 && cuda_bias_size(&current(panels)->job) > 0) {
        struct cuda_box box = cuda_bias_box(&current(panels)->job, bias_copy(panels));

        r = cuda_box_copy(panels->driver, stream, CUDA_BOX_TO_DEVICE, &box, ret_fault);
    }
    for (int i = 0; i < step->loads && !r; i++) {
        struct cuda_box box = panel_box(panels, step, &step->load[i]);

        r = after_readers(panels, stream, &step->load[i], ret_fault);
        if (!r)
            r = cuda_box_copy(panels->driver, stream, CUDA_BOX_TO_DEVICE, &box, ret_fault);
    }
    if (has_c && !r) {
        struct cuda_box box = block_box(panels, step, OPERAND_C);

        r = after_slot(panels, stream, step, ret_fault);
        if (!r)
            r = cuda_box_copy(panels->driver, stream, CUDA_BOX_TO_DEVICE, &box, ret_fault);
    }
    /* The first step also waits for the scratch memory to be there. */
    if (r || (!has_c && step->loads == 0 && step->number > 0))
        return r;
    panels->loaded = panels->queued + 1;
    return cu_try(panels->driver, ret_fault, EventRecord, step_at(panels, panels->queued)->loaded,
                  stream);
}

static int
compute(struct cuda_panels *panels, const struct panel_step *step, struct fault *ret_fault)
{
    struct gemmd_feed feed = {.job_count = 1, .jobs[0] = step_job(panels, step)};
    struct cuda_lane *lane = panels->compute[panels->queued % 2];
    CUstream stream = lane->stream;
    struct cuda_launch_target target = {.driver = panels->driver,
                                        .multiprocessors = panels->multiprocessors,
                                        .stream = stream,
                                        .scratch = &lane->scratch,
                                        .workspace = &lane->workspace,
                                        .running = &lane->running};
    int r = 0;

    /* What comes in does so in order, so the last of it is enough. */
    if (panels->loaded > panels->done)
        r = wait_for(panels, stream, step_at(panels, panels->loaded - 1)->loaded, ret_fault);
    if (panels->plan.has_block && !r)
        r = after_slot(panels, stream, step, ret_fault);
    if (!r)
        r = cuda_launch(&target, panels->kernel, &feed, ret_fault);
    cuda_scratch_trim(&lane->scratch);
    if (!r)
        r = cu_try(panels->driver, ret_fault, EventRecord,
                   step_at(panels, panels->queued)->computed, stream);
    return r;
}

static int
copy_out(struct cuda_panels *panels, const struct panel_step *step, struct fault *ret_fault)
{
    struct cuda_panels_step *events = step_at(panels, panels->queued);
    struct cuda_box box = block_box(panels, step, OPERAND_D);
    CUstream stream = panels->out->stream;

    int r = wait_for(panels, stream, events->computed, ret_fault);
    if (!r && is_staged(&current(panels)->job, GEMMD_JOB_HOST_D))
        r = cuda_box_copy(panels->driver, stream, CUDA_BOX_TO_HOST, &box, ret_fault);
    if (!r)
        r = cu_try(panels->driver, ret_fault, EventRecord, events->stored, stream);
    return r;
}

/* --- a product ------------------------------------------------------------------------------- */

static int no_room(struct fault *ret_fault, const struct gemmd_job *job, uint64_t scratch)
{
    fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "k",
              "k is %" PRId64 "; panels of it do not fit into %" PRIu64 " bytes of scratch memory",
              (int64_t)job->k, scratch);
    return DRIVER_E_FAULT;
}

static struct panel_limits limits_of(const struct cuda_panels *panels)
{
    const struct cuda_kernel *kernel = panels->kernel;
    uint32_t cluster = kernel->cluster_m * kernel->cluster_n;
    uint64_t ctas = (uint64_t)panels->multiprocessors * kernel->ctas_per_multiprocessor;

    return (struct panel_limits){
        .scratch = panels->scratch_limit,
        .unit_m = (uint64_t)kernel->tile_m * kernel->cluster_m,
        .unit_n = (uint64_t)kernel->tile_n * kernel->cluster_n,
        .wave = MAX(ctas / cluster, 1u),
    };
}

/* A plan, and its memory: when the device has not so much left, a plan that needs less. */
static int make_plan(struct cuda_panels *panels, struct fault *ret_fault)
{
    const struct gemmd_job *job = &current(panels)->job;
    struct panel_limits limits = limits_of(panels);
    CUdeviceptr scratch = 0;
    int r = 0;

    while (panel_plan_init(&panels->plan, job, &limits) != 0) {
        if (limits.scratch > panels->scratch_most / 2)
            return no_room(ret_fault, job, panels->scratch_most);
        limits.scratch *= 2;
    }
    do {
        if (r && panel_plan_init(&panels->plan, job, &limits) != 0)
            return r;
        uint64_t size = panels->plan.size + cuda_bias_size(job);

        r = size ? cuda_panels_scratch_take(&panels->blocks, size, &scratch, ret_fault) : 0;
        limits.scratch = panels->plan.size / 2;
    } while (r > 0 && ret_fault->status == STATUS_OUT_OF_MEMORY && limits.scratch >= SCRATCH_LEAST);
    if (!r)
        panels->scratch = scratch;
    return r;
}

static int open_product(struct cuda_panels *panels, struct fault *ret_fault)
{
    const struct cuda_panels_entry *entry = current(panels);

    panels->is_open = true;
    panels->scratch = 0;
    panels->first = panels->queued;
    panels->kernel = cuda_kernels_find(panels->kernels, entry->kernel);
    if (!panels->kernel) {
        fault_set(ret_fault, STATUS_INTERNAL, "", "kernel %" PRIu64 " is not loaded",
                  entry->kernel);
        return DRIVER_E_FAULT;
    }
    int r = make_plan(panels, ret_fault);
    if (!r)
        panel_cursor_init(&panels->cursor, &panels->plan);
    return r;
}

/* Behind all that was queued of it, also when that was cut short. */
static int end_product(struct cuda_panels *panels, enum status status)
{
    const struct cuda_panels_entry *entry = current(panels);
    struct cuda_lane *lanes[] = {panels->in, panels->compute[0], panels->compute[1]};
    struct fault fault;
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lanes) && !r; i++)
        r = cuda_lane_after(panels->out, panels->driver, lanes[i], &fault);
    if (!r)
        r = cuda_lane_finish(panels->out, panels->driver, entry->ret_end, &fault);
    if (panels->scratch && !r)
        r = cuda_panels_scratch_end(&panels->blocks, panels->out->stream, panels->scratch_limit,
                                    &fault);
    *entry->ret_status = status;
    panels->is_open = false;
    panels->ended++;
    return r ? error_fold(r) : 0; /* without its end nothing after it would ever complete */
}

static int fail_product(struct cuda_panels *panels, int r, const struct fault *fault)
{
    if (r < 0)
        return error_trace(r);
    log_warning("event=job_failed job=%" PRIu64 " reason=\"%s\"", current(panels)->number,
                fault->message);
    return error_trace(end_product(panels, fault->status));
}

/* --- the pump -------------------------------------------------------------------------------- */

/* Steps that are over, as far as there is need to know. */
static int look(struct cuda_panels *panels)
{
    while (panels->done < panels->queued) {
        CUevent event = step_at(panels, panels->done)->stored;
        CUresult result = cu(panels->driver)->EventQuery(event);
        struct fault fault;

        if (result == CUDA_ERROR_NOT_READY)
            return 0;
        int r = driver_check(panels->driver, result, "cuEventQuery", &fault);
        if (r)
            return error_fold(r);
        panels->done++;
    }
    return 0;
}

static bool is_full(const struct cuda_panels *panels)
{
    return panels->queued - panels->done == CUDA_PANELS_AHEAD;
}

bool cuda_panels_is_eager(const struct cuda_panels *panels)
{
    return panels->ended < panels->taken && !is_full(panels) && !panels->rests;
}

/* One step of the current product, or its end. */
static int queue_one(struct cuda_panels *panels)
{
    struct fault fault = FAULT_NONE;
    struct panel_step step;
    int r = panels->is_open ? 0 : open_product(panels, &fault);

    if (!r && !panel_next(&panels->cursor, &step))
        return error_trace(end_product(panels, STATUS_OK));
    if (!r)
        r = copy_in(panels, &step, &fault);
    if (!r)
        r = compute(panels, &step, &fault);
    if (!r)
        r = copy_out(panels, &step, &fault);
    if (r)
        return fail_product(panels, r, &fault);
    panels->queued++;
    return 0;
}

int cuda_panels_pump(struct cuda_panels *panels)
{
    int r = 0;

    if (panels->ended == panels->taken)
        return 0;
    if (is_full(panels) || panels->rests)
        r = look(panels);
    for (int i = 0; i < CUDA_PANELS_BURST && !r && cuda_panels_is_eager(panels); i++)
        r = queue_one(panels);
    return error_trace(r);
}
