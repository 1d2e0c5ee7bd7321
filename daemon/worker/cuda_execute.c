#include "cuda_execute.h"
#include "../core/error.h"
#include "../core/log.h"
#include "cuda_launch.h"
#include "cuda_stage.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* How long a faulted device may go unnoticed by a worker that waits. One query costs about 1 us. */
#define HEALTH_INTERVAL_NS 200000

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int cuda_execute_init(struct cuda_execute *execute,
                      const struct driver *driver,
                      const struct cuda_kernels *kernels,
                      uint32_t multiprocessors,
                      struct fault *ret_fault)
{
    void *word = NULL;
    *execute = (struct cuda_execute){
        .driver = driver, .kernels = kernels, .multiprocessors = MAX(multiprocessors, 1u)};
    int r = cu_try(driver, ret_fault, StreamCreate, &execute->stream, CU_STREAM_NON_BLOCKING);
    if (r)
        return r;

    r = cu_try(driver, ret_fault, MemHostAlloc, &word, sizeof(*execute->done),
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (!r) {
        execute->done = word;
        *execute->done = 0;
        r = cu_try(driver, ret_fault, MemHostGetDevicePointer, &execute->done_device, word, 0);
    }
    if (r)
        cuda_execute_deinit(execute);
    return r;
}

void cuda_execute_deinit(struct cuda_execute *execute)
{
    const struct driver *driver = execute->driver;
    if (execute->stream) {
        (void)cu(driver)->StreamSynchronize(execute->stream);
        (void)cu(driver)->StreamDestroy(execute->stream);
    }
    if (execute->done)
        (void)cu_parked(driver)->MemFreeHost(execute->done);
    execute->stream = NULL;
    execute->done = NULL;
}

/* --- products -------------------------------------------------------------------------------- */

static int launch(struct cuda_execute *execute,
                  const struct cuda_kernel *kernel,
                  const struct gemmd_feed *feed,
                  struct fault *ret_fault)
{
    return cuda_launch(execute->driver, kernel, feed, execute->multiprocessors, execute->stream,
                       ret_fault);
}

static int launch_staged(struct cuda_execute *execute,
                         const struct cuda_kernel *kernel,
                         struct gemmd_feed *feed,
                         struct cuda_stage *stage,
                         struct fault *ret_fault)
{
    const struct driver *driver = execute->driver;
    CUstream stream = execute->stream;
    CUdeviceptr scratch = 0;
    int r = 0;
    if (stage->size)
        r = cu_try(driver, ret_fault, MemAllocAsync, &scratch, stage->size, stream);
    if (r)
        return r;

