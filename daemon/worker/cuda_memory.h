/*
 * Memory that jobs may name, by the front's number: host memfds, mapped and registered so that
 * copies run at PCIe speed; device allocations of the virtual memory interface, exported as a
 * descriptor at birth so that their contents outlive this process; and clients' own device memory,
 * by descriptor or legacy handle, which is checked here because only the driver can.
 *
 * Device memory is released by VMM calls only: they work beside a resident grid, cuMemFree does
 * not.
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
};

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
