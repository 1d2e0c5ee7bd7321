#include "power.h"

#include <dlfcn.h>

/* NVML's few functions, declared by hand: its header is not part of every toolkit. */
#define NVML_CLOCK_SM 1

struct nvml_device;

static struct {
    bool is_tried;
    int (*init)(void);
    int (*handle)(const char *uuid, struct nvml_device **device);
    int (*clock)(struct nvml_device *device, int type, unsigned *mhz);
    int (*power)(struct nvml_device *device, unsigned *milliwatts);
} nvml;

static bool load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml.is_tried = true;
    if (!library)
        return false;
    *(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
    *(void **)&nvml.handle = dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml.clock = dlsym(library, "nvmlDeviceGetClockInfo");
    *(void **)&nvml.power = dlsym(library, "nvmlDeviceGetPowerUsage");
    if (!nvml.handle || !nvml.clock || !nvml.power || !nvml.init || nvml.init() != 0)
        nvml.handle = NULL;
    return nvml.handle;
}

struct power power_now(const char *uuid)
{
    struct power power = {0};
    struct nvml_device *device;
    unsigned milliwatts = 0;
    if (nvml.is_tried ? !nvml.handle : !load())
        return power;
    if (nvml.handle(uuid, &device) != 0)
        return power;
    (void)nvml.clock(device, NVML_CLOCK_SM, &power.clock_mhz);
    if (nvml.power(device, &milliwatts) == 0)
        power.watts = milliwatts / 1000;
    return power;
}
