/*
 * The fake driver's memory: allocations, mappings, registrations, and copies with the real
 * driver's refusals.
 */
#include "fake_driver_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0: not set. */
static size_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (size_t)atoll(text) : 0;
}

static size_t size_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 ? (size_t)status.st_size : 0;
}

/* As the real driver knows its own descriptors from all others. */
static bool is_device_memory(int fd)
{
    char path[64], target[64] = "";
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target) - 1) > 0 &&
           strncmp(target, "/memfd:" FAKE_DRIVER_MEMORY,
                   sizeof("/memfd:" FAKE_DRIVER_MEMORY) - 1) == 0;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle handle)
{
    (void)handle;
    ENTER(MemGetAllocationPropertiesFromHandle);
    *prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity,
                                               const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    ENTER(MemGetAllocationGranularity);
    *granularity = FAKE_DRIVER_GRANULARITY;
    return CUDA_SUCCESS;
}

/* Filled with a pattern: what a last user may have left there. $FAKE_DRIVER_ROOM: none more while
 * so many are mapped. */
CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle,
                             size_t size,
                             const CUmemAllocationProp *prop,
                             unsigned long long flags)
{
    (void)flags;
    ENTER(MemCreate);
    if (size % FAKE_DRIVER_GRANULARITY ||
        prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    size_t most = number_in("FAKE_DRIVER_ROOM");
    if (size > (size_t)1 << 30 || (most > 0 && fake.live.mappings >= most))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = memfd_create(FAKE_DRIVER_MEMORY, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (pwrite(fd, "left over", 9, 0) != 9)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *handle = (CUmemGenericAllocationHandle)fd;
    fake.live.handles++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER(MemRelease);
    close((int)handle);
    fake.live.handles--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareableHandle,
                                              CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags)
{
    (void)handleType;
    (void)flags;
    ENTER(MemExportToShareableHandle);
    *(int *)shareableHandle = dup((int)handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                void *osHandle,
                                                CUmemAllocationHandleType shHandleType)
{
    (void)shHandleType;
    ENTER(MemImportFromShareableHandle);
    int fd = (int)(intptr_t)osHandle;
    if (!is_device_memory(fd))
        return CUDA_ERROR_INVALID_VALUE;
    if (size_of(fd) == number_in("FAKE_DRIVER_CRASH_IMPORT_SIZE"))
        _exit(99);
    fd = dup(fd);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUmemGenericAllocationHandle)fd;
    fake.live.handles++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(
    CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
    (void)alignment;
    (void)addr;
    (void)flags;
    ENTER(MemAddressReserve);
    void *range = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = (CUdeviceptr)(uintptr_t)range;
    fake.live.ranges++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    ENTER(MemAddressFree);
    munmap((void *)(uintptr_t)ptr, size);
    fake.live.ranges--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr,
                          size_t size,
                          size_t offset,
                          CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    (void)flags;
    ENTER(MemMap);
    void *at = (void *)(uintptr_t)ptr;
    if (offset != 0 || size != size_of((int)handle))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset) != at)
        return CUDA_ERROR_INVALID_VALUE;
    fake_range_add(ptr, size, (int)handle, false);
    fake.live.mappings++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr,
                                size_t size,
                                const CUmemAccessDesc *desc,
                                size_t count)
{
    (void)count;
    ENTER(MemSetAccess);
    bool is_writable = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    int r = mprotect((void *)(uintptr_t)ptr, size, PROT_READ | (is_writable ? PROT_WRITE : 0));
    return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    ENTER(MemUnmap);
    fake_range_remove(ptr);
    mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fake.live.mappings--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    (void)hStream;
    ENTER(MemAllocAsync);
    void *memory = NULL;
    if (bytesize > (size_t)1 << 30 || posix_memalign(&memory, 256, bytesize) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, 0xa5, bytesize);
    *dptr = (CUdeviceptr)(uintptr_t)memory;
    fake.scratch_high = MAX(fake.scratch_high, bytesize);
    fake.live.scratch++;
    return CUDA_SUCCESS;
}

static void run_free(const void *argument)
{
    free((void *)(uintptr_t) * (const CUdeviceptr *)argument);
    fake.live.scratch--;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    ENTER(MemFreeAsync);
    return fake_driver_queue(hStream, run_free, &dptr, sizeof(dptr));
}

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    (void)Flags;
    ENTER(MemHostAlloc);
    *pp = calloc(1, bytesize);
    fake.live.host_allocations++;
    return *pp ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
    /* Also where the call fails: with a lost device pages go back at the process's end, and a test
     * that goes on has no other end for them. */
    free(p);
    fake.live.host_allocations--;
    ENTER(MemFreeHost);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    (void)Flags;
    ENTER(MemHostGetDevicePointer);
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    const char *size = getenv("FAKE_DRIVER_CRASH_SIZE");
    (void)p;
    ENTER(MemHostRegister);
    if (size && bytesize == (size_t)atoll(size))
        _exit(99);
    fake.register_flags = Flags;
    fake.live.registrations++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
    (void)p;
    ENTER(MemHostUnregister);
    fake_driver_settle();
    fake.live.registrations--;
    return CUDA_SUCCESS;
}

