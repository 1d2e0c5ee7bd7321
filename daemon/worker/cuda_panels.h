/*
 * Products on host memory, streamed: the steps of a plan (panel_plan.h) on lanes for what comes in,
 * what is computed (two of them, so that the multiprocessors which one block's last tiles leave
 * idle take the next block's first) and what goes out, with events between them.
 *
 * Products are queued one after the other, a few steps ahead of the device, so that no call takes
 * long; the copies of one begin while the one before it is still computed. Each ends on the lane of
 * its track, like any command. Their order is the order of their ends and no other: the front does
 * not submit one that needs what another one writes.
 *
 * Owner: cuda_execute. Thread: the worker's.
 */
#pragma once

#include "../core/status.h"
#include "cuda_kernel.h"
#include "cuda_lane.h"
#include "cuda_panels_scratch.h"
#include "panel_plan.h"

#define CUDA_PANELS_DEPTH 64 /* products */
#define CUDA_PANELS_BURST 4  /* steps queued in one call: about 80 us */

/* Steps queued before one of them must be over: more than the device does while the worker sleeps,
 * less than the driver's queues hold. A power of two, so that a step's lane follows its place. */
#define CUDA_PANELS_AHEAD 64

/* Of the device's memory that one product may have as scratch, and that is kept; two are under way.
 */
#define CUDA_PANELS_FRACTION 32

struct cuda_panels_entry {
    struct gemmd_job job;
    uint64_t kernel, number; /* number: the front's, for the log */
    enum status *ret_status; /* written when it ends */
    uint64_t *ret_end;       /* of its end on the lane */
};

struct cuda_panels_step {
    CUevent loaded, computed, stored;
};

struct cuda_panels {
    const struct driver *driver;
    const struct cuda_kernels *kernels;
    uint32_t multiprocessors;
    uint64_t scratch_limit; /* bytes; more where no panel fits, up to `scratch_most` */
    uint64_t scratch_most;
    struct cuda_lane *in, *out, *compute[2];

    struct cuda_panels_entry entries[CUDA_PANELS_DEPTH];
    uint64_t taken, ended; /* products */

    bool rests; /* the caller's: nothing more is queued for now */

    /* The product that is being queued. */
    bool is_open;
    const struct cuda_kernel *kernel;
    struct panel_plan plan;
    struct panel_cursor cursor;
    CUdeviceptr scratch; /* 0: it has none */

    struct cuda_panels_scratch blocks;

    /* Steps of all products: `first` is the open one's first, `loaded` one past the last of any
     * that copied something in. */
    uint64_t queued, done, first, loaded;
    struct cuda_panels_step steps[CUDA_PANELS_AHEAD];
};

/* Lanes are borrowed. 0, DRIVER_E_FAULT, or < 0. After a failure deinit gives back the rest. */
int cuda_panels_init(struct cuda_panels *panels,
                     const struct driver *driver,
                     const struct cuda_kernels *kernels,
                     uint32_t multiprocessors,
                     struct cuda_lanes *lanes,
                     struct fault *ret_fault);
/* After the lanes have been waited for. */
void cuda_panels_deinit(struct cuda_panels *panels);

/* Takes a product that has an operand in host memory; fewer than CUDA_PANELS_DEPTH are open. */
void cuda_panels_take(struct cuda_panels *panels, const struct cuda_panels_entry *entry);
/* Queues what comes next, if there is room and nobody wants a rest. < 0: the device is lost. */
int cuda_panels_pump(struct cuda_panels *panels);
/* Whether there is more to queue at once. */
bool cuda_panels_is_eager(const struct cuda_panels *panels);
/* As cuda_lanes_give_back(). */
bool cuda_panels_give_back(struct cuda_panels *panels);

/* While products are open: whether all steps that were queued are over, as far as
 * cuda_panels_pump() saw. */
static inline bool cuda_panels_is_quiet(const struct cuda_panels *panels)
{
    return panels->done == panels->queued;
}
