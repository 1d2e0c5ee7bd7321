/*
 * Memory that jobs may name, by the front's number: host memfds, mapped and registered so that
 * copies run at PCIe speed; device allocations of the virtual memory interface, exported as a
 * descriptor at birth so that their contents outlive this process; and clients' own device memory,
 * by descriptor or legacy handle, which is checked here because only the driver can.
 *
 * Device memory is released by VMM calls only: they work beside a resident grid, cuMemFree does
 * not. What was registered or opened by a legacy handle is given back by calls that wait until the
 * device has nothing more to do, and nobody else's call gets to the driver meanwhile. So such
 * mappings are kept until it has: a command that never ends would otherwise hold the worker's loop
 * as soon as some client goes, and look like a driver that is busy (front/worker_watch.c).
 *
 * Owner: backend_cuda. Thread: the worker's.
 */
#pragma once

#include "../core/list.h"
#include "../link/link_message.h"
#include "cuda_host.h"

struct cuda_memory {
    const struct driver *driver;
    const struct cuda_device *device;
    struct cuda_hosts hosts;
    struct list mappings;
    struct list closing; /* unmapped, and kept for an idle device: no number finds them */
    uint64_t closing_since_ns;
};

/* How long commands are taken all the same, in the hope that the device comes to an end of its work
 * by itself. Under load it does not, and the wait for what is under way costs others a millisecond
 * or so: once for all that go in this time. */
#define CUDA_MEMORY_CLOSING_NS 20000000

void cuda_memory_init(struct cuda_memory *memory,
                      const struct driver *driver,
                      const struct cuda_device *device);
void cuda_memory_deinit(struct cuda_memory *memory);

/* As backend_operations.map: 0, DRIVER_E_FAULT, or < 0 when the device is lost. */
int cuda_memory_map(struct cuda_memory *memory,
                    const struct link_message *request,
                    int *fd,
                    uint64_t *ret_address,
                    struct fault *ret_fault);
/* Unknown numbers are ignored. No job may use the memory any more. */
void cuda_memory_unmap(struct cuda_memory *memory, uint64_t id);
/* While the device has nothing to do: gives one mapping back that was kept for that. */
void cuda_memory_close_one(struct cuda_memory *memory);
/* Whether what is kept has waited for so long that the device is to come to rest for it. */
bool cuda_memory_wants_rest(const struct cuda_memory *memory);

static inline bool cuda_memory_is_closing(const struct cuda_memory *memory)
{
    return !list_is_empty(&memory->closing);
}
