#include "cuda_health.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include "cuda_lane.h"

/* How long a faulted device may go unnoticed by a worker that waits. One query costs about 1 us. */
#define ASK_INTERVAL_NS 200000

/* Between two looks at the reports, and before the first: what ends sooner costs none. */
#define LOOK_INTERVAL_NS 2000000

/* A beat takes 0.1 ms, the time slices of other processes some milliseconds; after a fault of one
 * of those the device stands still, but its report comes with the end of that. */
#define BEAT_NS 100000000

int cuda_health_init(struct cuda_health *health,
                     const struct driver *driver,
                     struct fault *ret_fault)
{
    static const int priorities[CUDA_HEALTH_BEATS] = {CUDA_PRIORITY_QUICK, CUDA_PRIORITY_LARGE};
    void *words = NULL;
    int r;

    *health = (struct cuda_health){.driver = driver};
    r = cu_try(driver, ret_fault, MemHostAlloc, &words, CUDA_HEALTH_BEATS * sizeof(uint32_t),
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (r)
        return r;
    health->words = words;
    r = cu_try(driver, ret_fault, MemHostGetDevicePointer, &health->words_device, words, 0);
    for (size_t i = 0; i < CUDA_HEALTH_BEATS && !r; i++) {
        health->words[i] = 0;
        r = cu_try(driver, ret_fault, StreamCreateWithPriority, &health->stream[i],
                   CU_STREAM_NON_BLOCKING, priorities[i]);
    }
    return r;
}

void cuda_health_deinit(struct cuda_health *health)
{
    const struct driver *driver = health->driver;

    xid_watch_deinit(&health->xid);
    for (size_t i = 0; i < CUDA_HEALTH_BEATS; i++) {
        if (!health->stream[i])
            continue;
        (void)cu(driver)->StreamSynchronize(health->stream[i]);
        (void)cu(driver)->StreamDestroy(health->stream[i]);
    }
    if (health->words)
        (void)cu_parked(driver)->MemFreeHost(health->words);
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

static int send_beats(struct cuda_health *health)
{
    struct fault fault;
    int r = 0;

    health->beats++;
    for (size_t i = 0; i < CUDA_HEALTH_BEATS && !r; i++)
        r = cu_try(health->driver, &fault, StreamWriteValue32, health->stream[i],
                   health->words_device + i * sizeof(uint32_t), health->beats,
                   CU_STREAM_WRITE_VALUE_DEFAULT);
    return r;
}

static bool have_beaten(const struct cuda_health *health)
{
    for (size_t i = 0; i < CUDA_HEALTH_BEATS; i++) {
        if (__atomic_load_n(&health->words[i], __ATOMIC_ACQUIRE) != health->beats)
            return false;
    }
    return true;
}

static int look_for_reports(struct cuda_health *health, uint64_t since_ns, uint64_t now)
{
    int r;

    if (now - since_ns < LOOK_INTERVAL_NS || now - health->looked_ns < LOOK_INTERVAL_NS)
        return 0;
    health->looked_ns = now;
    if (!xid_watch_look(&health->xid))
        return 0;
    r = send_beats(health);
    if (r == 0)
        health->alarmed_ns = now;
    return r < 0 ? error_trace(r) : 0;
}

static int
await_beats(struct cuda_health *health, const struct cuda_health_waiting *oldest, uint64_t now)
{
    bool is_overdue = oldest->is_quick && oldest->since_ns < health->alarmed_ns;

    if (have_beaten(health) && !is_overdue) {
        health->alarmed_ns = 0; /* it was another process's fault, or an old one */
        return 0;
    }
    if (now - health->alarmed_ns < BEAT_NS)
        return 0;
    log_error("event=device_lost reason=\"the driver reported a fault (Xid), and the context does "
              "nothing any more\"");
    return error_origin(-EIO);
}

int cuda_health_look(struct cuda_health *health, const struct cuda_health_waiting *oldest)
{
    uint64_t now = clock_now_ns();
    int r = ask(health, oldest->stream, now);

    if (r < 0)
        return error_trace(r);
    if (health->alarmed_ns != 0)
        return error_trace(await_beats(health, oldest, now));
    return error_trace(look_for_reports(health, oldest->since_ns, now));
}
