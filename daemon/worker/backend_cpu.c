/*
 * The CPU as a compute device: memory is mapped memfds, addresses are pointers, products go to
 * OpenBLAS (cpu_gemm.c).
 *
 * A command runs inside submit() and its completion waits for reap(), so the depth is 1 and the
 * worker answers no message and beats no heart while a long product runs: on this device only its
 * own daemon's jobs wait for that, and a thread for it would cost every small product two wake-ups.
 *
 * Memory descriptors are trusted to be as large as the front says for as long as they are mapped:
 * it takes client memory only with F_SEAL_SHRINK, and what is made here carries that seal.
 */
#include "../core/error.h"
#include "../core/list.h"
#include "backend.h"
#include "blas.h"
#include "cpu_gemm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct mapping {
    struct list node;
    uint64_t id;
    void *base;
    size_t size;
};

struct backend_cpu {
    struct backend backend;
    struct blas blas;
    struct cpu_gemm gemm;
    struct list mappings;
    struct gemmd_completion finished;
    bool has_finished;
};

static struct backend_cpu *backend_cpu(struct backend *backend)
{
    return container_of(backend, struct backend_cpu, backend);
}

/* --- memory ---------------------------------------------------------------------------------- */

/* What the kernel could give without swapping: a promise beyond it ends in SIGBUS or worse. */
static uint64_t meminfo(const char *field)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = 0;

    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, field, strlen(field)) == 0) {
            kib = strtoull(line + strlen(field), NULL, 10);
            break;
        }
    }
    if (file)
        (void)fclose(file);
    return kib * 1024;
}

static int memory_refused(int error, uint64_t size, struct fault *ret_fault)
{
    (void)fault_set(ret_fault, error == ENOMEM ? STATUS_OUT_OF_MEMORY : STATUS_INTERNAL, "size",
                    "%" PRIu64 " bytes cannot be mapped on the CPU device: %s", size,
                    strerror(error));
    return BACKEND_E_FAULT;
}

static int size_check(int fd, uint64_t size, struct fault *ret_fault)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return memory_refused(errno, size, ret_fault);

    if (size == 0 || (uint64_t)st.st_size < size) {
        (void)fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
                        "size is %" PRIu64 "; the memory behind the descriptor allows 1 to %" PRIu64
                        " bytes",
                        size, (uint64_t)st.st_size);
        return BACKEND_E_FAULT;
    }
    return 0;
}

/* Fills the pages now: memory that turns out to be missing later would be a SIGBUS. */
static int memory_create(uint64_t size, int *ret_fd, struct fault *ret_fault)
{
    cleanup(fd_closep) int fd = memfd_create("gemmd-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const uint64_t available = meminfo("MemAvailable:");

    if (fd < 0)
        return memory_refused(errno, size, ret_fault);

    if (size > available) {
        (void)fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "size",
                        "size is %" PRIu64 "; the CPU device has %" PRIu64 " bytes available", size,
                        available);
        return BACKEND_E_FAULT;
    }
    if (ftruncate(fd, (off_t)size) < 0 || fallocate(fd, 0, 0, (off_t)size) < 0)
        return memory_refused(errno == ENOSPC ? ENOMEM : errno, size, ret_fault);

    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return memory_refused(errno, size, ret_fault);

    *ret_fd = steal(fd, -1);
    return 0;
}

static int memory_map(struct backend_cpu *cpu,
                      const struct link_message *request,
                      int fd,
                      uint64_t *ret_address,
                      struct fault *ret_fault)
{
    const bool is_read_only = request->memory_kind == LINK_MEMORY_HOST && !request->writable;
    cleanup(freep) struct mapping *mapping = calloc(1, sizeof(*mapping));
    int r;

    r = size_check(fd, request->size, ret_fault);
    if (r)
        return r;

    if (!mapping)
        return memory_refused(ENOMEM, request->size, ret_fault);

    mapping->id = request->id;
    mapping->size = request->size;
    mapping->base =
        mmap(NULL, mapping->size, PROT_READ | (is_read_only ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);
    if (mapping->base == MAP_FAILED)
        return memory_refused(errno, request->size, ret_fault);

    *ret_address = (uint64_t)(uintptr_t)mapping->base;
    list_append(&cpu->mappings, &mapping->node);
    (void)steal(mapping, NULL);
    return 0;
}

static int cpu_map(struct backend *backend,
                   const struct link_message *request,
                   int *fd,
                   uint64_t *ret_address,
                   struct fault *ret_fault)
{
    struct backend_cpu *cpu = backend_cpu(backend);
    cleanup(fd_closep) int created = -1;
    int r;

