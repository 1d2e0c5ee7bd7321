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
    int (*first)(unsigned index, struct nvml_device **device);
    int (*memory)(struct nvml_device *device, uint64_t total_free_used[3]);
    int (*name)(struct nvml_device *device, char *name, unsigned size);
    int (*driver)(char *version, unsigned size);
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
    *(void **)&nvml.first = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    *(void **)&nvml.name = dlsym(library, "nvmlDeviceGetName");
    *(void **)&nvml.driver = dlsym(library, "nvmlSystemGetDriverVersion");
    if (!nvml.handle || !nvml.clock || !nvml.power || !nvml.init || nvml.init() != 0)
        nvml.handle = NULL;
    return nvml.handle;
}

static bool is_here(void)
{
    return nvml.is_tried ? nvml.handle != NULL : load();
}

struct power power_now(const char *uuid)
{
    struct power power = {0};
    struct nvml_device *device;
    unsigned milliwatts = 0;
    if (!is_here())
        return power;
    if (nvml.handle(uuid, &device) != 0)
        return power;
    (void)nvml.clock(device, NVML_CLOCK_SM, &power.clock_mhz);
    if (nvml.power(device, &milliwatts) == 0)
        power.watts = milliwatts / 1000;
    return power;
}

uint64_t power_memory_used(const char *uuid)
{
    struct nvml_device *device;
    uint64_t bytes[3] = {0}; /* total, free, used */
    if (!is_here() || !nvml.first || !nvml.memory)
        return 0;
    if (uuid[0] ? nvml.handle(uuid, &device) : nvml.first(0, &device))
        return 0;
    return nvml.memory(device, bytes) == 0 ? bytes[2] : 0;
}

void power_describe(char ret_name[96], char ret_driver[96])
{
    struct nvml_device *device;
    ret_name[0] = ret_driver[0] = '\0';
    if (!is_here() || !nvml.first || !nvml.name || !nvml.driver || nvml.first(0, &device))
        return;
    (void)nvml.name(device, ret_name, 96);
    (void)nvml.driver(ret_driver, 96);
}
