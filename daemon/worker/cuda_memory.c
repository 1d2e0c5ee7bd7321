#include "cuda_memory.h"
#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapping {
    struct list link; /* in cuda_memory.mappings or .closing */
    uint64_t id;
    size_t size; /* as mapped: device memory is rounded up to the granularity */

    struct cuda_host host; /* has no base: device memory */

    /* device */
    CUdeviceptr device; /* reserved address range, 0 for host memory */
    bool is_mapped;
    uint64_t offset; /* from there to what was asked for: foreign memory */

    CUdeviceptr opened; /* by a legacy handle; 0: none */
};

/* The properties of every allocation, needed again for its granularity. */
static CUmemAllocationProp properties(const struct cuda_device *device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
    };
}

void cuda_memory_init(struct cuda_memory *memory,
                      const struct driver *driver,
                      const struct cuda_device *device)
{
    *memory = (struct cuda_memory){.driver = driver, .device = device};
    cuda_hosts_init(&memory->hosts, driver, device);
    list_init(&memory->mappings);
    list_init(&memory->closing);
}

static struct mapping *mapping_new(uint64_t id)
{
    struct mapping *mapping = calloc(1, sizeof(*mapping));

    if (!mapping)
        return NULL;
    mapping->id = id;
    cuda_host_init(&mapping->host);
    return mapping;
}

/* Accepts a half-built mapping. Results are ignored on purpose: after a sticky error every call
 * fails, and the process is about to end. */
static void mapping_free(struct mapping *mapping, struct cuda_memory *memory)
{
    const struct driver *driver = memory->driver;

    cuda_host_deinit(&mapping->host, &memory->hosts);
    if (mapping->is_mapped)
        (void)cu(driver)->MemUnmap(mapping->device, mapping->size);
    if (mapping->device)
        (void)cu(driver)->MemAddressFree(mapping->device, mapping->size);
    if (mapping->opened)
        (void)cu_parked(driver)->IpcCloseMemHandle(mapping->opened);
    free(mapping);
}

void cuda_memory_close_one(struct cuda_memory *memory)
{
    struct mapping *mapping;

    if (!cuda_memory_is_closing(memory))
        return;
    mapping = container_of(memory->closing.next, struct mapping, link);
    list_unlink(&mapping->link);
    mapping_free(mapping, memory);
}

bool cuda_memory_wants_rest(const struct cuda_memory *memory)
{
    return cuda_memory_is_closing(memory) &&
           clock_now_ns() - memory->closing_since_ns >= CUDA_MEMORY_CLOSING_NS;
}

void cuda_memory_deinit(struct cuda_memory *memory)
{
    while (cuda_memory_is_closing(memory))
        cuda_memory_close_one(memory);
    list_for_each_safe(node, next, &memory->mappings)
    {
        struct mapping *mapping = container_of(node, struct mapping, link);
        list_unlink(node);
        mapping_free(mapping, memory);
    }
}

static int map_host(struct cuda_memory *memory,
                    const struct link_message *request,
                    int fd,
                    struct mapping *mapping,
                    struct fault *ret_fault)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return error_origin(-errno);
    if (status.st_size < 0 || (uint64_t)status.st_size < request->size) {
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
                  "the descriptor holds %lld bytes, %" PRIu64 " were asked for",
                  (long long)status.st_size, request->size);
        return DRIVER_E_FAULT;
    }

    int protection = PROT_READ | (request->writable ? PROT_WRITE : 0);
    void *base = mmap(NULL, request->size, protection, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        fault_set(ret_fault, errno == ENOMEM ? STATUS_OUT_OF_MEMORY : STATUS_INVALID_ARGUMENT,
                  "buffer", "mapping %" PRIu64 " bytes of host memory: %s", request->size,
                  strerror(errno));
        return DRIVER_E_FAULT;
    }

    mapping->host.base = base;
    mapping->host.size = request->size;
    mapping->host.is_writable = request->writable;
    cuda_host_add(&mapping->host, &memory->hosts);
    return 0;
}

static int round_up(uint64_t size, size_t granularity, size_t *ret_size, struct fault *ret_fault)
{
    uint64_t rounded;
    if (!add_overflows(size, granularity - 1, &rounded)) {
        *ret_size = rounded / granularity * granularity;
        return 0;
    }
    fault_set(ret_fault, STATUS_OUT_OF_MEMORY, "size",
              "%" PRIu64 " bytes are more than any device has", size);
    return DRIVER_E_FAULT;
}

/* Gives the allocation an address. The mapping keeps the memory alive, the handle is not needed
 * after this. */
