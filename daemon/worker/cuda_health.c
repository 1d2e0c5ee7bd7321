#include "cuda_health.h"

#include "../core/error.h"
#include "../core/log.h"

#include <time.h>

/* How long a faulted device may go unnoticed by a worker that waits. One query costs about 1 us. */
#define ASK_INTERVAL_NS 200000

/* Between two looks at the reports, and before the first: what ends sooner costs none. */
#define LOOK_INTERVAL_NS 2000000

/* A beat takes 0.1 ms, the time slices of other processes some milliseconds; after a fault of one
 * of those the device stands still, but its report comes with the end of that. */
#define BEAT_NS 100000000

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int cuda_health_init(struct cuda_health *health,
                     const struct driver *driver,
                     struct fault *ret_fault)
{
    void *word = NULL;
    int r;

    *health = (struct cuda_health){.driver = driver};
    r = cu_try(driver, ret_fault, MemHostAlloc, &word, sizeof(uint32_t),
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (r)
        return r;
    health->word = word;
    *health->word = 0;
    r = cu_try(driver, ret_fault, MemHostGetDevicePointer, &health->word_device, word, 0);
    if (!r)
        r = cu_try(driver, ret_fault, StreamCreate, &health->stream, CU_STREAM_NON_BLOCKING);
    return r;
}

void cuda_health_deinit(struct cuda_health *health)
{
    const struct driver *driver = health->driver;

    xid_watch_deinit(&health->xid);
    if (health->stream) {
        (void)cu(driver)->StreamSynchronize(health->stream);
        (void)cu(driver)->StreamDestroy(health->stream);
    }
    if (health->word)
        (void)cu_parked(driver)->MemFreeHost(health->word);
    *health = (struct cuda_health){.driver = driver};
}

static int ask(struct cuda_health *health, CUstream stream, uint64_t now)
{
    if (now - health->asked_ns < ASK_INTERVAL_NS)
        return 0;
    health->asked_ns = now;
    CUresult result = cu(health->driver)->StreamQuery(stream);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return 0;
    log_error("event=device_lost call=cuStreamQuery error=%s",
              driver_error_name(health->driver, result));
    return error_origin(-EIO);
}

static int send_beat(struct cuda_health *health)
{
    struct fault fault;
    int r = cu_try(health->driver, &fault, StreamWriteValue32, health->stream, health->word_device,
                   health->beats + 1, CU_STREAM_WRITE_VALUE_DEFAULT);

    health->beats += r == 0;
    return r;
}

static bool has_beaten(const struct cuda_health *health)
{
    return __atomic_load_n(health->word, __ATOMIC_ACQUIRE) == health->beats;
}

static int look_for_reports(struct cuda_health *health, uint64_t since_ns, uint64_t now)
{
    int r;

    if (now - since_ns < LOOK_INTERVAL_NS || now - health->looked_ns < LOOK_INTERVAL_NS)
        return 0;
    health->looked_ns = now;
    if (!xid_watch_look(&health->xid))
        return 0;
    r = send_beat(health);
    if (r == 0)
        health->alarmed_ns = now;
    return r < 0 ? error_trace(r) : 0;
}

static int await_beat(struct cuda_health *health, uint64_t now)
{
    if (has_beaten(health)) {
        health->alarmed_ns = 0; /* it was another process's fault, or an old one */
        return 0;
    }
    if (now - health->alarmed_ns < BEAT_NS)
        return 0;
    log_error("event=device_lost reason=\"the driver reported a fault (Xid), and the context does "
              "nothing any more\"");
    return error_origin(-EIO);
}

int cuda_health_look(struct cuda_health *health, CUstream stream, uint64_t since_ns)
{
    uint64_t now = now_ns();
    int r = ask(health, stream, now);

    if (r < 0)
        return error_trace(r);
    if (health->alarmed_ns != 0)
        return error_trace(await_beat(health, now));
    return error_trace(look_for_reports(health, since_ns, now));
}
