/*
 * Whether the context still lives while a command does not end: a faulted one never writes again.
 *
 * The driver's reports are looked at (xid.h). After one a beat is sent on a stream of each
 * priority: a write that nothing else is in front of, which a live context does within microseconds
 * beside any grid, and a faulted one never. Of most faults CUDA tells as soon as they are reported,
 * so then a stream is asked, too; of a trap it does not, and whoever asks waits in that call for a
 * second. That is why nothing is asked before there is a report: not for the first half second,
 * after which other errors are looked for. Without NVML the stream is asked all the time.
 *
 * The other question is whether it is the command that does not end. A device may do nothing for
 * this context because it does nothing for any: the driver has not got rid of the kernel of a
 * process that died, or is busy. So before the first command a fill is sent, for which kernels'
 * engine is needed, and while a command lasts beats are; those that come, once the fill did, are
 * counted, and the front blames no command without them (link_device_answers).
 *
 * Owner: cuda_execute. Thread: the worker's.
 */
#pragma once

#include "driver.h"
#include "xid.h"

enum { CUDA_HEALTH_BEATS = 2 }; /* of the lanes' two priorities */

/* Pinned; written by the device. */
struct cuda_health_words {
    uint32_t beat[CUDA_HEALTH_BEATS]; /* the last that came */
    uint8_t has_begun;                /* so did the fill before the first command */
};

struct cuda_beat {
    CUstream stream;
    uint32_t sent, seen;
    uint32_t awaited; /* since the last report: this one must come */
    bool is_awaited;
    uint64_t sent_ns; /* the last */
};

struct cuda_health {
    const struct driver *driver;
    struct xid_watch xid;
    struct cuda_beat beats[CUDA_HEALTH_BEATS];
    struct cuda_health_words *words;
    CUdeviceptr words_device;
    uint64_t asked_ns, looked_ns, answered_ns; /* the last look at each */
    uint64_t alarmed_ns; /* a report came, and not all beats since then; 0: all is well */
    bool may_ask;        /* it was not of traps alone */
    uint64_t answers;    /* beats that came while a command lasted */
};

/* As backend_cuda_open(): 0, DRIVER_E_FAULT, or < 0. After a failure deinit gives back the rest. */
int cuda_health_init(struct cuda_health *health,
                     const struct driver *driver,
                     struct fault *ret_fault);
void cuda_health_deinit(struct cuda_health *health);

/* Before the first command. < 0: the context is lost. */
int cuda_health_begin(struct cuda_health *health);

/* The oldest command: nothing is in front of it. */
struct cuda_health_waiting {
    CUstream stream;
    uint64_t since_ns; /* when it was given to the device */
};

/* It has not ended: < 0, the context is lost. */
int cuda_health_look(struct cuda_health *health, const struct cuda_health_waiting *oldest);
