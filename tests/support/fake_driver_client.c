/*
 * The fake driver as a client's process sees it, through client/python/gemmd/_cuda.py: contexts,
 * allocations of its own, and the two ways to lend them. cuMemAlloc is memory with a legacy handle
 * only, as cudaMalloc's; what was mapped by cuMemMap has a descriptor.
 */
#include "fake_driver_state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGES_MAX 256

/* Device memory of this process, by address. */
static struct range {
    CUdeviceptr base; /* 0: unused */
    size_t size;
    int fd;
    bool is_plain; /* of cuMemAlloc */
    unsigned long long id;
} ranges[RANGES_MAX];

static unsigned long long last_id;

static struct range *find(CUdeviceptr address)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].base && address - ranges[i].base < ranges[i].size)
            return &ranges[i];
    }
    return NULL;
}

void fake_range_add(CUdeviceptr base, size_t size, int fd, bool is_plain)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].base)
            continue;
        ranges[i] = (struct range){base, size, fcntl(fd, F_DUPFD_CLOEXEC, 0), is_plain, ++last_id};
        return;
    }
}

void fake_range_remove(CUdeviceptr base)
{
    struct range *range = find(base);

    if (!range)
        return;
    close(range->fd);
    range->base = 0;
}

static CUresult CUDAAPI push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI synchronize(void)
{
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI allocate(CUdeviceptr *ret_address, size_t size)
{
    int fd = memfd_create(FAKE_DRIVER_MEMORY, MFD_CLOEXEC);
    void *data;

    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *ret_address = (CUdeviceptr)(uintptr_t)data;
    fake_range_add(*ret_address, size, fd, true);
    close(fd);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI give_back(CUdeviceptr address)
{
    struct range *range = find(address);

    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)range->base, range->size);
    fake_range_remove(address);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI attribute(void *ret_value, CUpointer_attribute which, CUdeviceptr address)
{
    struct range *range = find(address);

    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)ret_value = 0;
    else
        *(unsigned long long *)ret_value = range->id;
    return CUDA_SUCCESS;
}

bool fake_range_find(CUdeviceptr address, CUdeviceptr *ret_base, size_t *ret_size)
{
    struct range *range = find(address);

    if (!range)
        return false;
    *ret_base = range->base;
    *ret_size = range->size;
    return true;
}

static CUresult CUDAAPI retain(CUmemGenericAllocationHandle *ret_handle, void *address)
{
    struct range *range = find((CUdeviceptr)(uintptr_t)address);

    if (!range || range->is_plain)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_handle = (CUmemGenericAllocationHandle)dup(range->fd);
    fake.live.handles++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI ipc_handle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
    struct range *range = find(address);
    struct fake_driver_ipc ipc = {.magic = FAKE_DRIVER_IPC_MAGIC, .pid = getpid()};

    if (!range || !range->is_plain)
        return CUDA_ERROR_INVALID_VALUE;
    ipc.fd = range->fd;
    memset(ret_handle, 0, sizeof(*ret_handle));
    memcpy(ret_handle, &ipc, sizeof(ipc));
    return CUDA_SUCCESS;
}

void *fake_client_call(const char *name)
{
    static const struct {
        const char *name;
        void *address;
    } calls[] = {
        {"cuCtxPushCurrent", (void *)push},
        {"cuCtxPopCurrent", (void *)pop},
        {"cuCtxSynchronize", (void *)synchronize},
        {"cuMemAlloc", (void *)allocate},
        {"cuMemFree", (void *)give_back},
        {"cuPointerGetAttribute", (void *)attribute},
        {"cuMemRetainAllocationHandle", (void *)retain},
        {"cuIpcGetMemHandle", (void *)ipc_handle},
    };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].address;
    }
    return NULL;
}
