/*
 * A product as the job that a worker takes: the front's command, and what tests and benchmarks
 * launch by themselves.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "../core/problem.h"

/* `problem` is row-major with its defaults filled, `address` by role. What the BLAS rules do not
 * touch gets no address, and strides of 0: a client may have said anything of it, and whoever
 * computes with that would overflow. All tiles; no flag of host memory. */
void link_job_describe(const struct problem *problem,
                       const uint64_t address[OPERAND_COUNT],
                       struct gemmd_job *ret_job);
