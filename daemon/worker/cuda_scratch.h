/*
 * Memory that launches of one stream take in turn: a block of the device's pool that grows with
 * what is asked for and is kept, since to allocate for each launch costs more than many a product.
 * Every use is ordered by the stream, so a block needs no count of who uses it.
 *
 * Owner: whoever owns the stream. Thread: the worker's.
 */
#pragma once

#include "../core/status.h"
#include "driver.h"

/* A larger block goes back to the pool at once: what needs one takes much longer than that. */
#define CUDA_SCRATCH_KEPT ((uint64_t)128 << 20)

struct cuda_scratch {
    const struct driver *driver;
    CUstream stream;
    CUdeviceptr address;
    uint64_t size;   /* bytes; 0: there is no block */
    uint64_t holder; /* who filled it last, by a number of the user's; 0: nobody */
};

/* No call to the driver. */
void cuda_scratch_init(struct cuda_scratch *scratch, const struct driver *driver, CUstream stream);
void cuda_scratch_deinit(struct cuda_scratch *scratch);

/* At least `size` bytes at `address`, for what comes next on the stream. A block that had to be
 * replaced has no holder. 0, DRIVER_E_FAULT or < 0 as driver_check(). */
int cuda_scratch_reserve(struct cuda_scratch *scratch, uint64_t size, struct fault *ret_fault);
/* Gives back what is not to be kept, behind what uses it. */
void cuda_scratch_trim(struct cuda_scratch *scratch);
