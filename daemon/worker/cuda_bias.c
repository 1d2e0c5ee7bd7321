#include "cuda_bias.h"

static int64_t length_of(const struct gemmd_job *job)
{
    if (job->flags & GEMMD_JOB_BIAS_PER_ROW)
        return job->m;
    return job->flags & GEMMD_JOB_BIAS_PER_COLUMN ? job->n : 0;
}

static bool is_copied(const struct gemmd_job *job)
{
    return (job->flags & GEMMD_JOB_HOST_BIAS) && length_of(job) > 0;
}

static uint64_t items_of(const struct gemmd_job *job)
{
    return job->stride_bias == 0 ? 1 : (uint64_t)job->batch;
}

static uint64_t element_of(const struct gemmd_job *job)
{
    return dtype_size((enum dtype)job->output);
}

/* No overflow: with D, which is larger, it was checked when the request came. */
uint64_t cuda_bias_size(const struct gemmd_job *job)
{
    return is_copied(job) ? (uint64_t)length_of(job) * items_of(job) * element_of(job) : 0;
}

struct cuda_box cuda_bias_box(const struct gemmd_job *job, CUdeviceptr copy)
{
    uint64_t width = (uint64_t)length_of(job) * element_of(job);

    return (struct cuda_box){
        .width = width,
        .rows = 1,
        .items = items_of(job),
        .host_pitch = width,
        .host_stride = (uint64_t)job->stride_bias * element_of(job),
        .host = (char *)(uintptr_t)job->bias,
        .device_pitch = width,
        .device_stride = width,
        .device = copy,
    };
}

void cuda_bias_aim(const struct gemmd_job *whole,
                   CUdeviceptr copy,
                   const struct panel_step *step,
                   struct gemmd_job *block)
{
    bool is_per_row = whole->flags & GEMMD_JOB_BIAS_PER_ROW;
    int64_t first = is_per_row ? step->row : step->column;

    if (length_of(whole) == 0)
        return;
    if (is_copied(whole)) {
        block->bias = copy;
        block->stride_bias = whole->stride_bias == 0 ? 0 : length_of(whole);
    }
    block->bias += (uint64_t)(step->item * block->stride_bias + first) * element_of(whole);
}
