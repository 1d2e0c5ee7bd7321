#include "calls.h"

#define CU(s)     cu(&(s)->driver)
#define PARKED(s) cu_parked(&(s)->driver)

static CUresult then_wait(struct spin *s, CUresult result)
{
    return result == CUDA_SUCCESS ? CU(s)->StreamSynchronize(s->stream) : result;
}

static CUresult queries(struct spin *s)
{
    int value;
    size_t size;
    char name[64];
    CUuuid uuid;
    CUdevice device;
    const char *text;
    CUresult r = CU(s)->DriverGetVersion(&value);
    r = r ? r : CU(s)->DeviceGetCount(&value);
    r = r ? r : CU(s)->DeviceGet(&device, 0);
    r = r ? r : CU(s)->DeviceGetName(name, sizeof(name), device);
    r = r ? r : CU(s)->DeviceGetUuid(&uuid, device);
    r = r ? r : CU(s)->DeviceTotalMem(&size, device);
    r = r ? r : CU(s)->GetErrorName(CUDA_ERROR_UNKNOWN, &text);
    r = r ? r : CU(s)->GetErrorString(CUDA_ERROR_UNKNOWN, &text);
    return r ? r : CU(s)->DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
}

static CUresult context(struct spin *s)
{
    CUcontext c;
    CUresult r = CU(s)->Init(0);
    r = r ? r : CU(s)->DevicePrimaryCtxRetain(&c, s->device);
    return r ? r : CU(s)->CtxSetCurrent(c);
}

static CUresult pool(struct spin *s)
{
    CUmemoryPool p;
    cuuint64_t keep = 1 << 30;
    CUresult r = CU(s)->DeviceGetDefaultMemPool(&p, s->device);
    return r ? r : CU(s)->MemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
}

static CUresult streams(struct spin *s)
{
    CUstream stream;
    CUresult r = CU(s)->StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    r = r ? r : CU(s)->StreamDestroy(stream);
    r = r ? r : CU(s)->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1);
    return r ? r : CU(s)->StreamDestroy(stream);
}

static CUresult query_stream(struct spin *s)
{
    CUresult r = CU(s)->StreamQuery(s->grid_stream);
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
}

/* How driver_check() tells a lost context from a failed request. */
static CUresult query_default_stream(struct spin *s)
{
    CUresult r = CU(s)->StreamQuery(NULL);
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
}

static CUresult write_value(struct spin *s)
{
    return then_wait(s, CU(s)->StreamWriteValue32(s->stream, s->memory, 7, 0));
}

static CUresult events(struct spin *s)
{
    CUevent event;
    CUresult r = CU(s)->EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    r = r ? r : CU(s)->EventRecord(event, s->stream);
    r = r ? r : CU(s)->StreamWaitEvent(s->stream, event, CU_EVENT_WAIT_DEFAULT);
    r = then_wait(s, r);
    r = r ? r : CU(s)->EventQuery(event);
    return r ? r : CU(s)->EventDestroy(event);
}

static CUresult vmm_make(struct spin *s)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device};
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = here};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    size_t size;
    int fd;
    CUresult r =
        CU(s)->MemGetAllocationGranularity(&size, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    r = r ? r : CU(s)->MemCreate(&handle, size, &property, 0);
    r = r ? r
          : CU(s)->MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0);
    r = r ? r : CU(s)->MemAddressReserve(&range, size, 0, 0, 0);
    r = r ? r : CU(s)->MemMap(range, size, 0, handle, 0);
    return r ? r : CU(s)->MemSetAccess(range, size, &access, 1);
}

