/*
 * Cubins loaded into the context, by the front's number, with what a launch needs to know.
 *
 * Owner: backend_cuda. Thread: the worker's.
 */
#pragma once

#include "../core/list.h"
#include "../link/link_message.h"
#include "driver.h"

struct cuda_kernel {
    struct list link; /* in cuda_kernels.list */
    uint64_t id;
    CUmodule module;
    CUfunction function;
    CUfunction repack; /* what is launched before it; NULL: nothing */
    CUfunction sum;    /* what is launched behind it; NULL: nothing */
    uint32_t threads, shared_memory;
    uint32_t ctas_per_multiprocessor; /* what fits in fact, at most what was planned */
    uint32_t tile_m, tile_n, cluster_m, cluster_n, cluster_k;
    bool has_cta_per_tile; /* else CTAs walk */
    bool begins_early;     /* takes tensor feeds, and waits for the grid before it by itself */
    struct link_box box[LINK_BOXES];
    char configuration[sizeof(((struct link_message *)0)->configuration)];
};

struct cuda_kernels {
    const struct driver *driver;
    struct list list;
};

void cuda_kernels_init(struct cuda_kernels *kernels, const struct driver *driver);
void cuda_kernels_deinit(struct cuda_kernels *kernels);

/* As backend_operations.load: 0, DRIVER_E_FAULT when the driver or the device refuses the cubin,
 * < 0 when the device is lost. */
int cuda_kernels_load(struct cuda_kernels *kernels,
                      const struct link_message *request,
                      const void *cubin,
                      struct fault *ret_fault);
/* Unknown numbers are ignored. */
void cuda_kernels_unload(struct cuda_kernels *kernels, uint64_t id);
/* NULL when no such kernel is loaded. */
const struct cuda_kernel *cuda_kernels_find(const struct cuda_kernels *kernels, uint64_t id);
