#include "kernel.h"

#include "../core/error.h"
#include "../core/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void kernels_init(struct kernels *kernels,
                  struct worker_process *worker,
                  struct compiler *compiler,
                  void (*changed)(struct kernels *kernels))
{
    *kernels =
        (struct kernels){.worker = worker, .compiler = compiler, .changed = changed, .next_id = 1};
    list_init(&kernels->all);
}

void kernels_deinit(struct kernels *kernels)
{
    list_for_each_safe(cursor, following, &kernels->all)
    {
        struct kernel *kernel = container_of(cursor, struct kernel, link);

        list_unlink(&kernel->link);
        fd_closep(&kernel->fd);
        free(kernel);
    }
}

static void kernel_fail(struct kernel *kernel, const struct fault *fault)
{
    kernel->state = KERNEL_FAILED;
    kernel->fault = *fault;
    kernel->table->changed(kernel->table);
}

static void fail_for_memory(struct kernel *kernel)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_OUT_OF_MEMORY, "", "the daemon has no memory for a kernel");
    kernel_fail(kernel, &fault);
}

/* --- cubin to worker ------------------------------------------------------------------------- */

_Static_assert((int)CONFIG_BOX_COUNT == LINK_BOXES, "a box for each operand");

static int kernel_load(struct kernel *kernel)
{
    struct config_resources resources;
    struct link_message message = {
        .id = kernel->id,
        .size = kernel->size,
        .tile_m = kernel->config.tile_m,
        .tile_n = kernel->config.tile_n,
        .cluster_m = kernel->config.cluster_m,
        .cluster_n = kernel->config.cluster_n,
        .cluster_k = kernel->config.cluster_k,
    };

    config_resources(&kernel->config, &resources);
    message.threads = resources.threads;
    message.shared_memory = resources.shared_memory;
    message.ctas_per_multiprocessor = resources.ctas_per_multiprocessor;
    message.has_cta_per_tile = !resources.is_persistent;
    message.begins_early = resources.begins_early;
    message.repacks = resources.repacks;
    message.leaves_parts = resources.leaves_parts;
    for (int i = 0; i < LINK_BOXES; i++)
        message.box[i] = (struct link_box){resources.box[i].columns, resources.box[i].rows};
    (void)snprintf(message.configuration, sizeof(message.configuration), "%s", kernel->text);
    (void)snprintf(message.entry, sizeof(message.entry), "%s", config_entry(&kernel->config));
    return error_trace(worker_load(kernel->table->worker, &message, kernel->fd));
}

