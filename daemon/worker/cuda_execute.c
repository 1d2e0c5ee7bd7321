#include "cuda_execute.h"
#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include "cuda_launch.h"
#include "cuda_stage.h"

#include <inttypes.h>
#include <string.h>

int cuda_execute_init(struct cuda_execute *execute,
                      const struct driver *driver,
                      const struct cuda_kernels *kernels,
                      uint32_t multiprocessors,
                      struct fault *ret_fault)
{
    *execute = (struct cuda_execute){
        .driver = driver, .kernels = kernels, .multiprocessors = MAX(multiprocessors, 1u)};
    list_init(&execute->under_way);
    list_init(&execute->vacant);
    for (size_t i = 0; i < CUDA_EXECUTE_DEPTH; i++)
        list_append(&execute->vacant, &execute->entries[i].link);
    int r = cuda_lanes_init(&execute->lanes, driver, ret_fault);
    if (!r)
        r = cuda_panels_init(&execute->panels, driver, kernels, execute->multiprocessors,
                             &execute->lanes, ret_fault);
    if (!r)
        r = cuda_health_init(&execute->health, driver, ret_fault);
    if (r)
        cuda_execute_deinit(execute);
    return r;
}

void cuda_execute_deinit(struct cuda_execute *execute)
{
    cuda_lanes_deinit(&execute->lanes);
    if (execute->panels.driver)
        cuda_panels_deinit(&execute->panels);
    if (execute->health.driver)
        cuda_health_deinit(&execute->health);
}

bool cuda_execute_give_back(struct cuda_execute *execute)
{
    bool had_any = cuda_lanes_give_back(&execute->lanes);

    return cuda_panels_give_back(&execute->panels) || had_any;
}

/* --- products -------------------------------------------------------------------------------- */

static int launch(const struct cuda_launch_target *target,
                  const struct cuda_kernel *kernel,
                  struct gemmd_feed *feed,
                  struct fault *ret_fault)
{
    int r = cuda_launch(target, kernel, feed, ret_fault);

    /* Slices that are still to come find what an earlier one repacked. */
    if (feed->jobs[0].tile_count == 0)
        cuda_scratch_trim(target->scratch);
    return r;
}

static int launch_staged(const struct cuda_launch_target *target,
                         const struct cuda_kernel *kernel,
                         struct gemmd_feed *feed,
                         struct cuda_stage *stage,
                         struct fault *ret_fault)
{
    const struct driver *driver = target->driver;
    CUstream stream = target->stream;
    CUdeviceptr scratch = 0;
    int r = 0;
    if (stage->size)
        r = cu_try(driver, ret_fault, MemAllocAsync, &scratch, stage->size, stream);
    if (r)
        return r;

    cuda_stage_place(stage, scratch, &feed->jobs[0]);
    r = cuda_stage_copy(stage, driver, stream, CUDA_BOX_TO_DEVICE, ret_fault);
    if (!r)
        r = launch(target, kernel, feed, ret_fault);
    if (!r)
        r = cuda_stage_copy(stage, driver, stream, CUDA_BOX_TO_HOST, ret_fault);

    /* In stream order, so the memory is free for the next job when this one is through. */
    if (scratch && r >= 0) {
        struct fault ignored;
        int freed = cu_try(driver, &ignored, MemFreeAsync, scratch, stream);
        r = freed < 0 ? freed : r;
    }
    return r;
}

/* Timing wants what a stream of products costs, and operands that the L2 does not still have. */
static int launch_in_turns(const struct cuda_launch_target *target,
                           const struct cuda_kernel *kernel,
                           const struct gemmd_job *job,
                           struct fault *ret_fault)
{
    struct gemmd_feed feed = {.job_count = 1, .jobs[0] = *job};
    int r = 0;
    for (uint32_t i = 0; i < MAX(job->repeats, 1u) && r == 0; i++) {
        uint64_t offset = i % MAX(job->repeat_sets, 1u) * job->repeat_step;
        feed.jobs[0].a = job->a + offset;
        feed.jobs[0].b = job->b + offset;
        feed.jobs[0].d = job->d + offset;
        r = launch(target, kernel, &feed, ret_fault);
    }
    return r;
}

static int run_gemm(struct cuda_execute *execute,
                    struct cuda_lane *lane,
                    const struct gemmd_command *command,
                    struct fault *ret_fault)
{
    const struct gemmd_job *job = &command->body.gemm;
    struct gemmd_feed feed = {.job_count = 1, .jobs[0] = *job};
    struct cuda_launch_target target = {.driver = execute->driver,
                                        .multiprocessors = execute->multiprocessors,
                                        .stream = lane->stream,
                                        .scratch = &lane->scratch,
                                        .workspace = &lane->workspace,
                                        .running = &lane->running,
                                        .holder = command->job};
    struct cuda_stage stage;
    if (job->m == 0 || job->n == 0 || job->batch == 0)
        return 0;

