/*
 * Scratch memory of streamed products: two blocks that they take in turn, so that one product comes
 * in while the one before it goes out. Each is kept and grows; both are allocated and given back on
 * one stream, the one that copies in. The driver's pool orders that by the stream alone. Were they
 * given back where a product ends, on another stream, the pool would have to know when that end has
 * come: told to wait for it, no two products overlap; told not to, products found no memory left on
 * an empty H200 within seconds.
 *
 * Owner: cuda_panels. Thread: the worker's.
 */
#pragma once

#include "../core/status.h"
#include "driver.h"

#define CUDA_PANELS_BLOCKS 2

struct cuda_panels_block {
    CUdeviceptr address;
    uint64_t size; /* bytes; 0: there is none */
    CUevent over;  /* its last product's end */
    bool was_used; /* `over` was recorded */
};

struct cuda_panels_scratch {
    const struct driver *driver;
    CUstream stream; /* what comes in */
    struct cuda_panels_block blocks[CUDA_PANELS_BLOCKS];
    uint64_t turn; /* products that had a block: the next one's is blocks[turn % 2] */
};

/* 0, DRIVER_E_FAULT, or < 0. After a failure deinit gives back the rest. */
int cuda_panels_scratch_init(struct cuda_panels_scratch *scratch,
                             const struct driver *driver,
                             CUstream stream,
                             struct fault *ret_fault);
/* After all that used it has ended. */
void cuda_panels_scratch_deinit(struct cuda_panels_scratch *scratch);

/* At least `size` bytes for the next product: what comes next on the stream may write them, since
 * it waits for the product that had them before. */
int cuda_panels_scratch_take(struct cuda_panels_scratch *scratch,
                             uint64_t size,
                             CUdeviceptr *ret_address,
                             struct fault *ret_fault);
/* The product that took it last ends with what is on `stream` now. A block of more than `kept`
 * bytes is given back. */
int cuda_panels_scratch_end(struct cuda_panels_scratch *scratch,
                            CUstream stream,
                            uint64_t kept,
                            struct fault *ret_fault);
/* Frees what no product that is still being queued has (is_taken: one is), and waits until it is
 * free. False when there was nothing. */
bool cuda_panels_scratch_give_back(struct cuda_panels_scratch *scratch, bool is_taken);
