/*
 * The workspace of a lane: what clusters that share a tile along K leave for each other
 * (kernels_src/abi/job.h says how it is laid out). Taken at the first need and kept: kernels leave
 * its counters at zero, and a worker whose kernel did not come to its end is replaced.
 *
 * Owner: cuda_lane. Thread: the worker's.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "cuda_kernel.h"

struct cuda_workspace {
    CUdeviceptr address; /* 0: not taken yet */
};

/* Takes it, if it is not there. DRIVER_E_FAULT when the device has no memory. */
int cuda_workspace_take(struct cuda_workspace *workspace,
                        const struct driver *driver,
                        CUstream stream,
                        struct fault *ret_fault);
/* Gives a job that has splits its workspace, on the stream that it will run on. DRIVER_E_FAULT when
 * the device has no memory, or when the job's splits ask for more than there is. */
int cuda_workspace_give(struct cuda_workspace *workspace,
                        const struct driver *driver,
                        CUstream stream,
                        const struct cuda_kernel *kernel,
                        struct gemmd_job *job,
                        struct fault *ret_fault);
/* After all that used it. */
void cuda_workspace_deinit(struct cuda_workspace *workspace,
                           const struct driver *driver,
                           CUstream stream);