static CUresult vmm_import(struct spin *s)
{
    CUmemGenericAllocationHandle handle;
    CUresult r = CU(s)->MemImportFromShareableHandle(&handle, (void *)(intptr_t)s->fd,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemAllocationProp property;
    r = r ? r : CU(s)->MemGetAllocationPropertiesFromHandle(&property, handle);
    return r ? r : CU(s)->MemMap(s->range, s->granularity, 0, handle, 0);
}

static CUresult vmm_free(struct spin *s)
{
    CUresult r = CU(s)->MemUnmap(s->mapped, s->granularity);
    r = r ? r : CU(s)->MemRelease(s->handle);
    return r ? r : CU(s)->MemAddressFree(s->mapped, s->granularity);
}

static CUresult alloc_async(struct spin *s)
{
    CUdeviceptr memory;
    return then_wait(s, CU(s)->MemAllocAsync(&memory, 64 * SPIN_BYTES, s->stream));
}

static CUresult free_async(struct spin *s)
{
    return then_wait(s, CU(s)->MemFreeAsync(s->async_memory, s->stream));
}

static CUresult host_alloc(struct spin *s)
{
    void *memory;
    CUdeviceptr device;
    CUresult r = CU(s)->MemHostAlloc(&memory, SPIN_BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
    return r ? r : CU(s)->MemHostGetDevicePointer(&device, memory, 0);
}

static CUresult host_register(struct spin *s)
{
    return CU(s)->MemHostRegister(s->plain, SPIN_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
}

static CUresult copy_in(struct spin *s)
{
    return then_wait(s, CU(s)->MemcpyHtoDAsync(s->memory, s->registered, SPIN_BYTES, s->stream));
}

static CUresult copy_out(struct spin *s)
{
    return then_wait(s, CU(s)->MemcpyDtoHAsync(s->registered, s->memory, SPIN_BYTES, s->stream));
}

static CUresult copy_box(struct spin *s, bool to_host)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = to_host ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .srcHost = to_host ? NULL : s->registered,
        .srcDevice = to_host ? s->memory : 0,
        .srcPitch = 1024,
        .srcHeight = 16,
        .dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstHost = to_host ? s->registered : NULL,
        .dstDevice = to_host ? 0 : s->memory,
        .dstPitch = 512,
        .dstHeight = 32,
        .WidthInBytes = 500,
        .Height = 10,
        .Depth = 8,
    };
    return then_wait(s, CU(s)->Memcpy3DAsync(&copy, s->stream));
}

static CUresult copy_box_in(struct spin *s)
{
    return copy_box(s, false);
}

static CUresult copy_box_out(struct spin *s)
{
    return copy_box(s, true);
}

static CUresult load_module(struct spin *s)
{
    CUmodule module;
    return PARKED(s)->ModuleLoadData(&module, s->image);
}

static CUresult unload_module(struct spin *s)
{
    return PARKED(s)->ModuleUnload(s->other);
}

static CUresult find_function(struct spin *s)
{
    CUfunction function;
    return PARKED(s)->ModuleGetFunction(&function, s->other, "nop");
}

static CUresult set_function(struct spin *s)
{
    return PARKED(s)->FuncSetAttribute(s->nop, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       65536);
}

static CUresult occupancy(struct spin *s)
{
    int blocks;
    return PARKED(s)->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->nop, 128, 0);
}

static CUresult launch(struct spin *s)
{
    CUdeviceptr word = 0;
    void *parameters[] = {&word};
    CUlaunchConfig launch = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = s->stream};
    return then_wait(s, PARKED(s)->LaunchKernelEx(&launch, s->nop, parameters, NULL));
}

static void CUDA_CB nothing(void *context)
{
    (void)context;
}

static CUresult launch_host(struct spin *s)
{
    return then_wait(s, PARKED(s)->LaunchHostFunc(s->stream, nothing, NULL));
}

static CUresult copy_on_device(struct spin *s)
{
    return then_wait(s,
                     PARKED(s)->MemcpyDtoDAsync(s->memory, s->other_memory, SPIN_BYTES, s->stream));
}

static CUresult fill(struct spin *s)
{
    return then_wait(s, PARKED(s)->MemsetD8Async(s->memory, 1, SPIN_BYTES, s->stream));
}

static CUresult trim_pool(struct spin *s)
{
    return PARKED(s)->MemPoolTrimTo(s->pool, 0);
}

static CUresult free_host(struct spin *s)
{
    return PARKED(s)->MemFreeHost(s->pinned);
}

static CUresult host_unregister(struct spin *s)
{
    return PARKED(s)->MemHostUnregister(s->registered);
}

static CUresult release_context(struct spin *s)
{
    return PARKED(s)->DevicePrimaryCtxRelease(s->device);
}

/* What the design speaks of and the daemon does not use yet. */

static CUresult alloc(struct spin *s)
{
    CUdeviceptr memory;
    return SPIN_CALL(s, MemAlloc)(&memory, 64 * SPIN_BYTES);
}

static CUresult free_memory(struct spin *s)
{
    return SPIN_CALL(s, MemFree)(s->memory);
}

