/*
 * Inputs that a kernel cannot read as they are, copied before it to scratch memory by a launch of
 * their own (kernels_src/load/repack.cuh).
 *
 * The copies of a small product are made beside the launches before it, where these write none of
 * its inputs and read another place of the scratch memory: what comes between two products in a row
 * is then no more than for others.
 */
#pragma once

#include "cuda_launch.h"

/* Leaves the job reading what the kernel can read. 0, DRIVER_E_FAULT or < 0 as driver_check(). */
int cuda_copies_make(const struct cuda_launch_target *target,
                     const struct cuda_kernel *kernel,
                     struct gemmd_job *job,
                     struct fault *ret_fault);
/* The latest launch reads them, or may. */
void cuda_copies_read(const struct cuda_launch_target *target);
