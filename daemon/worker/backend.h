/*
 * The face of a compute device inside the worker. worker.c owns the loop and the link; a backend
 * owns memory, kernels and execution. Two exist: backend_cpu (OpenBLAS) and backend_cuda.
 *
 * Threads: all calls come from the worker's one thread. A backend may use threads of its own
 * (OpenBLAS does) but never calls back.
 *
 * Errors: positive results are described in `fault`; a negative result means that the device is
 * lost (sticky CUDA error): the worker tells the front and exits, nothing is retried in-process.
 */
#pragma once

#include "../core/status.h"
#include "../core/std.h"
#include "../link/link.h"

enum {
    BACKEND_E_FAULT = 1, /* this request failed, `ret_fault` says why; the device is well */
    BACKEND_E_ABSENT,    /* open: there is no such device here; `ret_fault` says why */
};

struct backend;

struct backend_operations {
    const char *name;
    void (*close)(struct backend *backend);

    /* Makes memory addressable and gives the base address that jobs will use. HOST and IMPORT
     * consume *fd on success; CREATE returns a descriptor that outlives this process in *fd. */
    int (*map)(struct backend *backend,
               const struct link_message *request,
               int *fd,
               uint64_t *ret_address,
               struct fault *ret_fault);
    /* The number means nothing from now on; what the device must be at rest for is given back by
     * `reap` when it is. */
    void (*unmap)(struct backend *backend, uint64_t id);

    /* Loads a cubin (consumes nothing; `cubin` is valid during the call). Not called on the CPU. */
    int (*load)(struct backend *backend,
                const struct link_message *request,
                const void *cubin,
                struct fault *ret_fault);
    void (*unload)(struct backend *backend, uint64_t kernel);

    /* Starts one command; completions come from `reap`, those of one job in the order of its
     * commands and otherwise in any, with all but the sequence filled. A command that cannot run is
     * no error here: it completes with a status. Commands take effect as if one after the other:
     * the front submits one that reads what an earlier one writes without waiting for that one's
     * completion, unless the two are on different tracks or both are streamed (kernels_src/abi/
     * ring.h). A backend that overlaps or merges commands sees for itself that they touch different
     * memory. */
    int (*submit)(struct backend *backend, const struct gemmd_command *command);
    /* Commands submitted and not reaped. The worker takes none beyond `depth`. */
    uint32_t (*pending)(const struct backend *backend);
    uint32_t depth;
    /* Whether none should be taken for now, so that the device comes to rest. */
    bool (*wants_rest)(const struct backend *backend);
    /* Whether there is more to do at once, which `reap` does: queue what is left of submitted
     * commands, or give memory back. The worker does not sleep meanwhile. */
    bool (*is_eager)(const struct backend *backend);
    /* Takes the next finished command: 1 with `ret_completion`, 0 when none is ready, < 0 lost.
     * Never waits for the device. */
    int (*reap)(struct backend *backend, struct gemmd_completion *ret_completion);
};

struct backend {
    const struct backend_operations *operations;
    uint64_t scratch; /* bytes of device memory that one streamed product may have */
    uint64_t answers; /* of a device on which a command does not end (link.h); a GPU's only */
    struct link_device device;
};

/* `selector`: "cuda:N" or "GPU-<uuid>" or "cuda" (first). The link's memory is registered with the
 * device; NULL: there is none (tests). Sets CUDA_MODULE_LOADING=EAGER before cuInit. */
int backend_cuda_open(const char *selector,
                      const struct link *link,
                      struct backend **ret_backend,
                      struct fault *ret_fault);
int backend_cpu_open(struct backend **ret_backend, struct fault *ret_fault);
