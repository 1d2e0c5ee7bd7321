/*
 * Commands on the device. Each goes to a lane (cuda_lane.h): one that touches what commands under
 * way touch goes behind them, one that does not goes to the lane with the least to do, so that
 * commands which have nothing to do with each other overlap. While the oldest does not end, the
 * context's health is looked after (cuda_health.h).
 *
 * Every command, also one that failed before it reached the device, ends in a write of its number
 * on its lane: what is submitted completes.
 *
 * Owner: backend_cuda. Thread: the worker's. Host-to-host copies and fills run on a thread of the
 * driver (cuLaunchHostFunc), which touches nothing but the memory that its entry names.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/list.h"
#include "../core/status.h"
#include "access.h"
#include "cuda_health.h"
#include "cuda_kernel.h"
#include "cuda_lane.h"
#include "cuda_panels.h"

#define CUDA_EXECUTE_DEPTH 64 /* commands on all lanes; hides the launch cost many times */

/* A command under way. It stays where it is: what is streamed and what runs on the driver's thread
 * know its address. */
struct cuda_execute_entry {
    struct list link; /* in cuda_execute.under_way, or .vacant */
    uint64_t job;
    uint64_t started_ns;
    enum status status;
    struct accesses accesses;
    uint32_t lane;
    uint64_t number; /* on its lane, counted from 1; UINT64_MAX: its end is not queued yet */
    struct gemmd_copy host_copy; /* for the driver's thread */
};

struct cuda_execute {
    const struct driver *driver;
    const struct cuda_kernels *kernels;
    uint32_t multiprocessors;
    struct cuda_lanes lanes;
    struct cuda_panels panels;
    struct cuda_execute_entry entries[CUDA_EXECUTE_DEPTH];
    struct list under_way; /* in the order of their submission; they end in any */
    struct list vacant;
    uint32_t pending;          /* under way */
    bool has_begun;            /* there was a command */
    struct cuda_health health; /* of the context, while a command does not end */
};

/* As backend_cuda_open(): 0, DRIVER_E_FAULT, or < 0. */
int cuda_execute_init(struct cuda_execute *execute,
                      const struct driver *driver,
                      const struct cuda_kernels *kernels,
                      uint32_t multiprocessors,
                      struct fault *ret_fault);
/* Waits for what was submitted. */
void cuda_execute_deinit(struct cuda_execute *execute);

/* As backend_operations: submit, pending, reap. */
int cuda_execute_submit(struct cuda_execute *execute, const struct gemmd_command *command);

static inline uint32_t cuda_execute_pending(const struct cuda_execute *execute)
{
    return execute->pending;
}

int cuda_execute_reap(struct cuda_execute *execute, struct gemmd_completion *ret_completion);
/* Frees what launches keep for speed, and waits until it is free. False when there was nothing. */
bool cuda_execute_give_back(struct cuda_execute *execute);
/* Whether nothing is under way on the device: a streamed product may be between two steps. */
bool cuda_execute_is_at_rest(const struct cuda_execute *execute);
/* Whether there is more to queue at once. */
bool cuda_execute_is_eager(const struct cuda_execute *execute);
