#include "cuda_health.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include "cuda_lane.h"

/* How long a faulted device may go unnoticed by a worker that waits, without reports or after one.
 * One query costs about 1 us. With reports only what makes none is left, which is rare. */
#define ASK_INTERVAL_NS        200000
#define ASK_RARELY_FIRST_NS    500000000
#define ASK_RARELY_INTERVAL_NS 100000000

/* Between two looks at the reports, and before the first: what ends sooner costs none. */
#define LOOK_INTERVAL_NS 2000000

/* What ends sooner is never asked about; and so often, while a command lasts: several times between
 * two looks of the front, also when 16 other processes have their slices of time first. */
#define ANSWER_FIRST_NS    50000000
#define ANSWER_INTERVAL_NS 20000000

/* A beat takes 0.1 ms, the time slices of other processes some milliseconds; after a fault of one
 * of those the device stands still, but its report comes with the end of that. */
#define BEAT_NS 100000000

/* No report comes so long after its fault. A beat that did not come for so long before one is
 * behind the command itself, or the device stands still: it says nothing of the fault. */
#define STUCK_NS 500000000

int cuda_health_init(struct cuda_health *health,
                     const struct driver *driver,
                     struct fault *ret_fault)
{
    static const int priorities[CUDA_HEALTH_BEATS] = {CUDA_PRIORITY_QUICK, CUDA_PRIORITY_LARGE};
    void *words = NULL;
    int r;