    switch (request->memory_kind) {
    case LINK_MEMORY_HOST:
    case LINK_MEMORY_DEVICE_IMPORT:
        r = memory_map(cpu, request, *fd, ret_address, ret_fault);
        if (r == 0)
            fd_closep(fd); /* the mapping holds the memory */
        return r;
    case LINK_MEMORY_DEVICE_CREATE:
        r = memory_create(request->size, &created, ret_fault);
        if (r == 0)
            r = memory_map(cpu, request, created, ret_address, ret_fault);
        if (r == 0)
            *fd = steal(created, -1);
        return r;
    default:
        (void)fault_set(ret_fault, STATUS_INTERNAL, "memory_kind", "unknown kind of memory %u",
                        request->memory_kind);
        return BACKEND_E_FAULT;
    }
}

static void mapping_free(struct mapping *mapping)
{
    list_unlink(&mapping->node);
    (void)munmap(mapping->base, mapping->size);
    free(mapping);
}

static void cpu_unmap(struct backend *backend, uint64_t id)
{
    list_for_each_safe(node, following, &backend_cpu(backend)->mappings)
    {
        struct mapping *mapping = container_of(node, struct mapping, node);

        if (mapping->id == id)
            mapping_free(mapping);
    }
}

/* --- commands -------------------------------------------------------------------------------- */

static int cpu_load(struct backend *backend,
                    const struct link_message *request,
                    const void *cubin,
                    struct fault *ret_fault)
{
    (void)backend;
    (void)cubin;
    (void)fault_set(ret_fault, STATUS_UNSUPPORTED, "kernel",
                    "kernel %" PRIu64 " is for a GPU; the device is the CPU", request->id);
    return BACKEND_E_FAULT;
}

static void cpu_unload(struct backend *backend, uint64_t kernel)
{
    (void)backend; /* none was ever loaded */
    (void)kernel;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *pointer(gemmd_u64 address)
{
    return (void *)(uintptr_t)address;
}

static enum status execute(struct backend_cpu *cpu, const struct gemmd_command *command)
{
    const struct gemmd_copy *copy = &command->body.copy;

    switch (command->kind) {
    case GEMMD_COMMAND_GEMM:
        return cpu_gemm_run(&cpu->gemm, &command->body.gemm);
    case GEMMD_COMMAND_COPY:
        if (copy->size > 0)
            memmove(pointer(copy->destination), pointer(copy->source), copy->size);
        return STATUS_OK;
    case GEMMD_COMMAND_ZERO:
        if (copy->size > 0)
            memset(pointer(copy->destination), 0, copy->size);
        return STATUS_OK;
    default:
        return STATUS_UNSUPPORTED;
    }
}

static int cpu_submit(struct backend *backend, const struct gemmd_command *command)
{
    struct backend_cpu *cpu = backend_cpu(backend);

    assert(!cpu->has_finished);
    cpu->finished = (struct gemmd_completion){.job = command->job, .started_ns = now_ns()};
    cpu->finished.status = (gemmd_u32)execute(cpu, command);
    cpu->finished.finished_ns = now_ns();
    cpu->has_finished = true;
    return 0;
}

static uint32_t cpu_pending(const struct backend *backend)
{
    return container_of(backend, const struct backend_cpu, backend)->has_finished ? 1 : 0;
}

static int cpu_reap(struct backend *backend, struct gemmd_completion *ret_completion)
{
    struct backend_cpu *cpu = backend_cpu(backend);

    if (!cpu->has_finished)
        return 0;

    *ret_completion = cpu->finished;
    cpu->has_finished = false;
    return 1;
}

/* --- open and close -------------------------------------------------------------------------- */

static void cpu_close(struct backend *backend)
{
    struct backend_cpu *cpu = backend_cpu(backend);

    list_for_each_safe(node, following, &cpu->mappings)
        mapping_free(container_of(node, struct mapping, node));
    cpu_gemm_deinit(&cpu->gemm);
    blas_deinit(&cpu->blas);
    free(cpu);
}

static const struct backend_operations cpu_operations = {
    .name = "cpu",
    .close = cpu_close,
    .map = cpu_map,
    .unmap = cpu_unmap,
    .load = cpu_load,
    .unload = cpu_unload,
    .submit = cpu_submit,
    .pending = cpu_pending,
    .depth = 1,
    .reap = cpu_reap,
};

/* "model name : AMD EPYC 9654"; "CPU" where /proc/cpuinfo has no such line. */
static void model_name(char *ret_name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    (void)snprintf(ret_name, size, "CPU");
    while (file && fgets(line, sizeof(line), file)) {
        const char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) == 0 && colon) {
            (void)snprintf(ret_name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file)
        (void)fclose(file);
}

static void device_describe(struct link_device *device, const struct blas *blas)
{
    device->kind = LINK_DEVICE_CPU;
    device->multiprocessors = blas->threads;
    device->memory = meminfo("MemTotal:");
    model_name(device->name, sizeof(device->name));
    memcpy(device->driver, blas->description,
           MIN(sizeof(device->driver), sizeof(blas->description)));
}

int backend_cpu_open(struct backend **ret_backend, struct fault *ret_fault)
{
    struct backend_cpu *cpu = calloc(1, sizeof(*cpu));

    if (!cpu) {
        (void)fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "device", "no memory for the CPU device");
        return BACKEND_E_FAULT;
    }
    cpu->backend.operations = &cpu_operations;
    list_init(&cpu->mappings);
    blas_init(&cpu->blas, NULL);
    cpu_gemm_init(&cpu->gemm, &cpu->blas);
    device_describe(&cpu->backend.device, &cpu->blas);
    *ret_backend = &cpu->backend;
    return 0;
}
