/*
 * Inputs that a kernel cannot read as they are, copied before it to scratch memory by a launch of
 * their own (kernels_src/load/repack.cuh).
 *
 * The copies of a short product are made beside the launches before it, where these write none of
 * its inputs and read other places of the scratch memory: what comes between two products in a row
 * is then no more than for others. Those of a long one wait for the end of the product before, so
 * that its CTAs begin together, those of a cluster beside each other.
 */
#pragma once

#include "cuda_launch.h"

/* Leaves the job reading what the kernel can read. ret_are_read: copies, made now or before. 0,
 * DRIVER_E_FAULT or < 0 as driver_check(). */
int cuda_copies_make(const struct cuda_launch_target *target,
                     const struct cuda_kernel *kernel,
                     struct gemmd_job *job,
                     bool *ret_are_read,
                     struct fault *ret_fault);
/* By the latest launch, those that were made or found last. */
void cuda_copies_read(const struct cuda_launch_target *target);
