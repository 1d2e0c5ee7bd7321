#include "spin.h"
#include "../../daemon/jit/nvrtc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SPIN_THREADS    512 /* divides the thread slots of every multiprocessor */
#define SPIN_LIMIT_NS   20000000000ull
#define SPIN_BLOCKS_MAX 4096

static const char source[] =
    "extern \"C\" __global__ void __launch_bounds__(512)\n"
    "spin(volatile unsigned *stop, volatile unsigned *started, unsigned long long limit)\n"
    "{\n"
    "    unsigned long long begin, now;\n"
    "    asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(begin));\n"
    "    if (threadIdx.x == 0) {\n"
    "        started[blockIdx.x] = 1;\n"
    "        do {\n"
    "            asm volatile(\"nanosleep.u32 500000;\");\n"
    "            asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now));\n"
    "        } while (!*stop && now - begin < limit);\n"
    "    }\n"
    "    __syncthreads();\n"
    "}\n"
    "extern \"C\" __global__ void nop(unsigned *word)\n"
    "{\n"
    "    if (word)\n"
    "        *word = 1;\n"
    "}\n";

static int open_device(struct driver *driver, CUdevice *ret_device, struct fault *ret_fault)
{
    CUcontext context;
    int r = driver_init(driver, ret_fault);
    if (!r)
        r = cu_try(driver, ret_fault, DeviceGet, ret_device, 0);
    if (!r)
        r = cu_try(driver, ret_fault, DevicePrimaryCtxRetain, &context, *ret_device);
    if (!r)
        r = cu_try(driver, ret_fault, CtxSetCurrent, context);
    return r;
}

static uint32_t architecture(const struct driver *driver, CUdevice device)
{
    int major = 0, minor = 0;
    (void)cu(driver)->DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         device);
    (void)cu(driver)->DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                         device);
    return config_arch_for_device((uint32_t)major, (uint32_t)minor);
}

/* The project's own compiler, given one file under the name of the family's. */
static int compile(uint32_t arch, struct spin_cubin *ret_cubin, struct fault *ret_fault)
{
    struct config configs[CONFIG_LIST_MAX];
    struct nvrtc *nvrtc = NULL;
    struct nvrtc_result result = {0};
    if (config_list(arch, configs) == 0)
        return fault_set(ret_fault, STATUS_UNSUPPORTED, "", "no kernel for architecture %u", arch);

    struct source_file file = {config_source(&configs[0]), source, sizeof(source) - 1};
    struct sources sources = {.files = &file, .count = 1};
    int r = nvrtc_new(&nvrtc, ret_fault);
    if (r)
        return r;

    r = nvrtc_compile(nvrtc, &sources, &configs[0], &result);
    if (r || result.cubin.size > SPIN_CUBIN_MAX) {
        fault_set(ret_fault, STATUS_COMPILE_FAILED, "", "%s", result.log ? result.log : "too big");
        r = r ? r : NVRTC_E_COMPILE;
    } else {
        memcpy(ret_cubin->bytes, result.cubin.bytes, result.cubin.size);
        ret_cubin->size = result.cubin.size;
    }
    nvrtc_result_deinit(&result);
    nvrtc_free(nvrtc);
    return r;
}

int spin_compile(struct spin_cubin *ret_cubin, struct fault *ret_fault)
{
    struct driver driver;
    CUdevice device;
    int r = open_device(&driver, &device, ret_fault);
    return r ? r : compile(architecture(&driver, device), ret_cubin, ret_fault);
}

/* --- preparations ---------------------------------------------------------------------------- */

static int load(struct spin *s, const void *image, struct fault *f)
{
    const struct driver *d = &s->driver;
    int r = cu_parked_try(d, f, ModuleLoadData, &s->module, image);
    if (!r)
        r = cu_parked_try(d, f, ModuleLoadData, &s->other, image);
    if (!r)
        r = cu_parked_try(d, f, ModuleGetFunction, &s->spin, s->module, "spin");
    if (!r)
        r = cu_parked_try(d, f, ModuleGetFunction, &s->nop, s->module, "nop");
    if (!r)
        r = cu_try(d, f, StreamCreate, &s->grid_stream, CU_STREAM_NON_BLOCKING);
    if (!r)
        r = cu_try(d, f, StreamCreate, &s->stream, CU_STREAM_NON_BLOCKING);
    return r;
}

