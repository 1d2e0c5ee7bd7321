/*
 * NVML's few calls of daemon/worker/xid.c, in the library that is the driver as well: reports of a
 * device are what the test says.
 */
#include "fake_driver_state.h"

#include <string.h>

#define TIMEOUT 10 /* NVML_ERROR_TIMEOUT */

/* nvmlEventData_t */
struct event {
    void *device;
    unsigned long long type, data;
    unsigned instances[2];
};

FAKE_API int nvmlInit_v2(void);
FAKE_API int nvmlShutdown(void);
FAKE_API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
FAKE_API int nvmlEventSetCreate(void **events);
FAKE_API int nvmlEventSetFree(void *events);
FAKE_API int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events);
FAKE_API int nvmlEventSetWait_v2(void *events, struct event *event, unsigned ms);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = &fake;
    return strncmp(uuid, "GPU-", 4) == 0 ? 0 : 1;
}

int nvmlEventSetCreate(void **events)
{
    *events = &fake;
    fake.live.event_sets++;
    return 0;
}

int nvmlEventSetFree(void *events)
{
    (void)events;
    fake.live.event_sets--;
    return 0;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events)
{
    return device == events && types == 8 ? 0 : 1;
}

int nvmlEventSetWait_v2(void *events, struct event *event, unsigned ms)
{
    if (events != &fake || ms != 0 || fake.xids == 0)
        return TIMEOUT;
    fake.xids--;
    *event = (struct event){.device = &fake, .type = 8, .data = fake.xid};
    return 0;
}

void fake_driver_xid(unsigned number)
{
    fake.xid = number;
    fake.xids++;
}
