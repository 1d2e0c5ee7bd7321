/*
 * The copy engines by a context of this process, on memory that it has registered.
 */
#include "gpu.h"
#include "transfer.h"

#include <stdlib.h>

struct copier {
    struct gpu gpu;
    CUstream second;
    void *memory;
    CUdeviceptr device;
};

struct copier *copier_open(const char *uuid, void *memory, size_t bytes)
{
    struct copier *copier = calloc(1, sizeof(*copier));
    struct fault fault = FAULT_NONE;
    if (!copier || gpu_open(&copier->gpu, uuid, &fault) ||
        cu(&copier->gpu.driver)->StreamCreate(&copier->second, CU_STREAM_NON_BLOCKING) ||
        GPU_CALL(&copier->gpu, MemHostRegister)(memory, bytes, 0) ||
        GPU_CALL(&copier->gpu, MemAlloc)(&copier->device, bytes)) {
        free(copier);
        return NULL;
    }
    copier->memory = memory;
    return copier;
}

void copier_close(struct copier *copier)
{
    (void)cu(&copier->gpu.driver)->StreamDestroy(copier->second);
    (void)GPU_CALL(&copier->gpu, MemFree)(copier->device);
    (void)GPU_CALL(&copier->gpu, MemHostUnregister)(copier->memory);
    gpu_close(&copier->gpu);
    free(copier);
}

int copier_copy_both(struct copier *copier, size_t in, size_t out, size_t times)
{
    __typeof__(cuMemcpyHtoDAsync) *copy_in = GPU_CALL(&copier->gpu, MemcpyHtoDAsync);
    __typeof__(cuMemcpyDtoHAsync) *copy_out = GPU_CALL(&copier->gpu, MemcpyDtoHAsync);
    char *memory = copier->memory;
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < times && !r; i++) {
        r = copy_in(copier->device, memory, in, copier->gpu.stream);
        r = r ? r : copy_out(memory + in, copier->device + in, out, copier->second);
    }
    r = r ? r : cu(&copier->gpu.driver)->StreamSynchronize(copier->gpu.stream);
    return r ? (int)r : (int)cu(&copier->gpu.driver)->StreamSynchronize(copier->second);
}

int copier_copy(struct copier *copier, size_t bytes, bool to_device, size_t times)
{
    __typeof__(cuMemcpyHtoDAsync) *in = GPU_CALL(&copier->gpu, MemcpyHtoDAsync);
    __typeof__(cuMemcpyDtoHAsync) *out = GPU_CALL(&copier->gpu, MemcpyDtoHAsync);
    CUstream stream = copier->gpu.stream;
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < times && !r; i++)
        r = to_device ? in(copier->device, copier->memory, bytes, stream)
                      : out(copier->memory, copier->device, bytes, stream);
    return r ? (int)r : (int)cu(&copier->gpu.driver)->StreamSynchronize(stream);
}
