/*
 * Memory that launches of one stream take in turn: a block of the device's pool that grows with
 * what is asked for and is kept, since to allocate for each launch costs more than many a product.
 * Of what is small a block has some places, and uses take them in turn: one may be filled while
 * launches before still read others. Who reads a place is known by the launch's number
 * (cuda_running.h).
 *
 * Owner: whoever owns the stream. Thread: the worker's.
 */
#pragma once

#include "../core/status.h"
#include "driver.h"

/* A larger block goes back to the pool at once: what needs one takes much longer than that. */
#define CUDA_SCRATCH_KEPT ((uint64_t)128 << 20)
/* Uses of small products, of which several launches run at once: half as many as may, since each is
 * filled by a launch and read by one. */
#define CUDA_SCRATCH_SMALL  ((uint64_t)4 << 20)
#define CUDA_SCRATCH_PLACES 4
/* Larger ones have two places: one is read while the other is filled. What is larger still has one,
 * and takes much longer than the time between two launches. */
#define CUDA_SCRATCH_MIDDLE ((uint64_t)64 << 20)

struct cuda_scratch {
    const struct driver *driver;
    CUstream stream;
    CUdeviceptr block;
    uint64_t size;   /* of the block, bytes; 0: there is none */
    uint64_t holder; /* who filled the latest place, by a number of the user's; 0: nobody */
    uint64_t place_size;
    uint32_t place_count, place;          /* the latest */
    uint64_t reader[CUDA_SCRATCH_PLACES]; /* number of the last launch that reads it, or may */
};

/* No call to the driver. */
void cuda_scratch_init(struct cuda_scratch *scratch, const struct driver *driver, CUstream stream);
void cuda_scratch_deinit(struct cuda_scratch *scratch);

/* The next place, of at least `size` bytes, for what comes next on the stream; it has no holder.
 * launch: number of the latest, which may read any place of a block that is divided anew; then the
 * next is the first. 0, DRIVER_E_FAULT or < 0 as driver_check(). */
int cuda_scratch_next(struct cuda_scratch *scratch,
                      uint64_t size,
                      uint64_t launch,
                      struct fault *ret_fault);
/* Address of the latest place. */
CUdeviceptr cuda_scratch_address(const struct cuda_scratch *scratch);
/* Gives back what is not to be kept, behind what uses it. */
void cuda_scratch_trim(struct cuda_scratch *scratch);