    cuda_stage_place(stage, scratch, &feed->jobs[0]);
    r = cuda_stage_copy(stage, driver, stream, CUDA_BOX_TO_DEVICE, ret_fault);
    if (!r)
        r = launch(execute, kernel, feed, ret_fault);
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

static int
run_gemm(struct cuda_execute *execute, const struct gemmd_command *command, struct fault *ret_fault)
{
    const struct gemmd_job *job = &command->body.gemm;
    struct gemmd_feed feed = {.job_count = 1, .jobs[0] = *job};
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
        return launch(execute, kernel, &feed, ret_fault);

    int r = cuda_stage_plan(&stage, job, ret_fault);
    return r ? r : launch_staged(execute, kernel, &feed, &stage, ret_fault);
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
                       struct cuda_execute_entry *entry,
                       const struct gemmd_copy *copy,
                       struct fault *ret_fault)
{
    entry->host_copy = *copy;
    return cu_parked_try(execute->driver, ret_fault, LaunchHostFunc, execute->stream, copy_on_host,
                         &entry->host_copy);
}

static int run_copy(struct cuda_execute *execute,
                    struct cuda_execute_entry *entry,
                    const struct gemmd_copy *copy,
                    struct fault *ret_fault)
{
    const struct driver *driver = execute->driver;
    CUstream stream = execute->stream;
    uint64_t to = copy->destination, from = copy->source;
    bool from_host = copy->flags & GEMMD_JOB_HOST_A;
    bool to_host = copy->flags & GEMMD_JOB_HOST_D;
    if (copy->size == 0)
        return 0;
    if (from_host && to_host)
        return run_on_host(execute, entry, copy, ret_fault);
    if (from_host)
        return cu_try(driver, ret_fault, MemcpyHtoDAsync, to, (const void *)(uintptr_t)from,
                      copy->size, stream);
    if (to_host)
        return cu_try(driver, ret_fault, MemcpyDtoHAsync, (void *)(uintptr_t)to, from, copy->size,
                      stream);
    return cu_parked_try(driver, ret_fault, MemcpyDtoDAsync, to, from, copy->size, stream);
}

static int run_zero(struct cuda_execute *execute,
                    struct cuda_execute_entry *entry,
                    const struct gemmd_copy *copy,
                    struct fault *ret_fault)
{
    struct gemmd_copy fill = *copy;
    fill.source = 0;
    if (copy->size == 0)
        return 0;
    if (copy->flags & GEMMD_JOB_HOST_D)
        return run_on_host(execute, entry, &fill, ret_fault);
    return cu_parked_try(execute->driver, ret_fault, MemsetD8Async, copy->destination, 0,
                         copy->size, execute->stream);
}

/* --- the queue ------------------------------------------------------------------------------- */

static int run(struct cuda_execute *execute,
               struct cuda_execute_entry *entry,
               const struct gemmd_command *command,
               struct fault *ret_fault)
{
    switch (command->kind) {
    case GEMMD_COMMAND_GEMM:
        return run_gemm(execute, command, ret_fault);
    case GEMMD_COMMAND_COPY:
        return run_copy(execute, entry, &command->body.copy, ret_fault);
    case GEMMD_COMMAND_ZERO:
        return run_zero(execute, entry, &command->body.copy, ret_fault);
    default:
        return error_origin(-EPROTO); /* the front and the worker are one binary */
    }
}

int cuda_execute_submit(struct cuda_execute *execute, const struct gemmd_command *command)
{
    struct fault fault = FAULT_NONE;
    struct cuda_execute_entry *entry = &execute->entries[execute->submitted % CUDA_EXECUTE_DEPTH];
    assert(cuda_execute_pending(execute) < CUDA_EXECUTE_DEPTH);
    *entry = (struct cuda_execute_entry){
        .job = command->job, .started_ns = now_ns(), .status = STATUS_OK};

    int r = run(execute, entry, command, &fault);
    if (r < 0)
        return error_trace(r);
    if (r > 0) {
        entry->status = fault.status;
        log_warning("event=job_failed job=%" PRIu64 " reason=\"%s\"", command->job, fault.message);
    }

    r = cu_try(execute->driver, &fault, StreamWriteValue32, execute->stream, execute->done_device,
               (cuuint32_t)(execute->submitted + 1), CU_STREAM_WRITE_VALUE_DEFAULT);
    if (r)
        return error_fold(r); /* without the write no job after this one would ever complete */
    execute->submitted++;
    return 0;
}

uint32_t cuda_execute_pending(const struct cuda_execute *execute)
{
    return (uint32_t)(execute->submitted - execute->reaped);
}

/* The device writes 32 bits of a 64-bit count; at most DEPTH are outstanding, so the difference
 * says it all. The acquire load pairs with the stream's system-wide barrier before its write. */
static void look(struct cuda_execute *execute)
{
    uint32_t done = __atomic_load_n(execute->done, __ATOMIC_ACQUIRE);
    execute->finished += (uint32_t)(done - (uint32_t)execute->finished);
}

static int ask_for_health(struct cuda_execute *execute)
{
    uint64_t now = now_ns();
    if (now - execute->asked_ns < HEALTH_INTERVAL_NS)
        return 0;

    execute->asked_ns = now;
    CUresult result = cu(execute->driver)->StreamQuery(execute->stream);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return 0;
    log_error("event=device_lost call=cuStreamQuery error=%s",
              driver_error_name(execute->driver, result));
    return error_origin(-EIO);
}

int cuda_execute_reap(struct cuda_execute *execute, struct gemmd_completion *ret_completion)
{
    if (execute->reaped == execute->submitted)
        return 0;
    if (execute->reaped == execute->finished)
        look(execute);
    if (execute->reaped == execute->finished)
        return ask_for_health(execute);

    const struct cuda_execute_entry *entry =
        &execute->entries[execute->reaped++ % CUDA_EXECUTE_DEPTH];
    *ret_completion = (struct gemmd_completion){
        .job = entry->job,
        .status = entry->status,
        .started_ns = entry->started_ns,
        .finished_ns = now_ns(),
    };
    return 1;
}
