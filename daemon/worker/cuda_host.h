/*
 * Mapped host memory, registered with the device so that copies run at PCIe speed and beside other
 * work. What the driver refuses to register still serves, through pageable copies.
 *
 * So does small memory that is used for the first time, by one quick command: to register it takes
 * 0.7 ms, ten times as long as such a product, and many a process has no second one. The second use
 * registers it. Pageable copies are made while they are submitted. That is in order since at the
 * first use nothing under way touches the memory, and not for long since nothing in a quick lane
 * takes long.
 *
 * Owner: cuda_memory. Thread: the worker's.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/list.h"
#include "cuda_device.h"

/* Larger memory is registered when it is mapped. Of the others so many wait for their second use,
 * among which every command's operands in host memory are looked for. */
#define CUDA_HOST_LATE      ((size_t)4 << 20)
#define CUDA_HOST_LATE_MOST 16

struct cuda_hosts {
    const struct driver *driver;
    const struct cuda_device *device;
    struct list late; /* not registered yet, the oldest first */
    size_t late_count;
};

struct cuda_host {
    struct list late_link;
    void *base; /* MAP_FAILED: there is none */
    size_t size;
    bool is_writable, is_registered, was_used;
};

void cuda_hosts_init(struct cuda_hosts *hosts,
                     const struct driver *driver,
                     const struct cuda_device *device);

void cuda_host_init(struct cuda_host *host);
/* Unregisters and unmaps; accepts one that was never mapped. */
void cuda_host_deinit(struct cuda_host *host, struct cuda_hosts *hosts);
/* Takes what was mapped: base, size and is_writable are set. */
void cuda_host_add(struct cuda_host *host, struct cuda_hosts *hosts);
/* Before a command is submitted. */
void cuda_hosts_use(struct cuda_hosts *hosts, const struct gemmd_command *command);

/* Registers memory that somebody else mapped; false, and no harm, when the driver refuses. */
bool cuda_hosts_register(const struct cuda_hosts *hosts, void *base, size_t size, bool writable);