static int map_handle(struct cuda_memory *memory,
                      CUmemGenericAllocationHandle handle,
                      bool is_writable,
                      struct mapping *mapping,
                      struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->device->handle},
        .flags = is_writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    CUdeviceptr address = 0;
    int r = cu_try(driver, ret_fault, MemAddressReserve, &address, mapping->size,
                   /* alignment= */ 0, 0, 0);
    if (r)
        return r;
    mapping->device = address;

    r = cu_try(driver, ret_fault, MemMap, mapping->device, mapping->size, 0, handle, 0);
    if (r)
        return r;
    mapping->is_mapped = true;

    return cu_try(driver, ret_fault, MemSetAccess, mapping->device, mapping->size, &access, 1);
}

/* New memory must not show what its last user left there. On the legacy stream: it is idle, since
 * every other stream of this process is non-blocking. */
static int zero(struct cuda_memory *memory, struct mapping *mapping, struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    int r = cu_parked_try(driver, ret_fault, MemsetD8Async, mapping->device, 0, mapping->size,
                          /* stream= */ NULL);
    if (r)
        return r;
    return cu_try(driver, ret_fault, StreamSynchronize, NULL);
}

/* Memory that the scratch pool keeps for speed counts as free: give it back and ask again. */
static int allocate(struct cuda_memory *memory,
                    size_t size,
                    CUmemGenericAllocationHandle *ret_handle,
                    struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    CUmemAllocationProp property = properties(memory->device);
    CUresult result = cu(driver)->MemCreate(ret_handle, size, &property, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        (void)cu_parked(driver)->MemPoolTrimTo(memory->device->pool, 0);
        result = cu(driver)->MemCreate(ret_handle, size, &property, 0);
    }
    return driver_check(driver, result, "cuMemCreate", ret_fault);
}

