/*
 * One row's product on the device: its operands in rotating sets of buffers, what the plan offers
 * for it, and the check that comes before any timing.
 *
 * Owner: the command, one at a time. Thread: one.
 */
#pragma once

#include "../../daemon/plan/plan.h"
#include "../../daemon/worker/cuda_running.h"
#include "../../daemon/worker/cuda_scratch.h"
#include "../../daemon/worker/cuda_workspace.h"
#include "data.h"
#include "kernel_set.h"
#include "peer.h"

/* Each launch of a graph has parameters of its own, 4 KiB of ours with tensor maps. Beyond some
 * hundred they are no longer in the L2, and a product that takes 2 us is measured by how they come
 * from memory: 64^3 then takes twice as long. So operands below 300 KiB a set stay in the L2. */
#define KERNELS_SETS_MAX 512

/* What all rows share. */
struct kernels_place {
    struct gpu *gpu;
    struct data data[DTYPE_COUNT];   /* made when a row first asks */
    CUdeviceptr memory;              /* the sets of the current row */
    struct cuda_scratch scratch;     /* the check's launch makes it large enough for the others */
    struct cuda_workspace workspace; /* and takes this */
    struct cuda_running running;
    size_t memory_size;
    void *result; /* pinned host memory for D */
    size_t result_size;
};

struct product {
    struct kernels_place *place;
    struct shape shape;
    struct problem problem;
    struct plan_ranking ranking;
    size_t bytes[3]; /* of A, B, D, rounded up */
    struct peer_buffers sets[KERNELS_SETS_MAX];
    size_t set_count, launches; /* of a graph */
};

/* gpu_launch_fn of our kernels. */
struct product_kernel {
    struct product *product;
    const struct cuda_kernel *kernel;
    uint32_t splits; /* as the plan says */
};

int product_launch(void *context, CUstream stream, size_t set);

/* Room for every shape. 0, or -1. */
int kernels_place_init(struct kernels_place *place,
                       struct gpu *gpu,
                       const struct shape *shapes,
                       size_t count);
void kernels_place_deinit(struct kernels_place *place);

/* The plan's ranking for a shape on this device. */
enum status product_rank(const struct gpu *gpu,
                         const struct shape *shape,
                         struct plan_ranking *ret_ranking,
                         struct fault *fault);
/* Places and fills the sets. 0, or -1. */
int product_init(struct product *product,
                 struct kernels_place *place,
                 const struct shape *shape,
                 const struct plan_ranking *ranking);
/* Launches on the first set and holds D against the reference; no element may stay unwritten. */
int product_check(struct product *product,
                  gpu_launch_fn launch,
                  void *context,
                  double *ret_error,
                  struct fault *fault);
