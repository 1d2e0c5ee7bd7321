/*
 * One product, struct gemmd_job, on the CPU. Rules as in daemon/core/problem.h: beta = 0 never
 * reads C, alpha = 0 or k = 0 never reads A and B, only the m x n elements of each D are written,
 * D may be C.
 *
 * Owner: backend_cpu. Thread: the worker's. The scratch memory grows to what the largest product
 * needed (bounded by the block sizes: 24 MiB) and is kept.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "../core/status.h"
#include "blas.h"

struct cpu_gemm {
    const struct blas *blas; /* borrowed */
    void *scratch[3];        /* one block each of A, B and their product */
    size_t scratch_size[3];
};

#define CPU_GEMM_NULL ((struct cpu_gemm){0})

void cpu_gemm_init(struct cpu_gemm *gemm, const struct blas *blas);
void cpu_gemm_deinit(struct cpu_gemm *gemm);

/* STATUS_OK, STATUS_UNSUPPORTED (types that have no product; a slice of tiles) or
 * STATUS_OUT_OF_MEMORY. */
enum status cpu_gemm_run(struct cpu_gemm *gemm, const struct gemmd_job *job);
