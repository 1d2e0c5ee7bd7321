#include "cuda_device.h"
#include "../core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COMPUTE_MAJOR_MIN 8 /* cp.async and mma.sync of the portable kernels */

/* Scratch memory that the pool keeps between jobs, at most this part of the device: below it a
 * staged job costs no allocation, above it the memory goes back to those who map buffers. */
#define POOL_KEPT_FRACTION 16

static int absent(struct fault *ret_fault, const char *selector, const char *why)
{
    fault_set(ret_fault, STATUS_UNSUPPORTED, "device", "device \"%s\": %s", selector, why);
    return DRIVER_E_ABSENT;
}

static int absent_error(struct fault *ret_fault,
                        const struct driver *driver,
                        const char *selector,
                        const char *call,
                        CUresult result)
{
    char why[128];
    snprintf(why, sizeof(why), "%s: %s", call, driver_error_name(driver, result));
    return absent(ret_fault, selector, why);
}

/* The form of nvidia-smi: GPU-8-4-4-4-12 hex digits. */
static void uuid_to_text(const CUuuid *uuid, char *ret_text, size_t size)
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(ret_text, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static bool uuid_matches(const struct driver *driver, CUdevice handle, const char *selector)
{
    CUuuid uuid;
    char text[64];
    if (cu(driver)->DeviceGetUuid(&uuid, handle) != CUDA_SUCCESS)
        return false;
    uuid_to_text(&uuid, text, sizeof(text));
    return strcasecmp(text, selector) == 0;
}

/* -1 when the selector names no index. */
static int index_from_selector(const char *selector)
{
    if (strcmp(selector, "cuda") == 0)
        return 0;
    if (strncmp(selector, "cuda:", 5) != 0)
        return -1;

    char *end;
    errno = 0;
    long index = strtol(selector + 5, &end, 10);
    bool is_number = end != selector + 5 && *end == 0 && errno == 0;
    return is_number && index >= 0 && index < INT16_MAX ? (int)index : -1;
}

static int find(struct cuda_device *device,
                const struct driver *driver,
                const char *selector,
                struct fault *ret_fault)
{
    int count = 0;
    CUresult result = cu(driver)->DeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return absent_error(ret_fault, driver, selector, "cuDeviceGetCount", result);

    int index = index_from_selector(selector);
    for (int i = 0; i < count; i++) {
        result = cu(driver)->DeviceGet(&device->handle, i);
        if (result != CUDA_SUCCESS)
            return absent_error(ret_fault, driver, selector, "cuDeviceGet", result);
        if (i == index || (index < 0 && uuid_matches(driver, device->handle, selector)))
            return 0;
    }

    char why[96];
    snprintf(why, sizeof(why), "no such GPU; the driver shows %d", count);
    return absent(ret_fault, selector, why);
}

static uint32_t attribute(const struct driver *driver, CUdevice handle, CUdevice_attribute which)
{
    int value = 0;
    if (cu(driver)->DeviceGetAttribute(&value, which, handle) != CUDA_SUCCESS)
        return 0; /* an attribute that this driver does not know: a device that lacks it */
    return value > 0 ? (uint32_t)value : 0;
}

static int check(const struct cuda_device *device,
                 const struct driver *driver,
                 const char *selector,
                 struct fault *ret_fault)
{
    static const struct {
        CUdevice_attribute attribute;
        uint32_t least;
        const char *otherwise;
    } needs[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, COMPUTE_MAJOR_MIN,
         "compute capability below 8.0, which the kernels need"},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1,
         "no virtual memory management, which device buffers need"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1,
         "device memory cannot be exported as a descriptor, so it would not outlive the worker"},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1,
         "no memory pools, which host operands are staged through"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
        if (attribute(driver, device->handle, needs[i].attribute) < needs[i].least)
            return absent(ret_fault, selector, needs[i].otherwise);
    }
    return 0;
}

/* "580.95.05", from the kernel module; empty where there is none to ask. */
static void kernel_module_version(char *ret_text, size_t size)
{
    ret_text[0] = 0;
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    if (!file)
        return;
    if (fgets(ret_text, (int)size, file))
        ret_text[strcspn(ret_text, "\n")] = 0;
    fclose(file);
}

