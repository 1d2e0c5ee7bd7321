/*
 * The CPU as a compute device: memory is mapped memfds, addresses are pointers, products go to
 * OpenBLAS (cpu_gemm.c).
 *
 * A command runs inside submit() and its completion waits for reap(), so the depth is 1 and the
 * worker answers no message and beats no heart while a long product runs: on this device only its
 * own daemon's jobs wait for that, and a thread for it would cost every small product two wake-ups.
 */
#include "backend.h"

#include "../core/clock.h"
#include "blas.h"
#include "cpu_gemm.h"
#include "cpu_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static_assert((int)CPU_MEMORY_E_REFUSED == (int)BACKEND_E_FAULT, "returned as it is");

struct backend_cpu {
    struct backend backend;
    struct blas blas;
    struct cpu_gemm gemm;
    struct cpu_memory memory;
    struct gemmd_completion finished;
    bool has_finished;
};

static struct backend_cpu *backend_cpu(struct backend *backend)
{
    return container_of(backend, struct backend_cpu, backend);
}

static int cpu_map(struct backend *backend,
                   const struct link_message *request,
                   int *fd,
                   uint64_t *ret_address,
                   struct fault *ret_fault)
{
    return cpu_memory_map(&backend_cpu(backend)->memory, request, fd, ret_address, ret_fault);
}

static void cpu_unmap(struct backend *backend, uint64_t id)
{
    cpu_memory_unmap(&backend_cpu(backend)->memory, id);
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
    cpu->finished = (struct gemmd_completion){.job = command->job, .started_ns = clock_now_ns()};
    cpu->finished.status = (gemmd_u32)execute(cpu, command);
    cpu->finished.finished_ns = clock_now_ns();
    cpu->has_finished = true;
    return 0;
}

static uint32_t cpu_pending(const struct backend *backend)
{
    return container_of(backend, const struct backend_cpu, backend)->has_finished ? 1 : 0;
}

static bool cpu_wants_rest(const struct backend *backend)
{
    (void)backend;
    return false;
}

static bool cpu_is_eager(const struct backend *backend)
{
    (void)backend;
    return false;
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

    cpu_memory_deinit(&cpu->memory);
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
    .wants_rest = cpu_wants_rest,
    .is_eager = cpu_is_eager,
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
    device->memory = cpu_memory_total();
    device->allocation_unit = (uint32_t)sysconf(_SC_PAGESIZE);
    model_name(device->name, sizeof(device->name));
    memcpy(device->driver, blas->description,
           MIN(sizeof(device->driver), sizeof(blas->description)));
}

int backend_cpu_open(struct backend **ret_backend, struct fault *ret_fault)
{
    struct backend_cpu *cpu = calloc(1, sizeof(*cpu));
    const char *library = getenv("GEMMD_BLAS");

    if (!cpu) {
        (void)fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "device", "no memory for the CPU device");
        return BACKEND_E_FAULT;
    }
    cpu->backend.operations = &cpu_operations;
    cpu_memory_init(&cpu->memory);
    blas_init(&cpu->blas, library && library[0] != '\0' ? library : NULL);
    cpu_gemm_init(&cpu->gemm, &cpu->blas);
    device_describe(&cpu->backend.device, &cpu->blas);
    *ret_backend = &cpu->backend;
    return 0;
}
