#include "cuda_scratch.h"

#define GRANULARITY ((uint64_t)2 << 20) /* what the driver's pools map at once */

void cuda_scratch_init(struct cuda_scratch *scratch, const struct driver *driver, CUstream stream)
{
    *scratch = (struct cuda_scratch){.driver = driver, .stream = stream};
}

/* A device that is lost has lost the block, too: nothing to answer. */
static void release(struct cuda_scratch *scratch)
{
    if (scratch->size)
        (void)cu(scratch->driver)->MemFreeAsync(scratch->address, scratch->stream);
    scratch->address = 0;
    scratch->size = 0;
    scratch->holder = 0;
}

void cuda_scratch_deinit(struct cuda_scratch *scratch)
{
    release(scratch);
}

int cuda_scratch_reserve(struct cuda_scratch *scratch, uint64_t size, struct fault *ret_fault)
{
    if (size <= scratch->size)
        return 0;

    /* First given back, so that the new block can be made of the old one. */
    release(scratch);
    size = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    int r =
        cu_try(scratch->driver, ret_fault, MemAllocAsync, &scratch->address, size, scratch->stream);
    if (!r)
        scratch->size = size;
    return r;
}

void cuda_scratch_trim(struct cuda_scratch *scratch)
{
    if (scratch->size > CUDA_SCRATCH_KEPT)
        release(scratch);
}
