/*
 * The CUDA backend: puts driver, device, memory, kernels and execution together behind the face of
 * backend.h. It holds the primary context for as long as it lives and never repairs a lost one.
 */
#include "../core/error.h"
#include "backend.h"
#include "cuda_execute.h"
#include "cuda_memory.h"

#include <stdlib.h>

_Static_assert((int)DRIVER_E_FAULT == (int)BACKEND_E_FAULT, "returned as it is");
_Static_assert((int)DRIVER_E_ABSENT == (int)BACKEND_E_ABSENT, "returned as it is");

struct backend_cuda {
    struct backend base;
    struct driver driver;
    struct cuda_device device;
    struct cuda_memory memory;
    struct cuda_kernels kernels;
    struct cuda_execute execute;
    void *link_base; /* the link's memory while it is registered */
};

static struct backend_cuda *self_of(struct backend *backend)
{
    return container_of(backend, struct backend_cuda, base);
}

static void backend_cuda_close(struct backend *backend)
{
    struct backend_cuda *self = self_of(backend);
    cuda_execute_deinit(&self->execute);
    cuda_kernels_deinit(&self->kernels);
    cuda_memory_deinit(&self->memory);
    if (self->link_base)
        (void)cu_parked(&self->driver)->MemHostUnregister(self->link_base);
    cuda_device_deinit(&self->device, &self->driver);
    free(self);
}

static int backend_cuda_map(struct backend *backend,
                            const struct link_message *request,
                            int *fd,
                            uint64_t *ret_address,
                            struct fault *ret_fault)
{
    struct backend_cuda *self = self_of(backend);
    int r = cuda_memory_map(&self->memory, request, fd, ret_address, ret_fault);

    /* What launches keep for speed counts as free. */
    if (r == DRIVER_E_FAULT && request->memory_kind == LINK_MEMORY_DEVICE_CREATE &&
        ret_fault->status == STATUS_OUT_OF_MEMORY && cuda_execute_give_back(&self->execute))
        r = cuda_memory_map(&self->memory, request, fd, ret_address, ret_fault);
    return r;
}

static void backend_cuda_unmap(struct backend *backend, uint64_t id)
{
    cuda_memory_unmap(&self_of(backend)->memory, id);
}

static int backend_cuda_load(struct backend *backend,
                             const struct link_message *request,
                             const void *cubin,
                             struct fault *ret_fault)
{
    return cuda_kernels_load(&self_of(backend)->kernels, request, cubin, ret_fault);
}

static void backend_cuda_unload(struct backend *backend, uint64_t kernel)
{
    cuda_kernels_unload(&self_of(backend)->kernels, kernel);
}

static int backend_cuda_submit(struct backend *backend, const struct gemmd_command *command)
{
    struct backend_cuda *self = self_of(backend);

    cuda_hosts_use(&self->memory.hosts, command);
    self->execute.panels.scratch_limit = backend->scratch;
    self->execute.panels.scratch_most = backend->device.memory;
    return cuda_execute_submit(&self->execute, command);
}

static uint32_t backend_cuda_pending(const struct backend *backend)
{
    return cuda_execute_pending(&container_of(backend, const struct backend_cuda, base)->execute);
}

static bool backend_cuda_wants_rest(const struct backend *backend)
{
    return cuda_memory_wants_rest(&container_of(backend, const struct backend_cuda, base)->memory);
}

/* At rest, and with mappings that were kept for that. */
static bool may_close(const struct backend_cuda *self)
{
    return cuda_memory_is_closing(&self->memory) && cuda_execute_is_at_rest(&self->execute);
}

static bool backend_cuda_is_eager(const struct backend *backend)
{
    const struct backend_cuda *self = container_of(backend, const struct backend_cuda, base);

    return cuda_execute_is_eager(&self->execute) || may_close(self);
}

/* One mapping in each turn of the loop: to give back much of it takes long, and the loop's heart
 * beats between two. */
static int backend_cuda_reap(struct backend *backend, struct gemmd_completion *ret_completion)
{
    struct backend_cuda *self = self_of(backend);
    int r;

    self->execute.panels.rests = cuda_memory_wants_rest(&self->memory);
    r = cuda_execute_reap(&self->execute, ret_completion);
    backend->answers = self->execute.health.answers;
    if (r == 0 && may_close(self))
        cuda_memory_close_one(&self->memory);
    return r;
}

static const struct backend_operations operations = {
    .name = "cuda",
    .close = backend_cuda_close,
    .map = backend_cuda_map,
    .unmap = backend_cuda_unmap,
    .load = backend_cuda_load,
    .unload = backend_cuda_unload,
    .submit = backend_cuda_submit,
    .pending = backend_cuda_pending,
    .depth = CUDA_EXECUTE_DEPTH,
    .wants_rest = backend_cuda_wants_rest,
    .is_eager = backend_cuda_is_eager,
    .reap = backend_cuda_reap,
};

/* Nothing reads it from the device yet; a resident grid will, without a change of layout. */
static void register_link(struct backend_cuda *self, const struct link *link)
{
    void *base;
    size_t size;
    link_memory_range(link, &base, &size);
    if (cuda_hosts_register(&self->memory.hosts, base, size, /* writable= */ true))
        self->link_base = base;
}

static int open_device(struct backend_cuda *self, const char *selector, struct fault *ret_fault)
{
    int r = driver_init(&self->driver, ret_fault);
    if (r)
        return r;
    r = cuda_device_init(&self->device, &self->driver, selector, &self->base.device, ret_fault);
    if (r)
        return r;

    self->base.scratch = self->base.device.memory / CUDA_PANELS_FRACTION;
    self->base.device.allocation_unit = (uint32_t)MIN(self->device.granularity, UINT32_MAX);
    r = cuda_execute_init(&self->execute, &self->driver, &self->kernels,
                          self->base.device.multiprocessors, ret_fault);
    if (r)
        cuda_device_deinit(&self->device, &self->driver);
    else
        xid_watch_init(&self->execute.health.xid, self->base.device.uuid);
    /* A device that cannot even give a stream is as good as none. */
    return r > 0 ? BACKEND_E_ABSENT : r;
}

int backend_cuda_open(const char *selector,
                      const struct link *link,
                      struct backend **ret_backend,
                      struct fault *ret_fault)
{
    struct backend_cuda *self = calloc(1, sizeof(*self));
    if (!self)
        return error_origin(-ENOMEM);

    self->base.operations = &operations;
    cuda_memory_init(&self->memory, &self->driver, &self->device);
    cuda_kernels_init(&self->kernels, &self->driver);
    int r = open_device(self, selector, ret_fault);
    if (r) {
        free(self);
        return r;
    }

    if (link)
        register_link(self, link);
    *ret_backend = &self->base;
    return 0;
}
