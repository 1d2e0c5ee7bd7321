/*
 * One launch: how large the grid is, and the tensor maps that the kernel takes. The worker and the
 * benchmark launch through this.
 *
 * Thread: the worker's. Holds nothing.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "cuda_kernel.h"

/* Jobs one feed of this kernel may carry. */
uint32_t cuda_launch_jobs_max(const struct cuda_kernel *kernel);

/* Queues `feed` on the stream, at least one job and none of it empty. `multiprocessors`: of the
 * device. 0, DRIVER_E_FAULT or < 0 as driver_check(). */
int cuda_launch(const struct driver *driver,
                const struct cuda_kernel *kernel,
                const struct gemmd_feed *feed,
                uint32_t multiprocessors,
                CUstream stream,
                struct fault *ret_fault);
