#include "driver.h"
#include "../core/error.h"
#include "../core/log.h"

#include <dlfcn.h>
#include <stdlib.h>

#define DRIVER_LIBRARY "libcuda.so.1"

static const char *text_or(const char *text, const char *fallback)
{
    return text ? text : fallback;
}

static int absent(struct fault *ret_fault, const char *what, const char *why)
{
    fault_set(ret_fault, STATUS_UNSUPPORTED, "device", "%s: %s", what, why);
    return DRIVER_E_ABSENT;
}

void *driver_symbol(const struct driver *driver, const char *name)
{
    void *symbol = NULL;
    CUdriverProcAddressQueryResult query = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = driver->resolve(name, &symbol, DRIVER_INTERFACE_VERSION,
                                      CU_GET_PROC_ADDRESS_LEGACY_STREAM, &query);
    bool is_found = result == CUDA_SUCCESS && query == CU_GET_PROC_ADDRESS_SUCCESS;

    return is_found ? symbol : NULL;
}

/* The name of the first call that the driver lacks, NULL when it has them all. */
static const char *resolve_calls(struct driver *driver)
{
#define RESOLVE(table, call)                                                                       \
    *(void **)&driver->table.call = driver_symbol(driver, "cu" #call);                             \
    if (!driver->table.call)                                                                       \
        return "cu" #call;
#define RESOLVE_CALL(call)        RESOLVE(calls, call)
#define RESOLVE_PARKED_CALL(call) RESOLVE(parked_calls, call)
    DRIVER_CALLS(RESOLVE_CALL)
    DRIVER_PARKED_CALLS(RESOLVE_PARKED_CALL)
#undef RESOLVE_PARKED_CALL
#undef RESOLVE_CALL
#undef RESOLVE
    return NULL;
}

int driver_load(struct driver *driver, struct fault *ret_fault)
{
    *driver = (struct driver){0};
    const char *name = text_or(getenv("GEMMD_LIBCUDA"), DRIVER_LIBRARY);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return absent(ret_fault, "no CUDA driver", text_or(dlerror(), name));

    *(void **)&driver->resolve = dlsym(library, "cuGetProcAddress_v2");
    if (!driver->resolve)
        return absent(ret_fault, name, "older than CUDA 12.0 (driver 525)");

    const char *missing = resolve_calls(driver);
    if (missing)
        return absent(ret_fault, "the CUDA driver lacks a call of CUDA 12.0", missing);
    return 0;
}

int driver_init(struct driver *driver, struct fault *ret_fault)
{
    int r = driver_load(driver, ret_fault);
    if (r)
        return r;

    /* The first launch of a lazily loaded function waits for a grid that does not leave. Streams
     * that share a queue of the device wait for each other; there are eight unless one asks. */
    if (setenv("CUDA_MODULE_LOADING", "EAGER", /* overwrite= */ 1) < 0 ||
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", /* overwrite= */ 0) < 0)
        return error_origin(-errno);

    CUresult result = cu(driver)->Init(0);
    if (result == CUDA_SUCCESS)
        result = cu(driver)->DriverGetVersion(&driver->version);
    if (result != CUDA_SUCCESS)
        return absent(ret_fault, "cuInit", driver_error_name(driver, result));
    return 0;
}

const char *driver_error_name(const struct driver *driver, CUresult result)
{
    const char *name = NULL;
    if (cu(driver)->GetErrorName(result, &name) != CUDA_SUCCESS || !name)
        return "an unknown CUDA error";
    return name;
}

static bool context_is_lost(const struct driver *driver)
{
    CUresult result = cu(driver)->StreamQuery(NULL);

    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

int driver_check(const struct driver *driver,
                 CUresult result,
                 const char *call,
                 struct fault *ret_fault)
{
    if (result == CUDA_SUCCESS)
        return 0;

    const char *text = NULL;
    (void)cu(driver)->GetErrorString(result, &text);
    enum status status =
        result == CUDA_ERROR_OUT_OF_MEMORY ? STATUS_OUT_OF_MEMORY : STATUS_INTERNAL;
    fault_set(ret_fault, status, "", "%s: %s (%s)", call, driver_error_name(driver, result),
              text_or(text, "no text"));
    if (result == CUDA_ERROR_OUT_OF_MEMORY || !context_is_lost(driver))
        return DRIVER_E_FAULT;

    log_error("event=device_lost call=%s error=%s", call, driver_error_name(driver, result));
    return error_origin(-EIO);
}
