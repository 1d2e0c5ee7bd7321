/*
 * What the files of the fake driver share: its state, and the step every call begins with.
 */
#pragma once

#include "../../daemon/worker/driver.h"
#include "../../kernels_src/abi/job.h"
#include "fake_driver.h"

#define FAKE_CALL_NUMBER(name) CALL_##name,

enum { DRIVER_CALLS(FAKE_CALL_NUMBER) DRIVER_PARKED_CALLS(FAKE_CALL_NUMBER) CALL_COUNT };

#define FAKE_DRIVER_STREAMS 32

struct fake_operation;

struct fake_stream {
    struct fake_operation *first, *last; /* queued */
    cuuint32_t *word;                    /* of the last write that is held */
    cuuint32_t value;
    int priority;
    bool is_stopped;
    unsigned awaited; /* bit per stream whose events this one waited for */
};

struct fake_driver {
    unsigned calls[CALL_COUNT];
    unsigned fail_at[CALL_COUNT]; /* the count at which it fails; 0: never */
    CUresult fail_with[CALL_COUNT];
    CUresult broken;
    bool is_held;
    unsigned long long lazy; /* state of the random order; 0: all runs at once */
    struct fake_stream streams[FAKE_DRIVER_STREAMS];
    unsigned last_stream; /* of the last write */
    fake_driver_launch_fn on_launch;
    struct fake_driver_launch last_launch;
    unsigned repacks, sums;
    struct gemmd_repack last_repack;
    struct fake_driver_live live;
    size_t scratch_high;
    void *opened; /* by a legacy handle, the last */
    size_t opened_size;
    unsigned register_flags;
    unsigned xids, xid; /* reports that nobody took; the last one's number */
};

extern struct fake_driver fake;

/* Counts the call; its injected result, or CUDA_SUCCESS. */
CUresult fake_driver_enter(int call);

unsigned fake_driver_stream(CUstream stream); /* its number */

/* Runs it on a copy of the argument when it is its turn on the stream. */
typedef void (*fake_driver_run_fn)(const void *argument);
CUresult
fake_driver_queue(CUstream stream, fake_driver_run_fn run, const void *argument, size_t size);

/* As calls that wait for the device: for ever, in a worker where a product does not end. */
void fake_driver_settle(void);

/* What a module's second kernel does. */
void fake_driver_repack(const struct gemmd_repack *what);

/* fake_driver_client.c: what a client's process has of its own. */
void fake_range_add(CUdeviceptr base, size_t size, int fd, bool is_plain);
void fake_range_remove(CUdeviceptr base); /* unknown ones are ignored */
bool fake_range_find(CUdeviceptr address, CUdeviceptr *ret_base, size_t *ret_size);
void *fake_client_call(const char *name); /* NULL: no such call */

#define ENTER(name)                                                                                \
    do {                                                                                           \
        CUresult entered_ = fake_driver_enter(CALL_##name);                                        \
        if (entered_ != CUDA_SUCCESS)                                                              \
            return entered_;                                                                       \
    } while (0)