    *health = (struct cuda_health){.driver = driver};
    r = cu_try(driver, ret_fault, MemHostAlloc, &words, sizeof(*health->words),
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (r)
        return r;
    health->words = words;
    *health->words = (struct cuda_health_words){0};
    r = cu_try(driver, ret_fault, MemHostGetDevicePointer, &health->words_device, words, 0);
    for (size_t i = 0; i < CUDA_HEALTH_BEATS && !r; i++)
        r = cu_try(driver, ret_fault, StreamCreateWithPriority, &health->beats[i].stream,
                   CU_STREAM_NON_BLOCKING, priorities[i]);
    return r;
}

void cuda_health_deinit(struct cuda_health *health)
{
    const struct driver *driver = health->driver;

    xid_watch_deinit(&health->xid);
    for (size_t i = 0; i < CUDA_HEALTH_BEATS; i++) {
        if (!health->beats[i].stream)
            continue;
        (void)cu(driver)->StreamSynchronize(health->beats[i].stream);
        (void)cu(driver)->StreamDestroy(health->beats[i].stream);
    }
    if (health->words)
        (void)cu_parked(driver)->MemFreeHost(health->words);
    *health = (struct cuda_health){.driver = driver};
}

/* --- beats ----------------------------------------------------------------------------------- */

static int send_beat(struct cuda_health *health, size_t i)
{
    CUdeviceptr word = health->words_device + offsetof(struct cuda_health_words, beat[i]);
    struct fault fault;

    health->beats[i].sent_ns = clock_now_ns();
    return cu_try(health->driver, &fault, StreamWriteValue32, health->beats[i].stream, word,
                  ++health->beats[i].sent, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static uint32_t last_come(const struct cuda_health *health, size_t i)
{
    return __atomic_load_n(&health->words->beat[i], __ATOMIC_ACQUIRE);
}

static bool has_beaten(const struct cuda_health *health, size_t i)
{
    return last_come(health, i) == health->beats[i].sent;
}

static bool is_stuck(const struct cuda_health *health, size_t i, uint64_t now)
{
    return !has_beaten(health, i) && now - health->beats[i].sent_ns > STUCK_NS;
}

/* Those that must come after a report. */
static int demand_beats(struct cuda_health *health, uint64_t now)
{
    int r = 0;

    for (size_t i = 0; i < CUDA_HEALTH_BEATS && !r; i++) {
        struct cuda_beat *beat = &health->beats[i];

        beat->is_awaited = !is_stuck(health, i, now);
        if (beat->is_awaited)
            r = send_beat(health, i);
        beat->awaited = beat->sent;
    }
    return r;
}

static bool have_beaten(const struct cuda_health *health)
{
    for (size_t i = 0; i < CUDA_HEALTH_BEATS; i++) {
        const struct cuda_beat *beat = &health->beats[i];

        if (beat->is_awaited && (int32_t)(last_come(health, i) - beat->awaited) < 0)
            return false;
    }
    return true;
}

/* --- whether the device does anything -------------------------------------------------------- */

int cuda_health_begin(struct cuda_health *health)
{
    CUdeviceptr word = health->words_device + offsetof(struct cuda_health_words, has_begun);
    struct fault fault;
    int r;

    /* What was reported until now is of the worker before this one, or of others. */
    (void)xid_watch_look(&health->xid);
    r = cu_parked_try(health->driver, &fault, MemsetD8Async, word, 1, sizeof(uint8_t),
                      health->beats[0].stream);

    if (r > 0) /* then it is not known, and no reason to wait */
        __atomic_store_n(&health->words->has_begun, 1, __ATOMIC_RELAXED);
    return r < 0 ? error_trace(r) : 0;
}

static bool has_begun(const struct cuda_health *health)
{
    return __atomic_load_n(&health->words->has_begun, __ATOMIC_ACQUIRE) != 0;
}

/* Each beat that came counts, and is followed by the next one: the stream of one that does not come
 * may be behind the command itself, where CUDA gave both the same queue of the device. */
static int ask_for_answers(struct cuda_health *health, uint64_t since_ns, uint64_t now)
{
    int r = 0;

    if (now - since_ns < ANSWER_FIRST_NS || now - health->answered_ns < ANSWER_INTERVAL_NS)
        return 0;
    health->answered_ns = now;
    for (size_t i = 0; i < CUDA_HEALTH_BEATS && r == 0; i++) {
        struct cuda_beat *beat = &health->beats[i];

        if (!has_beaten(health, i))
            continue;
        health->answers += steal(beat->seen, beat->sent) != beat->sent && has_begun(health);
        r = send_beat(health, i);
    }
    return r < 0 ? error_trace(r) : 0;
}

/* --- whether the context lives --------------------------------------------------------------- */

static int ask(struct cuda_health *health, const struct cuda_health_waiting *oldest, uint64_t now)
{
    bool is_rare = xid_watch_is_open(&health->xid) && !health->may_ask;

    if (is_rare && now - oldest->since_ns < ASK_RARELY_FIRST_NS)
        return 0;
    if (now - health->asked_ns < (is_rare ? ASK_RARELY_INTERVAL_NS : ASK_INTERVAL_NS))
        return 0;
    health->asked_ns = now;
    CUresult result = cu(health->driver)->StreamQuery(oldest->stream);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return 0;
    log_error("event=device_lost call=cuStreamQuery error=%s",
              driver_error_name(health->driver, result));
    return error_origin(-EIO);
}

static int look_for_reports(struct cuda_health *health, uint64_t since_ns, uint64_t now)
{
    enum xid_reports seen;
    int r;

    if (now - since_ns < LOOK_INTERVAL_NS || now - health->looked_ns < LOOK_INTERVAL_NS)
        return 0;
    health->looked_ns = now;
    seen = xid_watch_look(&health->xid);
    if (seen == XID_NONE)
        return 0;
    r = demand_beats(health, now);
    health->may_ask |= seen == XID_OF_FAULTS;
    health->alarmed_ns = clock_now_ns();
    return r < 0 ? error_trace(r) : 0;
}

static int await_beats(struct cuda_health *health, uint64_t now)
{
    if (health->alarmed_ns == 0)
        return 0;
    if (have_beaten(health)) { /* it was another process's fault, or an old one */
        health->alarmed_ns = 0;
        health->may_ask = false;
        return 0;
    }
    /* One that did nothing yet has not faulted: the device stands still for others. */
    if (now < health->alarmed_ns + BEAT_NS || !has_begun(health))
        return 0;
    log_error("event=device_lost reason=\"the driver reported a fault (Xid), and the context does "
              "nothing any more\"");
    return error_origin(-EIO);
}

int cuda_health_look(struct cuda_health *health, const struct cuda_health_waiting *oldest)
{
    uint64_t now = clock_now_ns();
    int r = look_for_reports(health, oldest->since_ns, now);

    if (r == 0)
        r = await_beats(health, now);
    if (r == 0)
        r = ask(health, oldest, now);
    if (r == 0)
        r = ask_for_answers(health, oldest->since_ns, now);
    return error_trace(r);
}
