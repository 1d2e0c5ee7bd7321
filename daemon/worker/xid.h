/*
 * What the kernel's half of the driver reports of a device ("Xid"): NVML tells of it, without a
 * wait, and long before CUDA returns an error. Measured on an H200: of a trap after 0.01 to 0.04 s
 * against 1.0 s, of a misaligned access after 0.11 against 0.17, of a bad address at the same time.
 *
 * A report says neither whose fault it was nor when it was: it is a reason to look.
 *
 * NVML is loaded with dlopen ($GEMMD_LIBNVML, else libnvidia-ml.so.1; none beside a driver of
 * $GEMMD_LIBCUDA) and stays loaded. Where it is missing nothing is ever seen.
 *
 * Owner: cuda_health. Thread: the worker's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct nvml_event_set;
struct nvml_event;

struct xid_watch {
    struct nvml_event_set *events; /* NULL: none can be had */
    int (*wait)(struct nvml_event_set *events, struct nvml_event *ret_event, unsigned ms);
    int (*free_events)(struct nvml_event_set *events);
    int (*shutdown)(void);
};

void xid_watch_init(struct xid_watch *watch, const char *uuid);
void xid_watch_deinit(struct xid_watch *watch);

enum xid_reports {
    XID_NONE,
    XID_OF_TRAPS, /* and of nothing else */
    XID_OF_FAULTS,
};

/* What was reported since the last call; 2 us, but while the driver still handles a fault it may
 * wait for that. */
enum xid_reports xid_watch_look(struct xid_watch *watch);

static inline bool xid_watch_is_open(const struct xid_watch *watch)
{
    return watch->events != NULL;
}