static void describe(const struct cuda_device *device,
                     const struct driver *driver,
                     struct link_device *ret_facts)
{
    CUdevice h = device->handle;
    size_t memory = 0;
    CUuuid uuid = {0};
    char module[24];

    *ret_facts = (struct link_device){
        .kind = LINK_DEVICE_CUDA,
        .compute_major = attribute(driver, h, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        .compute_minor = attribute(driver, h, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        .multiprocessors = attribute(driver, h, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        .shared_memory_per_block =
            attribute(driver, h, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        .driver_version = (uint32_t)driver->version,
        .l2_cache = attribute(driver, h, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        .clock_khz = attribute(driver, h, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .memory_clock_khz = attribute(driver, h, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        .memory_bus_bits = attribute(driver, h, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    };
    if (cu(driver)->DeviceTotalMem(&memory, h) == CUDA_SUCCESS)
        ret_facts->memory = memory;
    if (cu(driver)->DeviceGetName(ret_facts->name, sizeof(ret_facts->name), h) != CUDA_SUCCESS)
        snprintf(ret_facts->name, sizeof(ret_facts->name), "CUDA device");
    if (cu(driver)->DeviceGetUuid(&uuid, h) == CUDA_SUCCESS)
        uuid_to_text(&uuid, ret_facts->uuid, sizeof(ret_facts->uuid));
    kernel_module_version(module, sizeof(module));
    snprintf(ret_facts->driver, sizeof(ret_facts->driver), "CUDA %d.%d driver%s%s",
             driver->version / 1000, driver->version % 1000 / 10, module[0] ? " " : "", module);
}

static int open_context(struct cuda_device *device,
                        const struct driver *driver,
                        uint64_t memory,
                        const char *selector,
                        struct fault *ret_fault)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
    };
    cuuint64_t kept = memory / POOL_KEPT_FRACTION;
    int may_wait = 0;
    const char *call = "cuDevicePrimaryCtxRetain";
    CUresult result = cu(driver)->DevicePrimaryCtxRetain(&device->context, device->handle);
    if (result != CUDA_SUCCESS) {
        device->context = NULL;
        return absent_error(ret_fault, driver, selector, call, result);
    }

    call = "cuCtxSetCurrent";
    result = cu(driver)->CtxSetCurrent(device->context);
    if (result == CUDA_SUCCESS) {
        call = "cuMemGetAllocationGranularity";
        result = cu(driver)->MemGetAllocationGranularity(&device->granularity, &properties,
                                                         CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceGetDefaultMemPool";
        result = cu(driver)->DeviceGetDefaultMemPool(&device->pool, device->handle);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuMemPoolSetAttribute";
        result =
            cu(driver)->MemPoolSetAttribute(device->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept);
    }
    if (result == CUDA_SUCCESS) {
        /* What one lane gives back when its work is done would go to another one that then waits
         * for that work. Each finds what it gave back itself. */
        result = cu(driver)->MemPoolSetAttribute(
            device->pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &may_wait);
    }
    return result == CUDA_SUCCESS ? 0 : absent_error(ret_fault, driver, selector, call, result);
}

int cuda_device_init(struct cuda_device *device,
                     const struct driver *driver,
                     const char *selector,
                     struct link_device *ret_facts,
                     struct fault *ret_fault)
{
    *device = (struct cuda_device){0};
    int r = find(device, driver, selector, ret_fault);
    if (r)
        return r;

    r = check(device, driver, selector, ret_fault);
    if (r)
        return r;

    struct link_device facts;
    describe(device, driver, &facts);
    r = open_context(device, driver, facts.memory, selector, ret_fault);
    if (r) {
        cuda_device_deinit(device, driver);
        return r;
    }

    device->can_register_read_only =
        attribute(driver, device->handle, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
    *ret_facts = facts;
    return 0;
}

void cuda_device_deinit(struct cuda_device *device, const struct driver *driver)
{
    if (!device->context)
        return;
    (void)cu(driver)->CtxSetCurrent(NULL);
    (void)cu_parked(driver)->DevicePrimaryCtxRelease(device->handle);
    device->context = NULL;
}