static int allocate_words(struct spin *s, struct fault *f)
{
    const struct driver *d = &s->driver;
    void *stop = NULL, *started = NULL;
    unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    size_t size = SPIN_BLOCKS_MAX * sizeof(uint32_t);
    int r = cu_try(d, f, MemHostAlloc, &stop, sizeof(uint32_t), flags);
    if (!r)
        r = cu_try(d, f, MemHostAlloc, &started, size, flags);
    if (r)
        return r;
    memset(stop, 0, sizeof(uint32_t));
    memset(started, 0, size);
    s->stop = stop;
    s->started = started;
    r = cu_try(d, f, MemHostGetDevicePointer, &s->stop_device, stop, 0);
    if (!r)
        r = cu_try(d, f, MemHostGetDevicePointer, &s->started_device, started, 0);
    return r;
}

static int allocate(struct spin *s, struct fault *f)
{
    const struct driver *d = &s->driver;
    int r = driver_check(d, SPIN_CALL(s, MemAlloc)(&s->memory, SPIN_BYTES), "cuMemAlloc", f);
    if (!r)
        r = driver_check(d, SPIN_CALL(s, MemAlloc)(&s->other_memory, SPIN_BYTES), "cuMemAlloc", f);
    if (!r)
        r = cu_try(d, f, MemAllocAsync, &s->async_memory, SPIN_BYTES, s->stream);
    if (!r)
        r = cu_try(d, f, MemHostAlloc, &s->pinned, SPIN_BYTES, CU_MEMHOSTALLOC_PORTABLE);
    s->registered =
        mmap(NULL, SPIN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s->plain = mmap(NULL, SPIN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!r)
        r = cu_try(d, f, MemHostRegister, s->registered, SPIN_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    if (!r)
        r = cu_try(d, f, DeviceGetDefaultMemPool, &s->pool, s->device);
    if (!r)
        r = cu_try(d, f, StreamSynchronize, s->stream);
    return r;
}

static int map(struct spin *s, struct fault *f)
{
    const struct driver *d = &s->driver;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device};
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = here};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int r = cu_try(d, f, MemGetAllocationGranularity, &s->granularity, &property,
                   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (!r)
        r = cu_try(d, f, MemCreate, &s->handle, s->granularity, &property, 0);
    if (!r)
        r = cu_try(d, f, MemExportToShareableHandle, &s->fd, s->handle,
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (!r)
        r = cu_try(d, f, MemAddressReserve, &s->mapped, s->granularity, 0, 0, 0);
    if (!r)
        r = cu_try(d, f, MemAddressReserve, &s->range, s->granularity, 0, 0, 0);
    if (!r)
        r = cu_try(d, f, MemMap, s->mapped, s->granularity, 0, s->handle, 0);
    if (!r)
        r = cu_try(d, f, MemSetAccess, s->mapped, s->granularity, &access, 1);
    return r;
}

int spin_prepare(struct spin *spin, const struct spin_cubin *cubin, struct fault *ret_fault)
{
    *spin = (struct spin){.fd = -1, .image = cubin->bytes};
    int r = open_device(&spin->driver, &spin->device, ret_fault);
    if (!r)
        r = load(spin, cubin->bytes, ret_fault);
    if (!r)
        r = allocate_words(spin, ret_fault);
    if (!r)
        r = allocate(spin, ret_fault);
    return r ? r : map(spin, ret_fault);
}

/* --- the grid -------------------------------------------------------------------------------- */

static unsigned grid_size(const struct spin *s)
{
    int multiprocessors = 0, blocks = 0;
    (void)cu(&s->driver)
        ->DeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, s->device);
    (void)cu_parked(&s->driver)
        ->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->spin, SPIN_THREADS, 0);
    return MIN((unsigned)(multiprocessors * blocks), SPIN_BLOCKS_MAX);
}

static bool all_started(const struct spin *s, unsigned grid)
{
    for (unsigned i = 0; i < grid; i++) {
        if (!s->started[i])
            return false;
    }
    return true;
}

bool spin_start(struct spin *spin)
{
    unsigned grid = grid_size(spin);
    unsigned long long limit = SPIN_LIMIT_NS;
    void *parameters[] = {&spin->stop_device, &spin->started_device, &limit};
    struct timespec pause = {.tv_nsec = 1000000};
    CUlaunchConfig launch = {.gridDimX = grid,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = SPIN_THREADS,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = spin->grid_stream};
    CUresult result =
        cu_parked(&spin->driver)->LaunchKernelEx(&launch, spin->spin, parameters, NULL);
    if (result != CUDA_SUCCESS || grid == 0)
        return false;

    for (int i = 0; i < 2000; i++) {
        if (all_started(spin, grid))
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

void spin_stop(struct spin *spin)
{
    *spin->stop = 1;
    (void)cu(&spin->driver)->StreamSynchronize(spin->grid_stream);
}
