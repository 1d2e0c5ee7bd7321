/*
 * Which inputs of a job must be copied before tensor copies can read them, and where the copies lie
 * in scratch memory: pure functions of the job. For kernels with rows of any alignment
 * (CONFIG_COPY_REPACK).
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "../core/std.h"

/* What the copies of `job` take, in bytes; 0 when no input needs one. Destinations in `ret_repack`
 * are offsets until repack_place(). */
uint64_t repack_plan(const struct gemmd_job *job, struct gemmd_repack *ret_repack);
/* Gives the scratch memory an address, on 256 bytes, and rewrites the job to read the copies. */
void repack_place(struct gemmd_repack *repack, uint64_t base, struct gemmd_job *job);
/* Turns of a CTA, each of GEMMD_REPACK_CHUNKS chunks of 16 bytes of one input. */
uint64_t repack_turns(const struct gemmd_repack *repack);
