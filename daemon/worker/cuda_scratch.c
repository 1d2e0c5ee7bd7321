#include "cuda_scratch.h"

#define GRANULARITY     ((uint64_t)2 << 20) /* what the driver's pools map at once */
#define PLACE_ALIGNMENT 256                 /* bytes; as the block's own */

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

void cuda_scratch_init(struct cuda_scratch *scratch, const struct driver *driver, CUstream stream)
{
    *scratch = (struct cuda_scratch){.driver = driver, .stream = stream};
}

/* A device that is lost has lost the block, too: nothing to answer. */
static void release(struct cuda_scratch *scratch)
{
    if (scratch->size)
        (void)cu(scratch->driver)->MemFreeAsync(scratch->block, scratch->stream);
    cuda_scratch_init(scratch, scratch->driver, scratch->stream);
}

void cuda_scratch_deinit(struct cuda_scratch *scratch)
{
    release(scratch);
}

static int reserve(struct cuda_scratch *scratch, uint64_t size, struct fault *ret_fault)
{
    if (size <= scratch->size)
        return 0;

    /* First given back, so that the new block can be made of the old one. */
    release(scratch);
    size = round_up(size, GRANULARITY);
    int r =
        cu_try(scratch->driver, ret_fault, MemAllocAsync, &scratch->block, size, scratch->stream);
    if (!r)
        scratch->size = size;
    return r;
}

/* Places have all of the block, so that somewhat larger uses find them large enough. A device that
 * has no memory for some of them may have it for one. */
static int divide(struct cuda_scratch *scratch,
                  uint64_t size,
                  uint32_t count,
                  uint64_t launch,
                  struct fault *ret_fault)
{
    uint64_t place_size = round_up(size, PLACE_ALIGNMENT);
    int r = reserve(scratch, place_size * count, ret_fault);

    if (r == DRIVER_E_FAULT && ret_fault->status == STATUS_OUT_OF_MEMORY && count > 1) {
        count = 1;
        r = reserve(scratch, place_size, ret_fault);
    }
    if (r)
        return r;
    scratch->place_size = scratch->size / count / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
    scratch->place_count = count;
    scratch->place = 0;
    for (uint32_t i = 0; i < CUDA_SCRATCH_PLACES; i++)
        scratch->reader[i] = launch;
    return 0;
}

static uint32_t places_for(uint64_t size)
{
    if (size <= CUDA_SCRATCH_SMALL)
        return CUDA_SCRATCH_PLACES;
    return size <= CUDA_SCRATCH_MIDDLE ? 2 : 1;
}

int cuda_scratch_next(struct cuda_scratch *scratch,
                      uint64_t size,
                      uint64_t launch,
                      struct fault *ret_fault)
{
    uint32_t count = places_for(size);

    scratch->holder = 0;
    if (count != scratch->place_count || size > scratch->place_size)
        return divide(scratch, size, count, launch, ret_fault);
    scratch->place = (scratch->place + 1) % count;
    return 0;
}

CUdeviceptr cuda_scratch_address(const struct cuda_scratch *scratch)
{
    return scratch->block + scratch->place * scratch->place_size;
}

void cuda_scratch_trim(struct cuda_scratch *scratch)
{
    if (scratch->size > CUDA_SCRATCH_KEPT)
        release(scratch);
}