/* --- legacy handles -------------------------------------------------------------------------- */

/* Through the exporter's own descriptor, so that it is gone when the exporter is. */
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct fake_driver_ipc ipc;
    char path[64];
    (void)Flags;
    ENTER(IpcOpenMemHandle);
    memcpy(&ipc, &handle, sizeof(ipc));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc.pid, ipc.fd);
    int fd = ipc.magic == FAKE_DRIVER_IPC_MAGIC ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size_of(fd) == number_in("FAKE_DRIVER_CRASH_IMPORT_SIZE"))
        _exit(99);
    fake.opened_size = size_of(fd);
    fake.opened = mmap(NULL, fake.opened_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    *pdptr = (CUdeviceptr)(uintptr_t)fake.opened;
    fake.live.opened++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    (void)dptr;
    ENTER(IpcCloseMemHandle);
    fake.live.opened--;
    return CUDA_SUCCESS;
}

/* Of the handle that was opened last, or of memory of this process. */
CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    ENTER(MemGetAddressRange);
    if (fake_range_find(dptr, pbase, psize))
        return CUDA_SUCCESS;
    if (dptr != (CUdeviceptr)(uintptr_t)fake.opened)
        return CUDA_ERROR_NOT_FOUND;
    *pbase = dptr;
    *psize = fake.opened_size;
    return CUDA_SUCCESS;
}

/* --- copies ---------------------------------------------------------------------------------- */

struct run {
    void *to;
    const void *from;
    size_t size;
};

static void run_copy(const void *argument)
{
    const struct run *run = argument;

    memmove(run->to, run->from, run->size);
}

static CUresult queue_copy(CUstream stream, void *to, const void *from, size_t size)
{
    struct run run = {to, from, size};

    return fake_driver_queue(stream, run_copy, &run, sizeof(run));
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dstDevice,
                                   const void *srcHost,
                                   size_t ByteCount,
                                   CUstream hStream)
{
    ENTER(MemcpyHtoDAsync);
    return queue_copy(hStream, (void *)(uintptr_t)dstDevice, srcHost, ByteCount);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *dstHost,
                                   CUdeviceptr srcDevice,
                                   size_t ByteCount,
                                   CUstream hStream)
{
    ENTER(MemcpyDtoHAsync);
    return queue_copy(hStream, dstHost, (const void *)(uintptr_t)srcDevice, ByteCount);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr dstDevice,
                                   CUdeviceptr srcDevice,
                                   size_t ByteCount,
                                   CUstream hStream)
{
    ENTER(MemcpyDtoDAsync);
    return queue_copy(hStream, (void *)(uintptr_t)dstDevice, (const void *)(uintptr_t)srcDevice,
                      ByteCount);
}

static void run_box(const void *argument)
{
    const CUDA_MEMCPY3D *copy = argument;
    const char *from = copy->srcMemoryType == CU_MEMORYTYPE_HOST
                           ? copy->srcHost
                           : (const char *)(uintptr_t)copy->srcDevice;
    char *to = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? copy->dstHost
                                                         : (char *)(uintptr_t)copy->dstDevice;

    for (size_t z = 0; z < copy->Depth; z++) {
        for (size_t y = 0; y < copy->Height; y++)
            memcpy(to + (z * copy->dstHeight + y) * copy->dstPitch,
                   from + (z * copy->srcHeight + y) * copy->srcPitch, copy->WidthInBytes);
    }
}

CUresult CUDAAPI cuMemcpy3DAsync(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    ENTER(Memcpy3DAsync);
    if (pCopy->srcPitch < pCopy->WidthInBytes || pCopy->dstPitch < pCopy->WidthInBytes ||
        pCopy->srcPitch > INT32_MAX || pCopy->dstPitch > INT32_MAX ||
        pCopy->srcHeight < pCopy->Height || pCopy->dstHeight < pCopy->Height)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_driver_queue(hStream, run_box, pCopy, sizeof(*pCopy));
}

struct fill {
    void *to;
    unsigned char value;
    size_t size;
};

static void run_fill(const void *argument)
{
    const struct fill *fill = argument;

    memset(fill->to, fill->value, fill->size);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dstDevice,
                                 unsigned char uc,
                                 size_t N,
                                 CUstream hStream)
{
    ENTER(MemsetD8Async);
    struct fill fill = {(void *)(uintptr_t)dstDevice, uc, N};
    return fake_driver_queue(hStream, run_fill, &fill, sizeof(fill));
}
