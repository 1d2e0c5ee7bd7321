#include "client_memory.h"

#include "daemon.h"
#include "fake_memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_real(void)
{
    return !test_device_is_cpu() && !test_device_is_fake();
}

/* --- a memfd --------------------------------------------------------------------------------- */

static struct client_memory file_new(uint64_t size)
{
    struct client_memory memory = {.size = size};

    memory.fd = memfd_create(FAKE_DRIVER_MEMORY, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(memory.fd, (off_t)size), 0);
    cr_assert_eq(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    memory.data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
    cr_assert_neq((void *)memory.data, MAP_FAILED);
    return memory;
}

static void file_handle(const struct client_memory *memory, uint8_t ret_handle[64])
{
    const struct fake_driver_ipc ipc = {
        .magic = FAKE_DRIVER_IPC_MAGIC, .pid = getpid(), .fd = memory->fd};

    memset(ret_handle, 0, CLIENT_MEMORY_HANDLE);
    memcpy(ret_handle, &ipc, sizeof(ipc));
}

/* --- a real device's ------------------------------------------------------------------------- */

#ifdef TEST_HAS_CUDA

#    include <cuda.h>
#    include <dlfcn.h>

/* The library is the machine's, found at run time: there is none to link with here. */
static void *call(const char *name)
{
    static void *library;
    void *symbol;

    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    symbol = dlsym(library, name);
    cr_assert_not_null(symbol, "%s", name);
    return symbol;
}

#    define CU(name, ...)                                                                          \
        cr_assert_eq(((__typeof__(name) *)call(CU_NAME(name)))(__VA_ARGS__), CUDA_SUCCESS, "%s",   \
                     #name)
#    define CU_NAME(name)    CU_NAME_OF(name)
#    define CU_NAME_OF(name) #    name /* the header's macros have put the version there */

static CUmemAllocationProp properties(void)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
}

static void open_device(void)
{
    static CUcontext context;

    if (context)
        return;
    CU(cuInit, 0);
    CU(cuDevicePrimaryCtxRetain, &context, 0);
    CU(cuCtxSetCurrent, context);
}

static struct client_memory device_new(uint64_t size)
{
    CUmemAllocationProp what = properties();
    CUmemAccessDesc access = {.location = what.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct client_memory memory = {.size = size};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    open_device();
    CU(cuMemCreate, &handle, size, &what, 0);
    CU(cuMemExportToShareableHandle, &memory.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
       0);
    CU(cuMemAddressReserve, &address, size, 0, 0, 0);
    CU(cuMemMap, address, size, 0, handle, 0);
    CU(cuMemSetAccess, address, size, &access, 1);
    CU(cuMemsetD8, address, 0, size);
    memory.address = address;
    return memory;
}

static struct client_memory device_new_plain(uint64_t size)
{
    struct client_memory memory = {.fd = -1, .size = size};
    CUdeviceptr address;

    open_device();
    CU(cuMemAlloc, &address, size);
    CU(cuMemsetD8, address, 0, size);
    memory.address = address;
    return memory;
}

static void device_handle(const struct client_memory *memory, uint8_t ret_handle[64])
{
    CUipcMemHandle handle;

    CU(cuIpcGetMemHandle, &handle, memory->address);
    memcpy(ret_handle, &handle, CLIENT_MEMORY_HANDLE);
}

static void device_write(uint64_t address, const void *data, uint64_t bytes)
{
    CU(cuMemcpyHtoD, address, data, bytes);
}

static void device_read(uint64_t address, void *ret_data, uint64_t bytes)
{
    CU(cuMemcpyDtoH, ret_data, address, bytes);
}

#else

static struct client_memory device_new(uint64_t size)
{
    (void)size;
    cr_skip_test("built without CUDA's header");
    return (struct client_memory){.fd = -1};
}

static struct client_memory device_new_plain(uint64_t size)
{
    return device_new(size);
}

static void device_handle(const struct client_memory *memory, uint8_t ret_handle[64])
{
    (void)memory;
    (void)ret_handle;
}

static void device_write(uint64_t address, const void *data, uint64_t bytes)
{
    (void)address;
    (void)data;
    (void)bytes;
}

static void device_read(uint64_t address, void *ret_data, uint64_t bytes)
{
    (void)address;
    (void)ret_data;
    (void)bytes;
}

#endif

/* --- either ---------------------------------------------------------------------------------- */

struct client_memory client_memory_new(uint64_t size)
{
    return is_real() ? device_new(size) : file_new(size);
}

struct client_memory client_memory_new_plain(uint64_t size)
{
    return is_real() ? device_new_plain(size) : file_new(size);
}

void client_memory_handle(const struct client_memory *memory, uint8_t ret_handle[64])
{
    if (memory->data)
        file_handle(memory, ret_handle);
    else
        device_handle(memory, ret_handle);
}

void client_memory_write(const struct client_memory *memory,
                         uint64_t offset,
                         const void *data,
                         uint64_t bytes)
{
    if (memory->data)
        memcpy(memory->data + offset, data, bytes);
    else
        device_write(memory->address + offset, data, bytes);
}

void client_memory_read(const struct client_memory *memory,
                        uint64_t offset,
                        void *ret_data,
                        uint64_t bytes)
{
    if (memory->data)
        memcpy(ret_data, memory->data + offset, bytes);
    else
        device_read(memory->address + offset, ret_data, bytes);
}

void client_memory_set(const struct client_memory *memory, uint64_t i, float value)
{
    client_memory_write(memory, i * sizeof(value), &value, sizeof(value));
}

float client_memory_get(const struct client_memory *memory, uint64_t i)
{
    float value;

    client_memory_read(memory, i * sizeof(value), &value, sizeof(value));
    return value;
}