    const struct cuda_kernel *kernel = cuda_kernels_find(execute->kernels, command->kernel);
    if (!kernel) {
        fault_set(ret_fault, STATUS_INTERNAL, "", "kernel %" PRIu64 " is not loaded",
                  command->kernel);
        return DRIVER_E_FAULT;
    }
    if (!(job->flags & CUDA_STAGE_HOST_FLAGS))
        return job->repeats > 1 ? launch_in_turns(&target, kernel, job, ret_fault)
                                : launch(&target, kernel, &feed, ret_fault);

    int r = cuda_stage_plan(&stage, job, ret_fault);
    return r ? r : launch_staged(&target, kernel, &feed, &stage, ret_fault);
}

/* --- copies ---------------------------------------------------------------------------------- */

static void CUDA_CB copy_on_host(void *context)
{
    const struct gemmd_copy *copy = context;
    void *destination = (void *)(uintptr_t)copy->destination;

    if (copy->source)
        memmove(destination, (const void *)(uintptr_t)copy->source, copy->size);
    else
        memset(destination, 0, copy->size);
}

static int run_on_host(struct cuda_execute *execute,
                       struct cuda_lane *lane,
                       struct cuda_execute_entry *entry,
                       const struct gemmd_copy *copy,
                       struct fault *ret_fault)
{
    entry->host_copy = *copy;
    return cu_parked_try(execute->driver, ret_fault, LaunchHostFunc, lane->stream, copy_on_host,
                         &entry->host_copy);
}

static int run_copy(struct cuda_execute *execute,
                    struct cuda_lane *lane,
                    struct cuda_execute_entry *entry,
                    const struct gemmd_copy *copy,
                    struct fault *ret_fault)
{
    const struct driver *driver = execute->driver;
    CUstream stream = lane->stream;
    uint64_t to = copy->destination, from = copy->source;
    bool from_host = copy->flags & GEMMD_JOB_HOST_A;
    bool to_host = copy->flags & GEMMD_JOB_HOST_D;
    if (copy->size == 0)
        return 0;
    if (from_host && to_host)
        return run_on_host(execute, lane, entry, copy, ret_fault);
    if (from_host)
        return cu_try(driver, ret_fault, MemcpyHtoDAsync, to, (const void *)(uintptr_t)from,
                      copy->size, stream);
    if (to_host)
        return cu_try(driver, ret_fault, MemcpyDtoHAsync, (void *)(uintptr_t)to, from, copy->size,
                      stream);
    return cu_parked_try(driver, ret_fault, MemcpyDtoDAsync, to, from, copy->size, stream);
}

static int run_zero(struct cuda_execute *execute,
                    struct cuda_lane *lane,
                    struct cuda_execute_entry *entry,
                    const struct gemmd_copy *copy,
                    struct fault *ret_fault)
{
    struct gemmd_copy fill = *copy;
    fill.source = 0;
    if (copy->size == 0)
        return 0;
    if (copy->flags & GEMMD_JOB_HOST_D)
        return run_on_host(execute, lane, entry, &fill, ret_fault);
    return cu_parked_try(execute->driver, ret_fault, MemsetD8Async, copy->destination, 0,
                         copy->size, lane->stream);
}

/* --- the queue ------------------------------------------------------------------------------- */

static struct cuda_execute_entry *entry_of(struct list *link)
{
    return container_of(link, struct cuda_execute_entry, link);
}

/* There is one: fewer than CUDA_EXECUTE_DEPTH are under way. */
static struct cuda_execute_entry *take_vacant(struct cuda_execute *execute, uint64_t job)
{
    struct cuda_execute_entry *entry = entry_of(execute->vacant.next);

    assert(!list_is_empty(&execute->vacant));
    list_unlink(&entry->link);
    *entry =
        (struct cuda_execute_entry){.job = job, .started_ns = clock_now_ns(), .status = STATUS_OK};
    list_init(&entry->link);
    return entry;
}

static void add_under_way(struct cuda_execute *execute, struct cuda_execute_entry *entry)
{
    list_append(&execute->under_way, &entry->link);
    execute->pending++;
}

static bool has_ended(const struct cuda_execute *execute, const struct cuda_execute_entry *entry)
{
    return entry->number <= execute->lanes.lane[entry->lane].finished;
}

