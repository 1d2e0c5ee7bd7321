/*
 * The peer: cuBLASLt, loaded with dlopen, with every algorithm that its heuristic offers for a
 * product in 32 MiB of workspace. It has no row-major order that is as fast, so D^T = B^T A^T is
 * what it computes, on the same memory.
 */
#pragma once

#include "gpu.h"
#include "shapes.h"

#define PEER_ALGORITHMS_MAX 32

struct peer_algorithm { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct peer_buffers {
    CUdeviceptr a, b, d;
};

struct peer {
    struct peer_functions *functions;
    void *handle;
    CUdeviceptr workspace;

    /* of the current product */
    void *description, *first, *second, *result;
    enum dtype dtype;
    struct peer_algorithm algorithms[PEER_ALGORITHMS_MAX];
    size_t count, chosen;
    const struct peer_buffers *sets; /* borrowed */
};

/* False when there is no cuBLASLt here; `ret_why` says so. */
bool peer_open(struct peer *peer, struct gpu *gpu, const char **ret_why);
/* Asks the heuristic; false when it has nothing for this product. */
bool peer_begin(struct peer *peer, const struct shape *shape, const struct peer_buffers *sets);
void peer_end(struct peer *peer);
/* gpu_launch_fn with algorithm `chosen`; context is the peer. */
int peer_launch(void *context, CUstream stream, size_t set);
