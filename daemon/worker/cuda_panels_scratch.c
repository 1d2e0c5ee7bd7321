#include "cuda_panels_scratch.h"

int cuda_panels_scratch_init(struct cuda_panels_scratch *scratch,
                             const struct driver *driver,
                             CUstream stream,
                             struct fault *ret_fault)
{
    int r = 0;

    *scratch = (struct cuda_panels_scratch){.driver = driver, .stream = stream};
    for (size_t i = 0; i < CUDA_PANELS_BLOCKS && !r; i++)
        r = cu_try(driver, ret_fault, EventCreate, &scratch->blocks[i].over,
                   CU_EVENT_DISABLE_TIMING);
    return r;
}

void cuda_panels_scratch_deinit(struct cuda_panels_scratch *scratch)
{
    for (size_t i = 0; i < CUDA_PANELS_BLOCKS; i++) {
        struct cuda_panels_block *block = &scratch->blocks[i];

        if (block->size)
            (void)cu(scratch->driver)->MemFreeAsync(block->address, /* stream= */ NULL);
        if (block->over)
            (void)cu(scratch->driver)->EventDestroy(block->over);
        *block = (struct cuda_panels_block){0};
    }
}

static int wait_for_last(const struct cuda_panels_scratch *scratch,
                         const struct cuda_panels_block *block,
                         struct fault *ret_fault)
{
    if (!block->was_used)
        return 0;
    return cu_try(scratch->driver, ret_fault, StreamWaitEvent, scratch->stream, block->over,
                  CU_EVENT_WAIT_DEFAULT);
}

/* Behind its last product. A device that is lost has lost the block, too: nothing to answer. */
static void release(const struct cuda_panels_scratch *scratch, struct cuda_panels_block *block)
{
    struct fault ignored;

    if (block->size && wait_for_last(scratch, block, &ignored) == 0)
        (void)cu(scratch->driver)->MemFreeAsync(block->address, scratch->stream);
    block->address = 0;
    block->size = 0;
}

static struct cuda_panels_block *block_of(struct cuda_panels_scratch *scratch, uint64_t turn)
{
    return &scratch->blocks[turn % CUDA_PANELS_BLOCKS];
}

int cuda_panels_scratch_take(struct cuda_panels_scratch *scratch,
                             uint64_t size,
                             CUdeviceptr *ret_address,
                             struct fault *ret_fault)
{
    struct cuda_panels_block *block = block_of(scratch, scratch->turn);
    int r = 0;

    if (size > block->size) {
        release(scratch, block);
        r = cu_try(scratch->driver, ret_fault, MemAllocAsync, &block->address, size,
                   scratch->stream);
        if (!r)
            block->size = size;
    } else {
        r = wait_for_last(scratch, block, ret_fault);
    }
    if (r)
        return r;
    *ret_address = block->address;
    scratch->turn++;
    return 0;
}

int cuda_panels_scratch_end(struct cuda_panels_scratch *scratch,
                            CUstream stream,
                            uint64_t kept,
                            struct fault *ret_fault)
{
    struct cuda_panels_block *block = block_of(scratch, scratch->turn - 1);
    int r = cu_try(scratch->driver, ret_fault, EventRecord, block->over, stream);

    block->was_used = true;
    if (!r && block->size > kept)
        release(scratch, block);
    return r;
}

bool cuda_panels_scratch_give_back(struct cuda_panels_scratch *scratch, bool is_taken)
{
    const struct cuda_panels_block *taken = is_taken ? block_of(scratch, scratch->turn - 1) : NULL;
    bool had_any = false;

    for (size_t i = 0; i < CUDA_PANELS_BLOCKS; i++) {
        struct cuda_panels_block *block = &scratch->blocks[i];

        if (block == taken || block->size == 0)
            continue;
        release(scratch, block);
        had_any = true;
    }
    if (had_any)
        (void)cu(scratch->driver)->StreamSynchronize(scratch->stream);
    return had_any;
}
