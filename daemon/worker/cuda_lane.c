#include "cuda_lane.h"

static int lane_init(struct cuda_lane *lane,
                     const struct driver *driver,
                     int priority,
                     struct fault *ret_fault)
{
    int r = cu_try(driver, ret_fault, StreamCreateWithPriority, &lane->stream,
                   CU_STREAM_NON_BLOCKING, priority);

    lane->ends = lane->stream;
    if (!r)
        r = cu_try(driver, ret_fault, EventCreate, &lane->event, CU_EVENT_DISABLE_TIMING);
    cuda_scratch_init(&lane->scratch, driver, lane->stream);
    return r;
}

int cuda_lanes_init(struct cuda_lanes *lanes, const struct driver *driver, struct fault *ret_fault)
{
    CUdeviceptr words_device;
    void *words = NULL;
    int r;

    *lanes = (struct cuda_lanes){.driver = driver};
    r = cu_try(driver, ret_fault, MemHostAlloc, &words, CUDA_LANES * sizeof(uint32_t),
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (r)
        return r;
    lanes->words = words;
    r = cu_try(driver, ret_fault, MemHostGetDevicePointer, &words_device, words, 0);
    for (size_t i = 0; i < CUDA_LANES && !r; i++) {
        lanes->words[i] = 0;
        lanes->lane[i].done = &lanes->words[i];
        lanes->lane[i].done_device = words_device + i * sizeof(uint32_t);
        r = lane_init(&lanes->lane[i], driver,
                      i < CUDA_QUICK_LANES ? CUDA_PRIORITY_QUICK : CUDA_PRIORITY_LARGE, ret_fault);
    }
    if (!r)
        r = cu_try(driver, ret_fault, StreamCreateWithPriority,
                   &lanes->lane[CUDA_LANE_OVERLAPPING].ends, CU_STREAM_NON_BLOCKING,
                   CUDA_PRIORITY_LARGE);
    return r;
}

void cuda_lanes_deinit(struct cuda_lanes *lanes)
{
    const struct driver *driver = lanes->driver;

    for (size_t i = 0; i < CUDA_LANES; i++) {
        struct cuda_lane *lane = &lanes->lane[i];

        if (lane->stream) {
            cuda_scratch_deinit(&lane->scratch);
            cuda_workspace_deinit(&lane->workspace, driver, lane->stream);
            (void)cu(driver)->StreamSynchronize(lane->stream);
            if (lane->ends != lane->stream) {
                (void)cu(driver)->StreamSynchronize(lane->ends);
                (void)cu(driver)->StreamDestroy(lane->ends);
            }
            (void)cu(driver)->StreamDestroy(lane->stream);
        }
        if (lane->event)
            (void)cu(driver)->EventDestroy(lane->event);
    }
    if (lanes->words)
        (void)cu_parked(driver)->MemFreeHost(lanes->words);
    *lanes = (struct cuda_lanes){.driver = driver};
}

bool cuda_lanes_give_back(struct cuda_lanes *lanes)
{
    bool had_any = false;

    for (size_t i = 0; i < CUDA_LANES; i++) {
        struct cuda_lane *lane = &lanes->lane[i];

        if (lane->scratch.size == 0 && lane->workspace.address == 0)
            continue;
        cuda_scratch_deinit(&lane->scratch);
        cuda_workspace_deinit(&lane->workspace, lanes->driver, lane->stream);
        (void)cu(lanes->driver)->StreamSynchronize(lane->stream);
        had_any = true;
    }
    return had_any;
}

/* What comes next on `stream` begins when all that is now on the lane has ended. */
static int follow(CUstream stream,
                  const struct driver *driver,
                  struct cuda_lane *lane,
                  struct fault *ret_fault)
{
    int r = cu_try(driver, ret_fault, EventRecord, lane->event, lane->stream);

    if (!r)
        r = cu_try(driver, ret_fault, StreamWaitEvent, stream, lane->event, CU_EVENT_WAIT_DEFAULT);
    return r;
}

int cuda_lane_finish(struct cuda_lane *lane,
                     const struct driver *driver,
                     uint64_t *ret_number,
                     struct fault *ret_fault)
{
    int r = lane->ends == lane->stream ? 0 : follow(lane->ends, driver, lane, ret_fault);

    if (!r)
        r = cu_try(driver, ret_fault, StreamWriteValue32, lane->ends, lane->done_device,
                   (cuuint32_t)(lane->submitted + 1), CU_STREAM_WRITE_VALUE_DEFAULT);
    if (!r)
        *ret_number = ++lane->submitted;
    return r;
}

int cuda_lane_after(struct cuda_lane *lane,
                    const struct driver *driver,
                    struct cuda_lane *other,
                    struct fault *ret_fault)
{
    return follow(lane->stream, driver, other, ret_fault);
}

/* The device writes 32 bits of a 64-bit count; few are outstanding, so the difference says it all.
 * The acquire load pairs with the stream's system-wide barrier before its write. */
void cuda_lane_look(struct cuda_lane *lane)
{
    uint32_t done = __atomic_load_n(lane->done, __ATOMIC_ACQUIRE);

    lane->finished += (uint32_t)(done - (uint32_t)lane->finished);
}