static int export_handle(struct cuda_memory *memory,
                         CUmemGenericAllocationHandle handle,
                         int *ret_fd,
                         struct fault *ret_fault)
{
    return cu_try(memory->driver, ret_fault, MemExportToShareableHandle, ret_fd, handle,
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static int create_device(struct cuda_memory *memory,
                         const struct link_message *request,
                         struct mapping *mapping,
                         int *ret_fd,
                         struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    CUmemGenericAllocationHandle handle;
    cleanup(fd_closep) int fd = -1;
    int r = round_up(request->size, memory->device->granularity, &mapping->size, ret_fault);
    if (r)
        return r;
    r = allocate(memory, mapping->size, &handle, ret_fault);
    if (r)
        return r;

    r = map_handle(memory, handle, /* is_writable= */ true, mapping, ret_fault);
    if (!r)
        r = zero(memory, mapping, ret_fault);
    if (!r)
        r = export_handle(memory, handle, &fd, ret_fault);
    (void)cu(driver)->MemRelease(handle);
    if (!r)
        *ret_fd = steal(fd, -1);
    return r;
}

static int import_device(struct cuda_memory *memory,
                         const struct link_message *request,
                         int fd,
                         struct mapping *mapping,
                         struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    CUmemGenericAllocationHandle handle;
    int r = round_up(request->size, memory->device->granularity, &mapping->size, ret_fault);
    if (r)
        return r;
    r = cu_try(driver, ret_fault, MemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (r)
        return r;

    r = map_handle(memory, handle, /* is_writable= */ true, mapping, ret_fault);
    (void)cu(driver)->MemRelease(handle);
    return r;
}

/* --- what clients say is device memory ------------------------------------------------------- */

/* A refusal of the driver's is the client's mistake, unless the device is lost. */
static int foreign(int r, const char *argument, const char *what, struct fault *ret_fault)
{
    struct fault cause = *ret_fault;

    if (r == DRIVER_E_FAULT && cause.status != STATUS_OUT_OF_MEMORY)
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, argument, "%s: %.300s", what, cause.message);
    return r;
}

/* Only the driver knows what lies behind a descriptor: a memfd or a socket is refused here, memory
 * of another GPU below, and memory smaller than claimed by the mapping. */
static int foreign_check(struct cuda_memory *memory,
                         CUmemGenericAllocationHandle handle,
                         struct fault *ret_fault)
{
    CUmemAllocationProp property = {0};
    int r =
        cu_try(memory->driver, ret_fault, MemGetAllocationPropertiesFromHandle, &property, handle);

    if (r)
        return foreign(r, "fd", "the descriptor's memory has no properties", ret_fault);
    if (property.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
        property.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        property.location.id == memory->device->handle)
        return 0;
    fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd",
              "the descriptor's memory does not lie on the daemon's device");
    return DRIVER_E_FAULT;
}

/* An allocation is mapped as a whole: the driver refuses a part of it (NOT_SUPPORTED, driver 580),
 * as it refuses more than there is. So what the client says of its size is checked exactly. */
static int map_foreign(struct cuda_memory *memory,
                       const struct link_message *request,
                       int fd,
                       struct mapping *mapping,
                       struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    CUmemGenericAllocationHandle handle;
    int r = round_up(request->allocation, memory->device->granularity, &mapping->size, ret_fault);

    if (r)
        return r;
    mapping->offset = request->offset;
    r = cu_try(driver, ret_fault, MemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (r)
        return foreign(r, "fd", "the descriptor is no device memory to share", ret_fault);

    r = foreign_check(memory, handle, ret_fault);
    if (!r) {
        r = map_handle(memory, handle, request->writable, mapping, ret_fault);
        r = foreign(r, "size", "the allocation is not of that size", ret_fault);
    }
    (void)cu(driver)->MemRelease(handle);
    return r;
}

/* The handle stands for a whole allocation of another process, which says how large it is. */
static int open_ipc(struct cuda_memory *memory,
                    const struct link_message *request,
                    struct mapping *mapping,
                    struct fault *ret_fault)
{
    const struct driver *driver = memory->driver;
    CUipcMemHandle handle;
    CUdeviceptr base = 0;
    int r;

    static_assert(sizeof(handle) == LINK_IPC_HANDLE, "the driver's handle");
    memcpy(&handle, request->handle, sizeof(handle));
    r = cu_try(driver, ret_fault, IpcOpenMemHandle, &mapping->opened, handle,
               CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (r)
        return foreign(r, "handle", "no memory can be opened by the handle", ret_fault);

    mapping->offset = request->offset;
    r = cu_try(driver, ret_fault, MemGetAddressRange, &base, &mapping->size, mapping->opened);
    if (r)
        return foreign(r, "handle", "the handle's memory has no size", ret_fault);
    if (request->offset + request->size <= mapping->size - (mapping->opened - base))
        return 0; /* the front has checked the sum */
    fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
              "offset %" PRIu64 " and size %" PRIu64 " exceed the allocation's %zu bytes",
              request->offset, request->size, mapping->size);
    return DRIVER_E_FAULT;
}

/* The driver and mmap keep their own reference to what they were given. */
static void consume(int *fd)
{
    fd_closep(fd);
    *fd = -1;
}

static int build(struct cuda_memory *memory,
                 const struct link_message *request,
                 int *fd,
                 struct mapping *mapping,
                 struct fault *ret_fault)
{
    int r;
    if (request->size == 0 || request->size > SIZE_MAX / 2) {
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "size",
                  "%" PRIu64 " bytes given, 1 to %zu allowed", request->size, SIZE_MAX / 2);
        return DRIVER_E_FAULT;
    }

    switch ((enum link_memory_kind)request->memory_kind) {
    case LINK_MEMORY_HOST:
        r = map_host(memory, request, *fd, mapping, ret_fault);
        break;
    case LINK_MEMORY_DEVICE_IMPORT:
        r = import_device(memory, request, *fd, mapping, ret_fault);
        break;
    case LINK_MEMORY_DEVICE_FOREIGN:
        r = map_foreign(memory, request, *fd, mapping, ret_fault);
        break;
    case LINK_MEMORY_DEVICE_IPC:
        return open_ipc(memory, request, mapping, ret_fault);
    case LINK_MEMORY_DEVICE_CREATE:
        return create_device(memory, request, mapping, fd, ret_fault);
    default:
        return error_origin(-EPROTO); /* the front and the worker are one binary */
    }
    if (!r)
        consume(fd);
    return r;
}

static uint64_t address_of(const struct mapping *mapping)
{
    if (mapping->opened)
        return mapping->opened + mapping->offset;
    if (mapping->device)
        return mapping->device + mapping->offset;
    return (uint64_t)(uintptr_t)mapping->host.base;
}

int cuda_memory_map(struct cuda_memory *memory,
                    const struct link_message *request,
                    int *fd,
                    uint64_t *ret_address,
                    struct fault *ret_fault)
{
    struct mapping *mapping = mapping_new(request->id);
    if (!mapping)
        return error_origin(-ENOMEM);

    int r = build(memory, request, fd, mapping, ret_fault);
    if (r) {
        mapping_free(mapping, memory);
        return r;
    }

    *ret_address = address_of(mapping);
    list_append(&memory->mappings, &mapping->link);
    return 0;
}

/* By measurement: driver.h. */
static bool waits_for_rest(const struct mapping *mapping)
{
    return mapping->host.is_registered || mapping->opened;
}

static void close_later(struct cuda_memory *memory, struct mapping *mapping)
{
    if (!cuda_memory_is_closing(memory))
        memory->closing_since_ns = clock_now_ns();
    list_append(&memory->closing, &mapping->link);
}

void cuda_memory_unmap(struct cuda_memory *memory, uint64_t id)
{
    list_for_each_safe(node, next, &memory->mappings)
    {
        struct mapping *mapping = container_of(node, struct mapping, link);
        if (mapping->id != id)
            continue;
        list_unlink(node);
        if (waits_for_rest(mapping))
            close_later(memory, mapping);
        else
            mapping_free(mapping, memory);
        return;
    }
}
