/*
 * The CUDA driver, loaded with dlopen: the only way from this project to libcuda.so.1.
 *
 * The calls stand in two lists, by what was measured beside a grid that fills the device and does
 * not leave (tests/gpu/test_driver_calls.c keeps them true): those of the first list work there,
 * those of the second wait until the grid has gone, so they may be made only while no such grid
 * runs. cu(driver)->MemCreate(...) reaches the first, cu_parked(driver)->LaunchKernelEx(...) the
 * second, and asserts. A call that was never measured belongs in the second.
 *
 * Symbols are resolved by cuGetProcAddress with one fixed interface version, so that the _v2
 * suffixes of the header and of the running driver cannot drift apart.
 *
 * Owner: backend_cuda. Thread: the worker's one thread.
 */
#pragma once

#include "../core/status.h"
#include "../core/std.h"
#include <cuda.h>

/* The driver interface that every call below is resolved for: CUDA 12.0, driver 525 or later. */
#define DRIVER_INTERFACE_VERSION 12000

#define DRIVER_CALLS(X)                                                                            \
    X(Init)                                                                                        \
    X(DriverGetVersion)                                                                            \
    X(GetErrorName)                                                                                \
    X(GetErrorString)                                                                              \
    X(DeviceGetCount)                                                                              \
    X(DeviceGet)                                                                                   \
    X(DeviceGetName)                                                                               \
    X(DeviceGetUuid)                                                                               \
    X(DeviceGetAttribute)                                                                          \
    X(DeviceTotalMem)                                                                              \
    X(DeviceGetDefaultMemPool)                                                                     \
    X(MemPoolSetAttribute)                                                                         \
    X(DevicePrimaryCtxRetain)                                                                      \
    X(CtxSetCurrent)                                                                               \
    X(StreamCreate)                                                                                \
    X(StreamCreateWithPriority)                                                                    \
    X(StreamDestroy)                                                                               \
    X(StreamQuery)                                                                                 \
    X(StreamSynchronize)                                                                           \
    X(StreamWriteValue32)                                                                          \
    X(StreamWaitEvent)                                                                             \
    X(EventCreate)                                                                                 \
    X(EventDestroy)                                                                                \
    X(EventRecord)                                                                                 \
    X(EventQuery)                                                                                  \
    X(MemGetAllocationGranularity)                                                                 \
    X(MemCreate)                                                                                   \
    X(MemRelease)                                                                                  \
    X(MemExportToShareableHandle)                                                                  \
    X(MemImportFromShareableHandle)                                                                \
    X(MemGetAllocationPropertiesFromHandle)                                                        \
    X(IpcOpenMemHandle)                                                                            \
    X(MemGetAddressRange)                                                                          \
    X(MemAddressReserve)                                                                           \
    X(MemAddressFree)                                                                              \
    X(MemMap)                                                                                      \
    X(MemUnmap)                                                                                    \
    X(MemSetAccess)                                                                                \
    X(MemAllocAsync)                                                                               \
    X(MemFreeAsync)                                                                                \
    X(MemHostAlloc)                                                                                \
    X(MemHostGetDevicePointer)                                                                     \
    X(MemHostRegister)                                                                             \
    X(MemcpyHtoDAsync)                                                                             \
    X(MemcpyDtoHAsync)                                                                             \
    X(Memcpy3DAsync) /* between host and device only: device to device needs an SM */              \
    X(TensorMapEncodeTiled)

#define DRIVER_PARKED_CALLS(X)                                                                     \
    X(DevicePrimaryCtxRelease)                                                                     \
    X(ModuleLoadData)                                                                              \
    X(ModuleUnload)                                                                                \
    X(ModuleGetFunction)                                                                           \
    X(FuncSetAttribute)                                                                            \
    X(OccupancyMaxActiveBlocksPerMultiprocessor)                                                   \
    X(LaunchKernelEx)                                                                              \
    X(LaunchHostFunc)                                                                              \
    X(MemcpyDtoDAsync)                                                                             \
    X(MemsetD8Async)                                                                               \
    X(MemPoolTrimTo)                                                                               \
    X(IpcCloseMemHandle)                                                                           \
    X(MemFreeHost)                                                                                 \
    X(MemHostUnregister)

#define DRIVER_POINTER(name) __typeof__(cu##name) *name;

struct driver_calls {
    DRIVER_CALLS(DRIVER_POINTER)
};

struct driver_parked_calls {
    DRIVER_PARKED_CALLS(DRIVER_POINTER)
};

struct driver {
    bool grid_is_resident; /* a grid holds the device: the second list would hang */
    int version;           /* as cuDriverGetVersion: 13000 */
    __typeof__(cuGetProcAddress) *resolve;
    struct driver_calls calls;
    struct driver_parked_calls parked_calls;
};

/* Loads the library ($GEMMD_LIBCUDA, else libcuda.so.1) and finds its calls. DRIVER_E_ABSENT with
 * the reason in `ret_fault`. It stays loaded until the process ends: it has threads of its own. */
int driver_load(struct driver *driver, struct fault *ret_fault);
/* The same, then cuInit, with eager module loading. */
int driver_init(struct driver *driver, struct fault *ret_fault);

/* A call that is in neither list, for tests and benchmarks; NULL when the driver has none. */
void *driver_symbol(const struct driver *driver, const char *name);

/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *driver_error_name(const struct driver *driver, CUresult result);

/*
 * Sorts a result: 0; DRIVER_E_FAULT when only this request failed, `ret_fault` then names the call
 * and the driver's own text; -EIO when the context is lost. No list of error codes decides that:
 * an error is sticky when the next call repeats one.
 */
int driver_check(const struct driver *driver,
                 CUresult result,
                 const char *call,
                 struct fault *ret_fault);

enum {
    DRIVER_E_FAULT = 1, /* equal to BACKEND_E_FAULT, for the backend returns it as its own */
    DRIVER_E_ABSENT,    /* and to BACKEND_E_ABSENT */
};

static inline const struct driver_calls *cu(const struct driver *driver)
{
    return &driver->calls;
}

static inline const struct driver_parked_calls *cu_parked(const struct driver *driver)
{
    assert(!driver->grid_is_resident);
    return &driver->parked_calls;
}

/* r = cu_try(driver, ret_fault, MemCreate, &handle, size, &properties, 0) */
#define cu_try(driver, ret_fault, call, ...)                                                       \
    driver_check((driver), cu(driver)->call(__VA_ARGS__), "cu" #call, (ret_fault))
#define cu_parked_try(driver, ret_fault, call, ...)                                                \
    driver_check((driver), cu_parked(driver)->call(__VA_ARGS__), "cu" #call, (ret_fault))
