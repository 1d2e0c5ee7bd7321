/*
 * Staging: the device copies of a job's host operands, and their way in and out.
 *
 * A staged matrix is packed: its rows start on 16 bytes whenever the client's did, so the kernel
 * that was planned from the client's addresses is right for the copy as well. Of D only the m x n
 * elements travel, so what lies between the rows of a client's matrix stays as it is.
 *
 * All copies and the kernel are on one stream, in order: for jobs whose copies are over sooner than
 * streams could be told of each other. Large ones are cut into panels instead (cuda_panels.h).
 */
#pragma once

#include "../../kernels_src/abi/job.h"
#include "../core/problem.h"
#include "cuda_box.h"

#define CUDA_STAGE_HOST_FLAGS                                                                      \
    ((uint32_t)(GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_B | GEMMD_JOB_HOST_C | GEMMD_JOB_HOST_D |        \
                GEMMD_JOB_HOST_BIAS))

struct cuda_stage_operand {
    struct cuda_box box; /* .device is an offset until cuda_stage_place() */
    bool is_staged, goes_in, goes_out;
};

struct cuda_stage {
    struct cuda_stage_operand operands[OPERAND_COUNT];
    bool is_in_place; /* C and D are one matrix in host memory, and so are their copies */
    uint64_t size;    /* bytes of scratch memory; 0: nothing is staged */
};

/* Lays out the scratch memory. DRIVER_E_FAULT when it is larger than any memory. */
int cuda_stage_plan(struct cuda_stage *stage, const struct gemmd_job *job, struct fault *ret_fault);
/* Gives the scratch memory an address, and rewrites the job's operands to their copies. */
void cuda_stage_place(struct cuda_stage *stage, CUdeviceptr base, struct gemmd_job *job);
int cuda_stage_copy(const struct cuda_stage *stage,
                    const struct driver *driver,
                    CUstream stream,
                    enum cuda_box_direction direction,
                    struct fault *ret_fault);
