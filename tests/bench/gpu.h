/*
 * A GPU to time on: the worker's own modules for device and kernels, and CUDA graphs, so that what
 * is timed is the device and not the launching host.
 */
#pragma once

#include "../../daemon/worker/cuda_device.h"
#include "../../daemon/worker/cuda_kernel.h"

struct gpu {
    struct driver driver;
    struct cuda_device device;
    struct link_device facts;
    struct cuda_kernels kernels;
    CUstream stream;
    CUevent start, stop;
};

/* A driver call that the daemon does not use. */
#define GPU_CALL(gpu, name) ((__typeof__(cu##name) *)driver_symbol(&(gpu)->driver, "cu" #name))

int gpu_open(struct gpu *gpu, const char *selector, struct fault *ret_fault);
void gpu_close(struct gpu *gpu);

/* Queues the product on buffer set `set`. 0, or what the library said. */
typedef int (*gpu_launch_fn)(void *context, CUstream stream, size_t set);

struct gpu_graph {
    CUgraphExec executable;
    size_t launches;
};

/* `launches` products over sets 0, 1, ... in rotation. */
int gpu_graph_capture(struct gpu *gpu,
                      gpu_launch_fn launch,
                      void *context,
                      size_t sets,
                      size_t launches,
                      struct gpu_graph *ret_graph);
void gpu_graph_free(struct gpu *gpu, struct gpu_graph *graph);
/* Starts `repeats` runs; the other waits for them and gives the seconds of one product. Negative:
 * the device failed. */
int gpu_graph_start(struct gpu *gpu, const struct gpu_graph *graph, size_t repeats);
double gpu_graph_finish(struct gpu *gpu, const struct gpu_graph *graph, size_t repeats);
/* Both. */
double gpu_graph_time(struct gpu *gpu, const struct gpu_graph *graph, size_t repeats);
