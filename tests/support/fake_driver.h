/*
 * A CUDA driver without a device: the calls of daemon/worker/driver.h on host memory, so that the
 * CUDA backend's bookkeeping runs under sanitizers on any machine. Device memory is a memfd behind
 * the virtual memory calls and malloc behind the pool, so an access out of bounds is caught.
 *
 * Streams execute at once, or lazily and in the most awkward order that was not forbidden; a launch
 * computes its products in plain C, or calls the test's function.
 * Completion writes can be held back, to look like a device that is busy; in a daemon's worker,
 * FAKE_DRIVER_HANG_M in the environment stops the stream of a product of that many rows, and calls
 * that wait for the device then do not return. While
 * the file FAKE_DRIVER_STILL exists nothing runs on any stream. One of FAKE_DRIVER_LOSE_M rows
 * loses the device, after which the process does not get to its end. To register
 * FAKE_DRIVER_CRASH_SIZE bytes ends it, to import FAKE_DRIVER_CRASH_IMPORT_SIZE bytes does, and
 * with FAKE_DRIVER_CRASH_LOAD so does any kernel. FAKE_DRIVER_FAULTS makes those of faults.h that
 * products ask for, and with FAKE_DRIVER_STILL_AFTER_FAULT each makes the file FAKE_DRIVER_STILL.
 * FAKE_DRIVER_TOTAL is how much memory it says it has.
 */
#pragma once

#include "fake_memory.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_API __attribute__((visibility("default")))

#define FAKE_DRIVER_MULTIPROCESSORS 4
#define FAKE_DRIVER_GRANULARITY     (2u << 20)
#define FAKE_DRIVER_UUID            "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"

struct fake_driver_launch {
    const void *parameter; /* the first kernel parameter: a struct gemmd_feed */
    const void *maps;      /* the second: a struct gemmd_tensor_maps */
    unsigned grid, cluster, threads, shared_memory;
    bool is_early; /* may begin beside the end of the launch before */
    unsigned stream;
};

typedef void (*fake_driver_launch_fn)(const struct fake_driver_launch *launch);

/* What exists at this moment: all zero after a clean close. */
struct fake_driver_live {
    unsigned contexts, streams, events, modules, host_allocations, registrations;
    unsigned handles, ranges, mappings, scratch, opened, event_sets;
};

FAKE_API void fake_driver_reset(void);
/* In place of the product; NULL: launches do nothing. */
FAKE_API void fake_driver_on_launch(fake_driver_launch_fn fn);
FAKE_API void fake_driver_product(const struct fake_driver_launch *launch);
/* Call number `nth` (from 0, counted from now) of "cuName" returns `result`. */
FAKE_API void fake_driver_fail(const char *name, unsigned nth, CUresult result);
/* From now on every call returns `result`, as after a kernel's illegal access. */
FAKE_API void fake_driver_break(CUresult result);
/* NVML (the same library, as $GEMMD_LIBNVML) reports a fault of the device, once. */
#define FAKE_DRIVER_XID_ADDRESS    31
#define FAKE_DRIVER_XID_MISALIGNED 13
#define FAKE_DRIVER_XID_TRAP       43
FAKE_API void fake_driver_xid(unsigned number);
/* Held, streams write no value until they are released: all at the end, or one by one. Streams are
 * numbered in the order of their making. */
FAKE_API void fake_driver_hold(bool hold);
FAKE_API void fake_driver_stop_stream(unsigned stream); /* nothing after this runs on it */
FAKE_API void fake_driver_release(unsigned stream);
/* From now on what is queued runs later: a few operations when the driver is asked for the state of
 * a stream or event, in an order that follows from the seed. FAKE_DRIVER_LAZY does it in a worker.
 */
FAKE_API void fake_driver_lazy(unsigned seed);
/* Runs so many operations, or all that can be; how many. */
FAKE_API unsigned fake_driver_run(unsigned most);
FAKE_API unsigned fake_driver_last_stream(void); /* that wrote a value, or would have */
FAKE_API int fake_driver_priority(unsigned stream);
FAKE_API unsigned fake_driver_awaited(unsigned stream); /* bit per stream it ever waited for */
FAKE_API unsigned fake_driver_calls(const char *name);
FAKE_API struct fake_driver_live fake_driver_live(void);
/* Scratch bytes of the largest pool allocation so far. */
FAKE_API size_t fake_driver_scratch_high(void);
FAKE_API unsigned fake_driver_register_flags(void);
FAKE_API struct fake_driver_launch fake_driver_last_launch(void); /* its parameters are gone */
/* Launches of a module's second kernel, which copies inputs; they count as no other launch. */
FAKE_API unsigned fake_driver_repacks(void);
FAKE_API struct gemmd_repack fake_driver_last_repack(void);
/* The same of the kernel that adds the parts of sums. */
FAKE_API unsigned fake_driver_sums(void);