static int kernel_keep(struct kernel *kernel, const struct cubin *cubin)
{
    cleanup(fd_closep) int fd = memfd_create("gemmd-cubin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t done = 0;

    if (fd < 0)
        return error_origin(-errno);
    while (done < cubin->size) {
        ssize_t n = write(fd, (const char *)cubin->bytes + done, cubin->size - done);

        if (n < 0)
            return error_origin(-errno);
        done += (size_t)n;
    }
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    fd_closep(&kernel->fd);
    kernel->fd = steal(fd, -1);
    kernel->size = cubin->size;
    return 0;
}

static void compiled(const struct cubin *cubin,
                     const struct key *key,
                     enum compiler_source source,
                     double seconds,
                     const struct fault *fault,
                     void *context)
{
    struct kernel *kernel = context;
    const char *text = kernel->text;

    if (!cubin) {
        log_warning("kernel=%s state=failed status=%s", text, status_name(fault->status));
        kernel_fail(kernel, fault);
        return;
    }
    kernel->key = *key;
    kernel->source = source;
    kernel->compile_seconds = source == COMPILER_COMPILED ? seconds : 0;
    kernel->state = KERNEL_CUBIN;
    if (source == COMPILER_COMPILED)
        log_info("kernel=%s state=compiled seconds=%.3f registers=%u spills=%u", text, seconds,
                 cubin->registers, cubin->spill_bytes);
    if (kernel_keep(kernel, cubin) < 0 || kernel_load(kernel) < 0)
        fail_for_memory(kernel);
}

static int kernel_compile(struct kernel *kernel)
{
    kernel->state = KERNEL_COMPILING;
    return error_trace(
        compiler_request(kernel->table->compiler, &kernel->config, compiled, kernel));
}

void kernels_loaded(struct kernels *kernels, uint64_t id, const struct fault *fault)
{
    list_for_each(cursor, &kernels->all)
    {
        struct kernel *kernel = container_of(cursor, struct kernel, link);

        if (kernel->id != id || kernel->state != KERNEL_CUBIN)
            continue;
        if (fault->status == STATUS_OK) {
            kernel->state = KERNEL_LOADED;
            kernel->was_refused = false;
            kernel->half_deaths = 0;
            kernels->changed(kernels);
        } else if (kernel->was_refused) {
            kernel_fail(kernel, fault);
        } else {
            /* The cubin may be damaged, or from a compiler that the driver does not follow. */
            log_warning("kernel=%" PRIu64 " state=refused reason=\"%s\", compiling anew", id,
                        fault->message);
            kernel->was_refused = true;
            compiler_reject(kernels->compiler, &kernel->key);
            if (kernel_compile(kernel) < 0)
                fail_for_memory(kernel);
        }
        return;
    }
}

void kernels_restore(struct kernels *kernels)
{
    list_for_each(cursor, &kernels->all)
    {
        struct kernel *kernel = container_of(cursor, struct kernel, link);

        if (kernel->state == KERNEL_CUBIN && kernel_load(kernel) < 0)
            fail_for_memory(kernel);
    }
}

uint64_t kernels_count(const struct kernels *kernels)
{
    uint64_t count = 0;

    list_for_each(cursor, &kernels->all) count++;
    return count;
}

static bool is_deadly(const struct kernel *kernel)
{
    return kernel->half_deaths >= 2 * WORKER_ASK_DEATHS;
}

/* Loaded again and again, it would take one worker after the other with it. */
static void kernel_blame(struct kernel *kernel)
{
    struct fault fault;

    kernel->half_deaths += worker_half_deaths(kernel->table->worker);
    if (!is_deadly(kernel))
        return;
    (void)fault_set(&fault, STATUS_GPU_FAULT, "",
                    "the worker died each time it loaded the kernel; it is not tried again");
    kernel_fail(kernel, &fault);
}

void kernels_forget(struct kernels *kernels)
{
    struct kernel *suspect = NULL;

    list_for_each(cursor, &kernels->all)
    {
        struct kernel *kernel = container_of(cursor, struct kernel, link);

        if (!suspect && kernel->state == KERNEL_CUBIN && worker_died_loading(kernels->worker))
            suspect = kernel;
        if (kernel->state == KERNEL_LOADED)
            kernel->state = KERNEL_CUBIN;
    }
    if (suspect)
        kernel_blame(suspect);
}

/* --- wanting --------------------------------------------------------------------------------- */

static struct kernel *kernel_find(struct kernels *kernels, const struct config *config)
{
    list_for_each(cursor, &kernels->all)
    {
        struct kernel *kernel = container_of(cursor, struct kernel, link);

        if (config_equal(&kernel->config, config))
            return kernel;
    }
    return NULL;
}

static struct kernel *kernel_new(struct kernels *kernels, const struct config *config)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    if (!kernel)
        return NULL;
    kernel->table = kernels;
    kernel->id = kernels->next_id++;
    kernel->config = *config;
    config_to_text(config, kernel->text);
    kernel->fd = -1;
    kernel->state = KERNEL_FAILED; /* until asked for, just below */
    list_append(&kernels->all, &kernel->link);
    return kernel;
}

int kernels_want(struct kernels *kernels, const struct config *config, struct kernel **ret_kernel)
{
    struct kernel *kernel = kernel_find(kernels, config);
    int r = 0;

    if (!kernel)
        kernel = kernel_new(kernels, config);
    if (!kernel)
        return error_origin(-ENOMEM);
    if (kernel->state == KERNEL_FAILED && !is_deadly(kernel)) {
        kernel->was_refused = false;
        r = kernel_compile(kernel);
    }
    if (r < 0) {
        kernel->state = KERNEL_FAILED;
        (void)fault_set(&kernel->fault, STATUS_OUT_OF_MEMORY, "", "no memory for a kernel");
        return error_trace(r);
    }
    *ret_kernel = kernel;
    return 0;
}
