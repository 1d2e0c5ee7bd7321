/*
 * The bias of a product that streams (cuda_panels.h): one that lies in host memory is copied whole,
 * behind the scratch memory of the plan, before the first block is computed; each block then reads
 * its part.
 *
 * Thread: the worker's. Holds nothing.
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "cuda_box.h"
#include "panel_plan.h"

/* Bytes of the copy; 0 when none is made. */
uint64_t cuda_bias_size(const struct gemmd_job *job);
/* What is copied, to `copy`. */
struct cuda_box cuda_bias_box(const struct gemmd_job *job, CUdeviceptr copy);
/* `block` computes the rows, columns and items of the step: the bias that is theirs. */
void cuda_bias_aim(const struct gemmd_job *whole,
                   CUdeviceptr copy,
                   const struct panel_step *step,
                   struct gemmd_job *block);