static void look(struct cuda_execute *execute)
{
    for (uint32_t i = 0; i < CUDA_LANES; i++)
        if (cuda_lane_pending(&execute->lanes.lane[i]) > 0)
            cuda_lane_look(&execute->lanes.lane[i]);
}

/* Lanes that a command may have: [first, end). */
struct lane_range {
    uint32_t first, end;
};

static bool begins_early(const struct cuda_execute *execute, const struct gemmd_command *command)
{
    const struct cuda_kernel *kernel = command->kind == GEMMD_COMMAND_GEMM
                                           ? cuda_kernels_find(execute->kernels, command->kernel)
                                           : NULL;
    return kernel && kernel->begins_early;
}

/* Large products whose kernels could overlap on one lane have one: from two, CTAs of both run out
 * of step, find less of their operands in the L2, and cost the power that bounds them. */
static struct lane_range lanes_for(const struct cuda_execute *execute,
                                   const struct gemmd_command *command)
{
    uint32_t own = CUDA_LANE_IN + command->track - GEMMD_TRACK_IN;

    if (command->track != GEMMD_TRACK_MAIN)
        return (struct lane_range){own, own + 1};
    if (command->is_quick)
        return (struct lane_range){0, CUDA_QUICK_LANES};
    if (begins_early(execute, command))
        return (struct lane_range){CUDA_LANE_OVERLAPPING, CUDA_LANE_OVERLAPPING + 1};
    return (struct lane_range){CUDA_QUICK_LANES, CUDA_MAIN_LANES};
}

static uint32_t least_busy(const struct cuda_execute *execute, struct lane_range range)
{
    const struct cuda_lane *lanes = execute->lanes.lane;
    uint32_t best = range.first;

    for (uint32_t i = range.first + 1; i < range.end; i++)
        if (cuda_lane_pending(&lanes[i]) < cuda_lane_pending(&lanes[best]))
            best = i;
    return best;
}

/* The lane for a command, and a bit for each other lane that it has to wait for. */
static uint32_t choose_lane(struct cuda_execute *execute,
                            const struct gemmd_command *command,
                            const struct accesses *accesses,
                            uint32_t *ret_others)
{
    struct lane_range range = lanes_for(execute, command);
    uint32_t lanes = 0, mine = CUDA_LANES;

    look(execute);
    list_for_each(link, &execute->under_way)
    {
        const struct cuda_execute_entry *entry = entry_of(link);

        if (!has_ended(execute, entry) && accesses_conflict(&entry->accesses, accesses)) {
            lanes |= 1u << entry->lane;
            if (entry->lane >= range.first && entry->lane < range.end)
                mine = entry->lane; /* the latest */
        }
    }
    if (mine == CUDA_LANES)
        mine = least_busy(execute, range);
    *ret_others = lanes & ~(1u << mine);
    return mine;
}

static int run(struct cuda_execute *execute,
               struct cuda_execute_entry *entry,
               const struct gemmd_command *command,
               struct fault *ret_fault)
{
    struct cuda_lane *lane = &execute->lanes.lane[entry->lane];

    switch (command->kind) {
    case GEMMD_COMMAND_GEMM:
        return run_gemm(execute, lane, command, ret_fault);
    case GEMMD_COMMAND_COPY:
        return run_copy(execute, lane, entry, &command->body.copy, ret_fault);
    case GEMMD_COMMAND_ZERO:
        return run_zero(execute, lane, entry, &command->body.copy, ret_fault);
    default:
        return error_origin(-EPROTO); /* the front and the worker are one binary */
    }
}

/* What launches keep for speed counts as free; what did not find room has written nothing yet. */
static int run_in_memory(struct cuda_execute *execute,
                         struct cuda_execute_entry *entry,
                         const struct gemmd_command *command,
                         struct fault *ret_fault)
{
    int r = run(execute, entry, command, ret_fault);

    if (r > 0 && ret_fault->status == STATUS_OUT_OF_MEMORY && cuda_execute_give_back(execute))
        r = run(execute, entry, command, ret_fault);
    return r;
}

static int wait_for_others(struct cuda_execute *execute,
                           uint32_t mine,
                           uint32_t others,
                           struct fault *ret_fault)
{
    int r = 0;

    for (uint32_t i = 0; i < CUDA_LANES && !r; i++)
        if (others & 1u << i)
            r = cuda_lane_after(&execute->lanes.lane[mine], execute->driver,
                                &execute->lanes.lane[i], ret_fault);
    return r;
}

