#include "cuda_kernel.h"
#include "../core/error.h"
#include "../core/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void cuda_kernels_init(struct cuda_kernels *kernels, const struct driver *driver)
{
    *kernels = (struct cuda_kernels){.driver = driver};
    list_init(&kernels->list);
}

static void kernel_free(struct cuda_kernel *kernel, const struct driver *driver)
{
    if (kernel->module)
        (void)cu_parked(driver)->ModuleUnload(kernel->module);
    free(kernel);
}

void cuda_kernels_deinit(struct cuda_kernels *kernels)
{
    list_for_each_safe(node, next, &kernels->list)
    {
        list_unlink(node);
        kernel_free(container_of(node, struct cuda_kernel, link), kernels->driver);
    }
}

/* What the cubin needs against what a CTA can have, so that no launch fails later. */
static int
check_resources(const struct driver *driver, struct cuda_kernel *kernel, struct fault *ret_fault)
{
    int ctas = 0;
    int r = cu_parked_try(driver, ret_fault, OccupancyMaxActiveBlocksPerMultiprocessor, &ctas,
                          kernel->function, (int)kernel->threads, kernel->shared_memory);
    if (r)
        return r;

    if (ctas < 1) {
        fault_set(ret_fault, STATUS_INTERNAL, "",
                  "kernel %s: %u threads with %u bytes of shared memory do not fit on a "
                  "multiprocessor of this device",
                  kernel->configuration, kernel->threads, kernel->shared_memory);
        return DRIVER_E_FAULT;
    }
    if ((uint32_t)ctas < kernel->ctas_per_multiprocessor)
        log_warning("event=occupancy_below_plan configuration=%s ctas=%d planned=%u",
                    kernel->configuration, ctas, kernel->ctas_per_multiprocessor);
    kernel->ctas_per_multiprocessor = MIN(kernel->ctas_per_multiprocessor, (uint32_t)ctas);
    return 0;
}

/* daemon/plan/config.h names them, too */
#define REPACK_ENTRY "repack"
#define SUM_ENTRY    "sum"

static int load(const struct driver *driver,
                struct cuda_kernel *kernel,
                const struct link_message *request,
                const void *cubin,
                struct fault *ret_fault)
{
    CUmodule module;
    int r = cu_parked_try(driver, ret_fault, ModuleLoadData, &module, cubin);
    if (r)
        return r;
    kernel->module = module;

    r = cu_parked_try(driver, ret_fault, ModuleGetFunction, &kernel->function, module,
                      request->entry);
    if (!r && request->repacks)
        r = cu_parked_try(driver, ret_fault, ModuleGetFunction, &kernel->repack, module,
                          REPACK_ENTRY);
    if (!r && request->leaves_parts)
        r = cu_parked_try(driver, ret_fault, ModuleGetFunction, &kernel->sum, module, SUM_ENTRY);
    if (r)
        return r;

    r = cu_parked_try(driver, ret_fault, FuncSetAttribute, kernel->function,
                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)kernel->shared_memory);
    if (r)
        return r;
    return check_resources(driver, kernel, ret_fault);
}

int cuda_kernels_load(struct cuda_kernels *kernels,
                      const struct link_message *request,
                      const void *cubin,
                      struct fault *ret_fault)
{
    struct cuda_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return error_origin(-ENOMEM);

    kernel->id = request->id;
    kernel->threads = request->threads;
    kernel->shared_memory = request->shared_memory;
    kernel->ctas_per_multiprocessor = MAX(request->ctas_per_multiprocessor, 1u);
    kernel->tile_m = MAX(request->tile_m, 1u);
    kernel->tile_n = MAX(request->tile_n, 1u);
    kernel->cluster_m = MAX(request->cluster_m, 1u);
    kernel->cluster_n = MAX(request->cluster_n, 1u);
    kernel->cluster_k = MAX(request->cluster_k, 1u);
    kernel->has_cta_per_tile = request->has_cta_per_tile;
    kernel->begins_early = request->begins_early;
    memcpy(kernel->box, request->box, sizeof(kernel->box));
    memcpy(kernel->configuration, request->configuration, sizeof(kernel->configuration));
    kernel->configuration[sizeof(kernel->configuration) - 1] = 0;

    int r = load(kernels->driver, kernel, request, cubin, ret_fault);
    if (r) {
        kernel_free(kernel, kernels->driver);
        return r;
    }

    list_prepend(&kernels->list, &kernel->link);
    log_debug("event=kernel_loaded id=%" PRIu64 " configuration=%s", kernel->id,
              kernel->configuration);
    return 0;
}

void cuda_kernels_unload(struct cuda_kernels *kernels, uint64_t id)
{
    list_for_each_safe(node, next, &kernels->list)
    {
        struct cuda_kernel *kernel = container_of(node, struct cuda_kernel, link);
        if (kernel->id != id)
            continue;
        list_unlink(node);
        kernel_free(kernel, kernels->driver);
        return;
    }
}

const struct cuda_kernel *cuda_kernels_find(const struct cuda_kernels *kernels, uint64_t id)
{
    list_for_each(node, &kernels->list)
    {
        const struct cuda_kernel *kernel = container_of(node, struct cuda_kernel, link);
        if (kernel->id == id)
            return kernel;
    }
    return NULL;
}
