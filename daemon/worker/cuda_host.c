#include "cuda_host.h"
#include "../core/log.h"
#include "access.h"
#include "cuda_stage.h"

#include <sys/mman.h>

void cuda_hosts_init(struct cuda_hosts *hosts,
                     const struct driver *driver,
                     const struct cuda_device *device)
{
    *hosts = (struct cuda_hosts){.driver = driver, .device = device};
    list_init(&hosts->late);
}

bool cuda_hosts_register(const struct cuda_hosts *hosts, void *base, size_t size, bool writable)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    /* Pages mapped without write permission cannot be pinned for writing. */
    if (!writable && !hosts->device->can_register_read_only)
        return false;
    if (!writable)
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;

    CUresult result = cu(hosts->driver)->MemHostRegister(base, size, flags);
    if (result != CUDA_SUCCESS)
        log_warning("event=host_memory_not_registered bytes=%zu error=%s consequence=slow_copies",
                    size, driver_error_name(hosts->driver, result));
    return result == CUDA_SUCCESS;
}

void cuda_host_init(struct cuda_host *host)
{
    *host = (struct cuda_host){.base = MAP_FAILED};
    list_init(&host->late_link);
}

static void be_late_no_more(struct cuda_host *host, struct cuda_hosts *hosts)
{
    if (list_is_empty(&host->late_link))
        return;
    list_unlink(&host->late_link);
    hosts->late_count--;
}

/* Results are ignored on purpose: after a sticky error every call fails, and the process is about
 * to end. */
void cuda_host_deinit(struct cuda_host *host, struct cuda_hosts *hosts)
{
    be_late_no_more(host, hosts);
    if (host->is_registered)
        (void)cu_parked(hosts->driver)->MemHostUnregister(host->base);
    if (host->base != MAP_FAILED)
        (void)munmap(host->base, host->size);
    cuda_host_init(host);
}

static void pin(struct cuda_host *host, struct cuda_hosts *hosts)
{
    be_late_no_more(host, hosts);
    host->is_registered = cuda_hosts_register(hosts, host->base, host->size, host->is_writable);
}

void cuda_host_add(struct cuda_host *host, struct cuda_hosts *hosts)
{
    if (host->size > CUDA_HOST_LATE) {
        pin(host, hosts);
        return;
    }
    if (hosts->late_count == CUDA_HOST_LATE_MOST)
        pin(container_of(hosts->late.next, struct cuda_host, late_link), hosts);
    list_append(&hosts->late, &host->late_link);
    hosts->late_count++;
}

static bool may_touch(const struct gemmd_command *command)
{
    return command->kind == GEMMD_COMMAND_GEMM
               ? command->body.gemm.flags & CUDA_STAGE_HOST_FLAGS
               : command->body.copy.flags & (GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_D);
}

static bool touches(const struct accesses *accesses, const struct cuda_host *host)
{
    uint64_t begin = (uint64_t)(uintptr_t)host->base;

    for (size_t i = 0; i < accesses->count; i++)
        if (accesses->of[i].begin >= begin && accesses->of[i].begin < begin + host->size)
            return true;
    return false;
}

void cuda_hosts_use(struct cuda_hosts *hosts, const struct gemmd_command *command)
{
    struct accesses accesses;

    if (hosts->late_count == 0 || !may_touch(command))
        return;
    accesses_of(command, &accesses);
    list_for_each_safe(cursor, following, &hosts->late)
    {
        struct cuda_host *host = container_of(cursor, struct cuda_host, late_link);

        if (!touches(&accesses, host))
            continue;
        if (!command->is_quick || host->was_used)
            pin(host, hosts);
        host->was_used = true;
    }
}
