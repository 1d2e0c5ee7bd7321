/*
 * One feed's launch: how large the grid is, the tensor maps that the kernel takes, and where inputs
 * must be repacked first, the launch before it that does so. The worker and the benchmark launch
 * through this.
 *
 * Kernels that begin early run beside the end of the launch before them, and let the next one begin
 * when that has ended. So the launch before is the only one that may still be writing; inputs that
 * it does not write are settled and the kernel reads them at once. A grid that leaves room is told
 * to let the next one begin at once: then some launches may be writing, and inputs are settled that
 * none of them writes. Each of them ends after all before it have. Copies, fills and writes in
 * between wait for it, and the next launch for them, as it does for events that the stream waits
 * for there; to record one keeps nobody.
 *
 * Thread: the worker's. Holds nothing.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "access.h"
#include "cuda_kernel.h"
#include "cuda_running.h"
#include "cuda_scratch.h"
#include "cuda_workspace.h"

/* Jobs one feed of this kernel may carry. */
uint32_t cuda_launch_jobs_max(const struct cuda_kernel *kernel);

/* Where launches go. */
struct cuda_launch_target {
    const struct driver *driver;
    uint32_t multiprocessors; /* of the device */
    CUstream stream;
    struct cuda_scratch *scratch;     /* of the stream; for kernels that repack their inputs */
    struct cuda_workspace *workspace; /* of the stream; for jobs with splits */
    struct cuda_running *running;     /* of the stream */
    uint64_t holder; /* number of what the feed is a part of: a later part finds the copies of an
                        earlier one where they are; 0: they are made anew */
};

/* What clusters compute at a time, of a job: units, each as often as it has splits. */
uint64_t cuda_launch_units(const struct cuda_kernel *kernel, const struct gemmd_job *job);

struct cuda_launch_shape {
    unsigned threads, shared_memory; /* of a CTA */
};

/* A launch beside the end of the one before, without clusters, of a kernel with one parameter. */
int cuda_launch_beside(const struct cuda_launch_target *target,
                       CUfunction function,
                       const struct cuda_launch_shape *shape,
                       unsigned grid,
                       const void *parameter,
                       struct fault *ret_fault);
/* Whether it takes no longer than one that gains by that. */
bool cuda_launch_is_short(const struct gemmd_job *job);

/* Queues `feed` on the stream, at least one job and none of it empty. 0, DRIVER_E_FAULT or < 0 as
 * driver_check(). */
int cuda_launch(const struct cuda_launch_target *target,
                const struct cuda_kernel *kernel,
                const struct gemmd_feed *feed,
                struct fault *ret_fault);
