#include "cpu_memory.h"

#include "../core/error.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapping {
    struct list node;
    uint64_t id;
    void *base;
    size_t size;
};

/* --- how much there is ----------------------------------------------------------------------- */

/* The number behind `field` at the start of a line; `otherwise` when there is none. */
static uint64_t file_number(const char *path, const char *field, uint64_t otherwise)
{
    FILE *file = fopen(path, "re");
    const size_t length = strlen(field);
    uint64_t number = otherwise;
    char line[256], *end;

    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, field, length) != 0)
            continue;

        number = strtoull(line + length, &end, 10);
        if (end == line + length) /* "max" */
            number = otherwise;
        break;
    }
    if (file)
        (void)fclose(file);
    return number;
}

static uint64_t group_number(const char *group, const char *name, const char *field, uint64_t none)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", group, name);
    return file_number(path, field, none);
}

/* What one group still allows. Pages of files count as used there but are given back on demand. */
static uint64_t group_available(const char *group)
{
    const uint64_t limit = group_number(group, "memory.max", "", UINT64_MAX);
    const uint64_t used = group_number(group, "memory.current", "", 0);
    const uint64_t files = group_number(group, "memory.stat", "inactive_file ", 0) +
                           group_number(group, "memory.stat", "active_file ", 0);
    const uint64_t kept = used - MIN(used, files);

    return limit - MIN(limit, kept);
}

/* This process's group below `cgroup` (version 2: the line that begins with "0::"). */
static void group_find(const char *proc, const char *cgroup, char ret_group[PATH_MAX])
{
    char path[PATH_MAX], line[PATH_MAX - 256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    (void)snprintf(ret_group, PATH_MAX, "%s", cgroup);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) == 0)
            (void)snprintf(ret_group, PATH_MAX, "%.200s%s", cgroup, line + 3);
    }
    if (file)
        (void)fclose(file);
}

uint64_t cpu_memory_total(void)
{
    return 1024 * file_number("/proc/meminfo", "MemTotal:", 0);
}

uint64_t cpu_memory_available(const char *proc, const char *cgroup)
{
    char path[PATH_MAX];
    uint64_t available;

    (void)snprintf(path, sizeof(path), "%s/meminfo", proc);
    available = 1024 * file_number(path, "MemAvailable:", 0);

    /* Every group on the way up may have a limit; the root of the tree has none. */
    group_find(proc, cgroup, path);
    while (strlen(path) >= strlen(cgroup)) {
        available = MIN(available, group_available(path));
        *strrchr(path, '/') = 0;
    }
    return available;
}

/* --- making and mapping ---------------------------------------------------------------------- */

static int refuse(int error, uint64_t size, struct fault *ret_fault)
{
    (void)fault_set(ret_fault, error == ENOMEM ? STATUS_OUT_OF_MEMORY : STATUS_INTERNAL, "size",
                    "%" PRIu64 " bytes cannot be mapped on the CPU device: %s", size,
                    strerror(error));
    return CPU_MEMORY_E_REFUSED;
}

static int size_check(int fd, uint64_t size, struct fault *ret_fault)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return refuse(errno, size, ret_fault);

    if (size == 0 || (uint64_t)st.st_size < size) {
        (void)fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
                        "size is %" PRIu64 "; the memory behind the descriptor allows 1 to %" PRIu64
                        " bytes",
                        size, (uint64_t)st.st_size);
        return CPU_MEMORY_E_REFUSED;
    }
    return 0;
}

/* Fills the pages now: memory that turns out to be missing later would be a SIGBUS, or an end by
 * the kernel's out-of-memory killer that a client could bring about again and again. In whole
 * pages, which is what a client that it is exported to is told. */
