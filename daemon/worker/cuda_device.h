/*
 * Which GPU, and what it is: selection by index or UUID, the attributes that the plan needs, the
 * primary context.
 *
 * Owner: backend_cuda. Thread: the worker's.
 */
#pragma once

#include "../link/link_message.h"
#include "driver.h"

struct cuda_device {
    CUdevice handle;
    CUcontext context;  /* the primary context, current on the worker's thread */
    CUmemoryPool pool;  /* the device's default pool: scratch memory comes from it */
    size_t granularity; /* of a VMM allocation, bytes */
    bool can_register_read_only;
};

/* `selector`: "cuda" (the first), "cuda:N" or "GPU-<uuid>". DRIVER_E_ABSENT with the reason when
 * there is no such device, or one that lacks what the worker needs. */
int cuda_device_init(struct cuda_device *device,
                     const struct driver *driver,
                     const char *selector,
                     struct link_device *ret_facts,
                     struct fault *ret_fault);
void cuda_device_deinit(struct cuda_device *device, const struct driver *driver);
