/*
 * Whether the context still lives while a command does not end: a faulted one never writes again.
 *
 * A stream is asked from time to time, which gives CUDA's error; for a trap that takes CUDA a
 * second. So the driver's reports are looked at, too (xid.h), and after one a beat is sent: a write
 * on a stream that nothing else is in front of, which a live context does within microseconds
 * beside any grid. One that does not come is the end of the context. Streams of the other priority
 * may live on for that second, so each priority has a beat; and a quick command that ran when the
 * report came has long ended, or never will.
 *
 * Owner: cuda_execute. Thread: the worker's.
 */
#pragma once

#include "driver.h"
#include "xid.h"

enum { CUDA_HEALTH_BEATS = 2 }; /* of the lanes' two priorities */

struct cuda_health {
    const struct driver *driver;
    struct xid_watch xid;
    CUstream stream[CUDA_HEALTH_BEATS];
    uint32_t *words; /* pinned, one for each: the last beat that came */
    CUdeviceptr words_device;
    uint32_t beats; /* sent on each */
    uint64_t asked_ns, looked_ns;
    uint64_t alarmed_ns; /* a report came, and not all beats since then; 0: all is well */
};

/* As backend_cuda_open(): 0, DRIVER_E_FAULT, or < 0. After a failure deinit gives back the rest. */
int cuda_health_init(struct cuda_health *health,
                     const struct driver *driver,
                     struct fault *ret_fault);
void cuda_health_deinit(struct cuda_health *health);

/* The oldest command: nothing is in front of it. */
struct cuda_health_waiting {
    CUstream stream;
    uint64_t since_ns; /* when it was given to the device */
    bool is_quick;     /* it takes microseconds */
};

/* It has not ended: < 0, the context is lost. */
int cuda_health_look(struct cuda_health *health, const struct cuda_health_waiting *oldest);