static int memory_create(uint64_t size, int *ret_fd, struct fault *ret_fault)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    cleanup(fd_closep) int fd = memfd_create("gemmd-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const uint64_t available = cpu_memory_available("/proc", "/sys/fs/cgroup");

    if (fd < 0)
        return refuse(errno, size, ret_fault);

    if (size > available) {
        (void)fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "size",
                        "size is %" PRIu64 "; the CPU device has %" PRIu64 " bytes available", size,
                        available);
        return CPU_MEMORY_E_REFUSED;
    }
    size = (size + page - 1) / page * page;
    if (ftruncate(fd, (off_t)size) < 0 || (size > 0 && fallocate(fd, 0, 0, (off_t)size) < 0))
        return refuse(errno == ENOSPC ? ENOMEM : errno, size, ret_fault);

    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return refuse(errno, size, ret_fault);

    *ret_fd = steal(fd, -1);
    return 0;
}

static int mapping_new(struct cpu_memory *memory,
                       const struct link_message *request,
                       int fd,
                       uint64_t *ret_address,
                       struct fault *ret_fault)
{
    const bool is_foreign = request->memory_kind == LINK_MEMORY_DEVICE_FOREIGN;
    const bool is_read_only =
        (request->memory_kind == LINK_MEMORY_HOST || is_foreign) && !request->writable;
    const uint64_t offset = is_foreign ? request->offset : 0;
    const uint64_t size = offset + request->size; /* the front has checked the sum */
    cleanup(freep) struct mapping *mapping = calloc(1, sizeof(*mapping));
    int r;

    r = size_check(fd, size, ret_fault);
    if (r)
        return r;

    if (!mapping)
        return refuse(ENOMEM, request->size, ret_fault);

    mapping->id = request->id;
    mapping->size = size;
    mapping->base =
        mmap(NULL, mapping->size, PROT_READ | (is_read_only ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);
    if (mapping->base == MAP_FAILED)
        return refuse(errno, request->size, ret_fault);

    *ret_address = (uint64_t)(uintptr_t)mapping->base + offset;
    list_append(&memory->mappings, &mapping->node);
    (void)steal(mapping, NULL);
    return 0;
}

static int create_and_map(struct cpu_memory *memory,
                          const struct link_message *request,
                          int *ret_fd,
                          uint64_t *ret_address,
                          struct fault *ret_fault)
{
    cleanup(fd_closep) int fd = -1;
    int r;

    r = memory_create(request->size, &fd, ret_fault);
    if (r)
        return r;

    r = mapping_new(memory, request, fd, ret_address, ret_fault);
    if (r)
        return r;

    *ret_fd = steal(fd, -1);
    return 0;
}

int cpu_memory_map(struct cpu_memory *memory,
                   const struct link_message *request,
                   int *fd,
                   uint64_t *ret_address,
                   struct fault *ret_fault)
{
    int r;

    switch (request->memory_kind) {
    case LINK_MEMORY_HOST:
    case LINK_MEMORY_DEVICE_IMPORT:
    case LINK_MEMORY_DEVICE_FOREIGN:
        r = mapping_new(memory, request, *fd, ret_address, ret_fault);
        if (r == 0)
            fd_closep(fd); /* the mapping holds the memory */
        return r;
    case LINK_MEMORY_DEVICE_CREATE:
        return create_and_map(memory, request, fd, ret_address, ret_fault);
    case LINK_MEMORY_DEVICE_IPC:
        (void)fault_set(ret_fault, STATUS_UNSUPPORTED, "handle",
                        "the device is the CPU, which has no CUDA handles");
        return CPU_MEMORY_E_REFUSED;
    default:
        (void)fault_set(ret_fault, STATUS_INTERNAL, "memory_kind", "unknown kind of memory %u",
                        request->memory_kind);
        return CPU_MEMORY_E_REFUSED;
    }
}

static void mapping_free(struct mapping *mapping)
{
    list_unlink(&mapping->node);
    (void)munmap(mapping->base, mapping->size);
    free(mapping);
}

void cpu_memory_unmap(struct cpu_memory *memory, uint64_t id)
{
    list_for_each_safe(node, following, &memory->mappings)
    {
        struct mapping *mapping = container_of(node, struct mapping, node);

        if (mapping->id == id)
            mapping_free(mapping);
    }
}

void cpu_memory_init(struct cpu_memory *memory)
{
    list_init(&memory->mappings);
}

void cpu_memory_deinit(struct cpu_memory *memory)
{
    list_for_each_safe(node, following, &memory->mappings)
        mapping_free(container_of(node, struct mapping, node));
}
