#include "../../kernels_src/abi/job.h"
#include "fake_driver_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_NAME(name)    "cu" #name,
#define CALL_ADDRESS(name) (void *)cu##name,

static const char *const names[] = {DRIVER_CALLS(CALL_NAME) DRIVER_PARKED_CALLS(CALL_NAME)};
static void *const addresses[] = {DRIVER_CALLS(CALL_ADDRESS) DRIVER_PARKED_CALLS(CALL_ADDRESS)};

struct fake_driver fake = {.on_launch = fake_driver_product};

static int number_of(const char *name)
{
    for (int i = 0; i < CALL_COUNT; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    fprintf(stderr, "fake driver: no call %s\n", name);
    abort();
}

void fake_driver_reset(void)
{
    fake = (struct fake_driver){.on_launch = fake_driver_product};
}

void fake_driver_on_launch(fake_driver_launch_fn fn)
{
    fake.on_launch = fn;
}

void fake_driver_fail(const char *name, unsigned nth, CUresult result)
{
    int call = number_of(name);
    fake.fail_at[call] = fake.calls[call] + nth + 1;
    fake.fail_with[call] = result;
}

void fake_driver_break(CUresult result)
{
    fake.broken = result;
}

unsigned fake_driver_calls(const char *name)
{
    return fake.calls[number_of(name)];
}

struct fake_driver_live fake_driver_live(void)
{
    return fake.live;
}

size_t fake_driver_scratch_high(void)
{
    return fake.scratch_high;
}

unsigned fake_driver_register_flags(void)
{
    return fake.register_flags;
}

unsigned fake_driver_repacks(void)
{
    return fake.repacks;
}

struct gemmd_repack fake_driver_last_repack(void)
{
    return fake.last_repack;
}

unsigned fake_driver_sums(void)
{
    return fake.sums;
}

struct fake_driver_launch fake_driver_last_launch(void)
{
    return fake.last_launch;
}

CUresult fake_driver_enter(int call)
{
    fake.calls[call]++;
    if (fake.broken != CUDA_SUCCESS)
        return fake.broken;
    return fake.fail_at[call] == fake.calls[call] ? fake.fail_with[call] : CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuGetProcAddress(const char *symbol,
                                           void **pfn,
                                           int cudaVersion,
                                           cuuint64_t flags,
                                           CUdriverProcAddressQueryResult *symbolStatus)
{
    (void)cudaVersion;
    (void)flags;
    for (int i = 0; i < CALL_COUNT; i++) {
        if (strcmp(names[i], symbol) != 0)
            continue;
        *pfn = addresses[i];
        *symbolStatus = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
    }
    *pfn = fake_client_call(symbol);
    *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* --- device ---------------------------------------------------------------------------------- */

CUresult CUDAAPI cuInit(unsigned int Flags)
{
    const char *lazy = getenv("FAKE_DRIVER_LAZY");
    (void)Flags;
    ENTER(Init);
    if (lazy)
        fake_driver_lazy((unsigned)atoi(lazy));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *driverVersion)
{
    ENTER(DriverGetVersion);
    *driverVersion = 13000;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **pStr)
{
    static char text[32];
    snprintf(text, sizeof(text), "CUDA_ERROR_%d", (int)error);
    *pStr = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : text;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **pStr)
{
    *pStr = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "the fake driver says so";
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    ENTER(DeviceGetCount);
    *count = 2;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(DeviceGet);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
    ENTER(DeviceGetName);
    snprintf(name, (size_t)len, "Fake %d", dev);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    ENTER(DeviceGetUuid);
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(i + 16 * dev);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    (void)dev;
    ENTER(DeviceGetAttribute);
    switch (attrib) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *pi = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *pi = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *pi = FAKE_DRIVER_MULTIPROCESSORS;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *pi = 227 << 10;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *pi = 50 << 20;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        *pi = 1000000;
        break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        *pi = 1024;
        break;
    default: /* what it is asked whether it supports */
        *pi = 1;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
    (void)dev;
    ENTER(DeviceTotalMem);
    const char *total = getenv("FAKE_DRIVER_TOTAL");
    *bytes = total ? (size_t)atoll(total) : (size_t)1 << 30;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    (void)dev;
    ENTER(DeviceGetDefaultMemPool);
    *pool_out = (CUmemoryPool)&fake;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    (void)pool;
    (void)attr;
    (void)value;
    ENTER(MemPoolSetAttribute);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    (void)pool;
    (void)minBytesToKeep;
    ENTER(MemPoolTrimTo);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    (void)dev;
    ENTER(DevicePrimaryCtxRetain);
    *pctx = (CUcontext)&fake;
    fake.live.contexts++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
    (void)dev;
    ENTER(DevicePrimaryCtxRelease);
    fake.live.contexts--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
{
    (void)ctx;
    ENTER(CtxSetCurrent);
    return CUDA_SUCCESS;
}

/* --- kernels --------------------------------------------------------------------------------- */

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(ModuleLoadData);
    if (getenv("FAKE_DRIVER_CRASH_LOAD"))
        _exit(99);
    if (memcmp(image, "\177ELF", 4) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    *module = (CUmodule)&fake;
    fake.live.modules++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
    (void)hmod;
    ENTER(ModuleUnload);
    fake.live.modules--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    (void)hmod;
    ENTER(ModuleGetFunction);
    if (strcmp(name, "gemm") == 0)
        *hfunc = (CUfunction)&fake;
    else if (strcmp(name, "repack") == 0)
        *hfunc = (CUfunction)&fake.repacks;
    else if (strcmp(name, "sum") == 0)
        *hfunc = (CUfunction)&fake.sums;
    else
        return CUDA_ERROR_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    (void)hfunc;
    (void)attrib;
    ENTER(FuncSetAttribute);
    return value <= 227 << 10 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks,
                                                             CUfunction func,
                                                             int blockSize,
                                                             size_t dynamicSMemSize)
{
    (void)func;
    ENTER(OccupancyMaxActiveBlocksPerMultiprocessor);
    int by_threads = 2048 / blockSize;
    int by_memory = dynamicSMemSize ? (int)((228u << 10) / dynamicSMemSize) : by_threads;
    *numBlocks = blockSize > 1024 ? 0 : MIN(by_threads, by_memory);
    return CUDA_SUCCESS;
}

static unsigned cluster_of(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            return config->attrs[i].value.clusterDim.x;
    return 1;
}

static bool is_early(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed;
    return false;
}

/* A launch with copies of its parameters, as the driver makes them. */
struct kernel {
    struct fake_driver_launch launch;
    struct gemmd_feed feed;
    struct gemmd_tensor_maps maps;
};

static void run_kernel(const void *argument)
{
    const struct kernel *kernel = argument;
    struct fake_driver_launch launch = kernel->launch;

    launch.parameter = &kernel->feed;
    launch.maps = &kernel->maps;
    if (fake.on_launch)
        fake.on_launch(&launch);
}

static void run_repack(const void *argument)
{
    fake_driver_repack(argument);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config,
                                  CUfunction f,
                                  void **kernelParams,
                                  void **extra)
{
    (void)extra;
    ENTER(LaunchKernelEx);
    if (f == (CUfunction)&fake.repacks) {
        fake.repacks++;
        fake.last_repack = *(struct gemmd_repack *)kernelParams[0];
        return fake_driver_queue(config->hStream, run_repack, kernelParams[0],
                                 sizeof(struct gemmd_repack));
    }
    /* The product has written D already. */
    if (f == (CUfunction)&fake.sums) {
        fake.sums++;
        return CUDA_SUCCESS;
    }
    struct fake_driver_launch launch = {.parameter = kernelParams[0],
                                        .maps = kernelParams[1],
                                        .grid = config->gridDimX,
                                        .cluster = cluster_of(config),
                                        .threads = config->blockDimX,
                                        .shared_memory = config->sharedMemBytes,
                                        .is_early = is_early(config),
                                        .stream = fake_driver_stream(config->hStream)};
    if (config->gridDimX == 0 || config->gridDimX % launch.cluster != 0 || config->gridDimY != 1 ||
        config->gridDimZ != 1 || config->blockDimY != 1 || config->blockDimZ != 1)
        return CUDA_ERROR_INVALID_VALUE;
    fake.last_launch = launch;
    fake.last_launch.parameter = fake.last_launch.maps = NULL;
    struct kernel kernel = {launch, *(struct gemmd_feed *)launch.parameter,
                            *(struct gemmd_tensor_maps *)launch.maps};
    return fake_driver_queue(config->hStream, run_kernel, &kernel, sizeof(kernel));
}

/* The driver's own rules; the map keeps the address, the sizes and the first box size. */
CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *tensorMap,
                                        CUtensorMapDataType tensorDataType,
                                        cuuint32_t tensorRank,
                                        void *globalAddress,
                                        const cuuint64_t *globalDim,
                                        const cuuint64_t *globalStrides,
                                        const cuuint32_t *boxDim,
                                        const cuuint32_t *elementStrides,
                                        CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion l2Promotion,
                                        CUtensorMapFloatOOBfill oobFill)
{
    (void)tensorDataType;
    (void)elementStrides;
    (void)interleave;
    (void)swizzle;
    (void)l2Promotion;
    (void)oobFill;
    ENTER(TensorMapEncodeTiled);
    cuuint64_t words[16] = {(uintptr_t)globalAddress};
    if ((uintptr_t)tensorMap % 64 != 0 || (uintptr_t)globalAddress % 16 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < tensorRank; i++) {
        bool has_stride = i + 1 < tensorRank;
        if (globalDim[i] == 0 || globalDim[i] > 1ull << 32 || boxDim[i] == 0 || boxDim[i] > 256 ||
            (has_stride && (globalStrides[i] % 16 != 0 || globalStrides[i] >= 1ull << 40)))
            return CUDA_ERROR_INVALID_VALUE;
        words[1 + i] = globalDim[i];
    }
    memcpy(tensorMap, words, sizeof(*tensorMap));
    return CUDA_SUCCESS;
}