static CUresult memory_info(struct spin *s)
{
    size_t unused, total;
    return SPIN_CALL(s, MemGetInfo)(&unused, &total);
}

static CUresult ipc_get(struct spin *s)
{
    CUipcMemHandle handle;
    return SPIN_CALL(s, IpcGetMemHandle)(&handle, s->memory);
}

static CUresult ipc_open(struct spin *s)
{
    CUdeviceptr memory, base;
    size_t size;
    CUresult r = CU(s)->IpcOpenMemHandle(&memory, s->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return r ? r : CU(s)->MemGetAddressRange(&base, &size, memory);
}

static CUresult ipc_close(struct spin *s)
{
    CUdeviceptr memory;
    CUresult r = CU(s)->IpcOpenMemHandle(&memory, s->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return r ? r : PARKED(s)->IpcCloseMemHandle(memory);
}

static CUresult tensor_map(struct spin *s)
{
    CUtensorMap map;
    cuuint64_t size[2] = {256, 256}, stride[1] = {512};
    cuuint32_t box[2] = {64, 64}, step[2] = {1, 1};
    return SPIN_CALL(s, TensorMapEncodeTiled)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(uintptr_t)s->memory, size, stride, box,
        step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

const struct call calls[] = {
    {"cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetUuid "
     "cuDeviceTotalMem cuGetErrorName cuGetErrorString cuDeviceGetAttribute",
     WORKS, queries},
    {"cuInit cuDevicePrimaryCtxRetain cuCtxSetCurrent", WORKS, context},
    {"cuDeviceGetDefaultMemPool cuMemPoolSetAttribute", WORKS, pool},
    {"cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy", WORKS, streams},
    {"cuStreamQuery", WORKS, query_stream},
    {"cuStreamQuery (default stream)", WORKS, query_default_stream},
    {"cuStreamWriteValue32 cuStreamSynchronize", WORKS, write_value},
    {"cuEventCreate cuEventRecord cuStreamWaitEvent cuEventQuery cuEventDestroy", WORKS, events},
    {"cuMemGetAllocationGranularity cuMemCreate cuMemExportToShareableHandle cuMemAddressReserve "
     "cuMemMap cuMemSetAccess",
     WORKS, vmm_make},
    {"cuMemImportFromShareableHandle cuMemGetAllocationPropertiesFromHandle", WORKS, vmm_import},
    {"cuMemUnmap cuMemRelease cuMemAddressFree", WORKS, vmm_free},
    {"cuMemAllocAsync", WORKS, alloc_async},
    {"cuMemFreeAsync", WORKS, free_async},
    {"cuMemHostAlloc cuMemHostGetDevicePointer", WORKS, host_alloc},
    {"cuMemHostRegister", WORKS, host_register},
    {"cuMemcpyHtoDAsync", WORKS, copy_in},
    {"cuMemcpyDtoHAsync", WORKS, copy_out},
    {"cuMemcpy3DAsync (to device)", WORKS, copy_box_in},
    {"cuMemcpy3DAsync (to host)", WORKS, copy_box_out},
    {"cuMemAlloc", WORKS, alloc},
    {"cuMemGetInfo", WORKS, memory_info},
    {"cuIpcGetMemHandle", WORKS, ipc_get},
    {"cuIpcOpenMemHandle cuMemGetAddressRange", WORKS, ipc_open},
    {"cuTensorMapEncodeTiled", WORKS, tensor_map},

    {"cuModuleLoadData", HANGS, load_module},
    {"cuModuleUnload", HANGS, unload_module},
    {"cuLaunchKernelEx", HANGS, launch},
    {"cuMemcpyDtoDAsync", HANGS, copy_on_device},
    {"cuMemsetD8Async", HANGS, fill},
    {"cuMemFree", HANGS, free_memory},
    {"cuMemFreeHost", HANGS, free_host},
    {"cuMemHostUnregister", HANGS, host_unregister},
    {"cuIpcCloseMemHandle", HANGS, ipc_close},
    {"cuModuleGetFunction", EITHER, find_function},
    {"cuFuncSetAttribute", EITHER, set_function},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", EITHER, occupancy},
    {"cuLaunchHostFunc", EITHER, launch_host},
    {"cuMemPoolTrimTo", EITHER, trim_pool},
    {"cuDevicePrimaryCtxRelease", EITHER, release_context},
};

const size_t calls_count = ARRAY_SIZE(calls);
