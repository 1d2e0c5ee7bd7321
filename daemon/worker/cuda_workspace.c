#include "cuda_workspace.h"
#include "cuda_launch.h"

#include <inttypes.h>

int cuda_workspace_take(struct cuda_workspace *workspace,
                        const struct driver *driver,
                        CUstream stream,
                        struct fault *ret_fault)
{
    CUdeviceptr address;
    if (workspace->address)
        return 0;

    int r = cu_try(driver, ret_fault, MemAllocAsync, &address, GEMMD_SPLIT_WORKSPACE, stream);

    if (r)
        return r;
    r = cu_parked_try(driver, ret_fault, MemsetD8Async, address, 0,
                      GEMMD_SPLIT_COUNTERS * sizeof(gemmd_u32), stream);
    if (r) {
        (void)cu(driver)->MemFreeAsync(address, stream);
        return r;
    }
    workspace->address = address;
    return 0;
}

/* The front's plan asks for no more; a job that does would write over what is not its own. */
static bool fits(const struct cuda_kernel *kernel, const struct gemmd_job *job)
{
    uint64_t tile = (uint64_t)kernel->tile_m * kernel->tile_n * sizeof(float);
    uint64_t places = cuda_launch_units(kernel, job) * kernel->cluster_m * kernel->cluster_n;
    uint64_t counters = places / MAX(job->splits, 1u) * kernel->cluster_k * GEMMD_SPLIT_WARPS;
    uint64_t room = GEMMD_SPLIT_WORKSPACE - GEMMD_SPLIT_COUNTERS * sizeof(gemmd_u32);

    return (kernel->sum || counters <= GEMMD_SPLIT_COUNTERS) && places <= room / tile;
}

int cuda_workspace_give(struct cuda_workspace *workspace,
                        const struct driver *driver,
                        CUstream stream,
                        const struct cuda_kernel *kernel,
                        struct gemmd_job *job,
                        struct fault *ret_fault)
{
    if (!fits(kernel, job)) {
        fault_set(ret_fault, STATUS_INTERNAL, "",
                  "kernel %s: a product of %" PRId64 " x %" PRId64
                  " in %u splits does not fit into "
                  "the workspace of %u bytes",
                  kernel->configuration, (int64_t)job->m, (int64_t)job->n, job->splits,
                  GEMMD_SPLIT_WORKSPACE);
        return DRIVER_E_FAULT;
    }
    int r = cuda_workspace_take(workspace, driver, stream, ret_fault);
    job->workspace = workspace->address;
    return r;
}

void cuda_workspace_deinit(struct cuda_workspace *workspace,
                           const struct driver *driver,
                           CUstream stream)
{
    if (workspace->address)
        (void)cu(driver)->MemFreeAsync(workspace->address, stream);
    workspace->address = 0;
}
