#include "xid.h"

#include "../core/log.h"
#include "../core/std.h"

#include <dlfcn.h>
#include <stdlib.h>

#define NVML_LIBRARY      "libnvidia-ml.so.1"
#define NVML_XID_CRITICAL 8ull /* nvmlEventTypeXidCriticalError */
#define XID_STOPPED       43   /* "GPU stopped processing": a kernel's trap; a breakpoint */
#define REPORTS_MAX       64   /* taken at one look */

/* nvmlEventData_t, by hand: the header is not part of every toolkit. */
struct nvml_event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvml_device;

struct nvml {
    int (*init)(void);
    int (*device)(const char *uuid, struct nvml_device **ret_device);
    int (*create_events)(struct nvml_event_set **ret_events);
    int (*subscribe)(struct nvml_device *device,
                     unsigned long long types,
                     struct nvml_event_set *events);
};

static void *open_library(void)
{
    const char *name = getenv("GEMMD_LIBNVML");

    if (!name && getenv("GEMMD_LIBCUDA"))
        return NULL;
    return dlopen(name ? name : NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static bool find_calls(void *library, struct nvml *ret_nvml, struct xid_watch *ret_watch)
{
    const struct {
        const char *name;
        void **pointer;
    } calls[] = {
        {"nvmlInit_v2", (void **)&ret_nvml->init},
        {"nvmlShutdown", (void **)&ret_watch->shutdown},
        {"nvmlDeviceGetHandleByUUID", (void **)&ret_nvml->device},
        {"nvmlEventSetCreate", (void **)&ret_nvml->create_events},
        {"nvmlEventSetFree", (void **)&ret_watch->free_events},
        {"nvmlEventSetWait_v2", (void **)&ret_watch->wait},
        {"nvmlDeviceRegisterEvents", (void **)&ret_nvml->subscribe},
    };

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        *calls[i].pointer = dlsym(library, calls[i].name);
        if (!*calls[i].pointer)
            return false;
    }
    return true;
}

static bool subscribe(const struct nvml *nvml, struct xid_watch *watch, const char *uuid)
{
    struct nvml_device *device;

    if (nvml->device(uuid, &device) != 0 || nvml->create_events(&watch->events) != 0)
        return false;
    if (nvml->subscribe(device, NVML_XID_CRITICAL, watch->events) == 0)
        return true;
    (void)watch->free_events(watch->events);
    return false;
}

void xid_watch_init(struct xid_watch *watch, const char *uuid)
{
    void *library = open_library();
    struct nvml nvml;

    *watch = (struct xid_watch){0};
    if (!library || !find_calls(library, &nvml, watch) || nvml.init() != 0) {
        log_debug("xid=unwatched reason=\"no NVML\"");
        return;
    }
    if (subscribe(&nvml, watch, uuid))
        return;
    watch->events = NULL;
    (void)watch->shutdown();
    log_debug("xid=unwatched reason=\"NVML reports none of this device\"");
}

void xid_watch_deinit(struct xid_watch *watch)
{
    if (!watch->events)
        return;
    (void)watch->free_events(watch->events);
    (void)watch->shutdown();
    watch->events = NULL;
}

enum xid_reports xid_watch_look(struct xid_watch *watch)
{
    enum xid_reports seen = XID_NONE;
    struct nvml_event event;

    for (int i = 0; watch->events && i < REPORTS_MAX; i++) {
        if (watch->wait(watch->events, &event, 0) != 0)
            break;
        log_info("event=xid number=%llu", event.data); /* of whatever process */
        seen = MAX(seen, event.data == XID_STOPPED ? XID_OF_TRAPS : XID_OF_FAULTS);
    }
    return seen;
}