/* A slice of a product, or nothing at all to compute, needs no panels. */
static bool is_streamed(const struct gemmd_command *command)
{
    const struct gemmd_job *job = &command->body.gemm;

    return command->track == GEMMD_TRACK_STREAM && command->kind == GEMMD_COMMAND_GEMM &&
           (job->flags & CUDA_STAGE_HOST_FLAGS) && job->m > 0 && job->n > 0 && job->batch > 0 &&
           job->first_tile == 0 && job->tile_count == 0;
}

/* Nobody waits for it, nor it for anybody: the front saw to that. */
static int submit_streamed(struct cuda_execute *execute,
                           struct cuda_execute_entry *entry,
                           const struct gemmd_command *command)
{
    const struct cuda_panels_entry streamed = {
        .job = command->body.gemm,
        .kernel = command->kernel,
        .number = command->job,
        .ret_status = &entry->status,
        .ret_end = &entry->number,
    };
    entry->lane = CUDA_LANE_STREAM;
    entry->number = UINT64_MAX;
    entry->accesses.job = command->job;
    cuda_panels_take(&execute->panels, &streamed);
    add_under_way(execute, entry);
    return error_trace(cuda_panels_pump(&execute->panels));
}

int cuda_execute_submit(struct cuda_execute *execute, const struct gemmd_command *command)
{
    struct fault fault = FAULT_NONE;
    struct cuda_execute_entry *entry;
    uint32_t others;
    int r = execute->has_begun ? 0 : cuda_health_begin(&execute->health);
    if (r < 0)
        return error_trace(r);
    execute->has_begun = true;
    entry = take_vacant(execute, command->job);
    if (is_streamed(command))
        return error_trace(submit_streamed(execute, entry, command));
    accesses_of(command, &entry->accesses);
    entry->lane = choose_lane(execute, command, &entry->accesses, &others);

    /* A command that is not where it belongs in the order must not run at all. */
    r = wait_for_others(execute, entry->lane, others, &fault);
    if (!r)
        r = run_in_memory(execute, entry, command, &fault);
    if (r < 0)
        return error_trace(r);
    if (r > 0) {
        entry->status = fault.status;
        log_warning("event=job_failed job=%" PRIu64 " reason=\"%s\"", command->job, fault.message);
    }

    r = cuda_lane_finish(&execute->lanes.lane[entry->lane], execute->driver, &entry->number,
                         &fault);
    if (r)
        return error_fold(r); /* without the write no job after this one would ever complete */
    add_under_way(execute, entry);
    return 0;
}

bool cuda_execute_is_eager(const struct cuda_execute *execute)
{
    return cuda_panels_is_eager(&execute->panels);
}

bool cuda_execute_is_at_rest(const struct cuda_execute *execute)
{
    list_for_each(link, &execute->under_way)
    {
        if (entry_of(link)->number != UINT64_MAX)
            return false;
    }
    return execute->pending == 0 || cuda_panels_is_quiet(&execute->panels);
}

static int look_after(struct cuda_execute *execute)
{
    const struct cuda_execute_entry *entry = entry_of(execute->under_way.next);
    const struct cuda_health_waiting oldest = {
        .stream = execute->lanes.lane[entry->lane].stream,
        .since_ns = entry->started_ns,
    };

    return error_trace(cuda_health_look(&execute->health, &oldest));
}

/* An earlier slice of the same job is not reported yet: the front counts a job's slices. */
static bool has_earlier_slice(struct cuda_execute *execute, const struct cuda_execute_entry *entry)
{
    list_for_each(link, &execute->under_way)
    {
        if (entry_of(link) == entry)
            break;
        if (entry_of(link)->job == entry->job)
            return true;
    }
    return false;
}

static struct cuda_execute_entry *first_ended(struct cuda_execute *execute)
{
    list_for_each(link, &execute->under_way)
    {
        struct cuda_execute_entry *entry = entry_of(link);

        if (has_ended(execute, entry) && !has_earlier_slice(execute, entry))
            return entry;
    }
    return NULL;
}

int cuda_execute_reap(struct cuda_execute *execute, struct gemmd_completion *ret_completion)
{
    if (execute->pending == 0)
        return 0;
    int r = cuda_panels_pump(&execute->panels);
    if (r < 0)
        return error_trace(r);
    look(execute);

    struct cuda_execute_entry *entry = first_ended(execute);
    if (!entry)
        return look_after(execute);

    list_unlink(&entry->link);
    list_append(&execute->vacant, &entry->link);
    execute->pending--;
    *ret_completion = (struct gemmd_completion){
        .job = entry->job,
        .status = entry->status,
        .started_ns = entry->started_ns,
        .finished_ns = clock_now_ns(),
    };
    return 1;
}
