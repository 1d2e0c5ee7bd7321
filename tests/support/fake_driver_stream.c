/*
 * The fake driver's streams and events. What is queued runs at once; or, when it is lazy, later,
 * one operation at a time, each time another of those that nothing orders before: so an order that
 * was not asked for by a stream or an event does not happen by itself, and a test sees that it is
 * missing. Copies read and write when they run, kernels too. While the device stands still nothing
 * runs, lazy or not.
 */
#include "fake_driver_state.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So many operations when the driver is asked how things are: the device goes on meanwhile. */
#define LAZY_BURST 16

struct fake_event {
    unsigned stream;         /* it was last recorded on */
    unsigned recorded, done; /* how many times */
};

struct fake_operation {
    struct fake_operation *next;
    fake_driver_run_fn run;
    const struct fake_event *event; /* wait: until `done` has come to `count` */
    unsigned count;
    _Alignas(64) char argument[]; /* a tensor map has that alignment */
};

/* $FAKE_DRIVER_STILL: while that file exists. */
static bool is_still(void)
{
    const char *path = getenv("FAKE_DRIVER_STILL");

    return path && access(path, F_OK) == 0;
}

unsigned fake_driver_stream(CUstream stream)
{
    uintptr_t offset = (uintptr_t)stream - (uintptr_t)fake.streams;

    return (unsigned)MIN(offset / sizeof(struct fake_stream), FAKE_DRIVER_STREAMS);
}

/* The default streams have no queue, and their handles are small numbers. */
static struct fake_stream *queue_of(CUstream stream)
{
    return fake_driver_stream(stream) < FAKE_DRIVER_STREAMS ? (struct fake_stream *)stream : NULL;
}

/* --- what runs when -------------------------------------------------------------------------- */

static struct fake_operation *
append(CUstream stream, fake_driver_run_fn run, const void *argument, size_t size)
{
    struct fake_stream *on = (struct fake_stream *)stream;
    struct fake_operation *operation = NULL;

    if (posix_memalign((void **)&operation, 64, sizeof(*operation) + size) != 0)
        abort();
    *operation = (struct fake_operation){.run = run};
    memcpy(operation->argument, argument, size);
    *(on->last ? &on->last->next : &on->first) = operation;
    on->last = operation;
    return operation;
}

/* What comes now runs later. */
static bool must_queue(CUstream stream)
{
    const struct fake_stream *on = queue_of(stream);

    return on && (fake.lazy || on->first || on->is_stopped || is_still());
}

CUresult
fake_driver_queue(CUstream stream, fake_driver_run_fn run, const void *argument, size_t size)
{
    if (must_queue(stream))
        (void)append(stream, run, argument, size);
    else
        run(argument);
    return CUDA_SUCCESS;
}

static bool is_ready(const struct fake_stream *stream)
{
    const struct fake_operation *first = stream->first;

    return first && !stream->is_stopped &&
           (!first->event || (int)(first->event->done - first->count) >= 0);
}

static void run_first(struct fake_stream *stream)
{
    struct fake_operation *operation = stream->first;

    stream->first = operation->next;
    if (!stream->first)
        stream->last = NULL;
    if (operation->run)
        operation->run(operation->argument);
    free(operation);
}

static unsigned random_below(unsigned bound)
{
    if (!fake.lazy)
        return 0;
    fake.lazy = fake.lazy * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(fake.lazy >> 33) % bound;
}

unsigned fake_driver_run(unsigned most)
{
    unsigned count = 0;

    for (; count < most && !is_still(); count++) {
        unsigned start = random_below(FAKE_DRIVER_STREAMS), i = 0;

        while (i < FAKE_DRIVER_STREAMS &&
               !is_ready(&fake.streams[(start + i) % FAKE_DRIVER_STREAMS]))
            i++;
        if (i == FAKE_DRIVER_STREAMS)
            break;
        run_first(&fake.streams[(start + i) % FAKE_DRIVER_STREAMS]);
    }
    return count;
}

void fake_driver_lazy(unsigned seed)
{
    fake.lazy = seed;
}

static void look(void)
{
    (void)fake_driver_run(fake.lazy ? random_below(LAZY_BURST) : UINT_MAX);
}

/* --- what the test asks ---------------------------------------------------------------------- */

void fake_driver_hold(bool hold)
{
    fake.is_held = hold;
    for (unsigned i = 0; i < FAKE_DRIVER_STREAMS && !hold; i++) {
        fake.streams[i].is_stopped = false;
        fake_driver_release(i);
    }
}

void fake_driver_stop_stream(unsigned stream)
{
    fake.streams[stream].is_stopped = true;
}

void fake_driver_release(unsigned stream)
{
    struct fake_stream *held = &fake.streams[stream];

    if (held->word)
        *held->word = held->value;
    held->word = NULL;
}

void fake_driver_settle(void)
{
    bool is_worker = getenv("FAKE_DRIVER_FAULTS") || getenv("FAKE_DRIVER_HANG_M");

    for (unsigned i = 0; i < FAKE_DRIVER_STREAMS && is_worker; i++)
        while (fake.streams[i].is_stopped)
            (void)usleep(1000);
}

unsigned fake_driver_last_stream(void)
{
    return fake.last_stream;
}

int fake_driver_priority(unsigned stream)
{
    return fake.streams[stream].priority;
}

unsigned fake_driver_awaited(unsigned stream)
{
    return fake.streams[stream].awaited;
}

/* --- streams --------------------------------------------------------------------------------- */

static CUresult make_stream(CUstream *ret_stream, int priority)
{
    if (fake.live.streams >= FAKE_DRIVER_STREAMS)
        abort();
    fake.streams[fake.live.streams].priority = priority;
    *ret_stream = (CUstream)&fake.streams[fake.live.streams++];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    (void)Flags;
    ENTER(StreamCreate);
    return make_stream(phStream, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    (void)flags;
    ENTER(StreamCreateWithPriority);
    return make_stream(phStream, priority);
}

CUresult CUDAAPI cuStreamDestroy(CUstream hStream)
{
    (void)hStream;
    ENTER(StreamDestroy);
    fake.live.streams--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamQuery(CUstream hStream)
{
    ENTER(StreamQuery);
    look();
    struct fake_stream *stream = queue_of(hStream);
    bool is_busy = fake.is_held || (stream && (stream->is_stopped || stream->first));
    return is_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream)
{
    ENTER(StreamSynchronize);
    while (queue_of(hStream) && queue_of(hStream)->first) {
        if (is_still()) {
            (void)usleep(1000);
        } else if (fake_driver_run(1) == 0) {
            fprintf(stderr, "fake driver: the streams wait for each other\n");
            abort();
        }
    }
    return CUDA_SUCCESS;
}

struct write {
    struct fake_stream *on;
    cuuint32_t *word;
    cuuint32_t value;
};

static void run_write(const void *argument)
{
    const struct write *write = argument;

    if (fake.is_held) {
        write->on->word = write->word;
        write->on->value = write->value;
    } else {
        *write->word = write->value;
    }
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream,
                                      CUdeviceptr addr,
                                      cuuint32_t value,
                                      unsigned int flags)
{
    (void)flags;
    ENTER(StreamWriteValue32);
    struct write write = {(struct fake_stream *)stream, (cuuint32_t *)(uintptr_t)addr, value};
    fake.last_stream = fake_driver_stream(stream);
    return fake_driver_queue(stream, run_write, &write, sizeof(write));
}

struct call {
    CUhostFn fn;
    void *data;
};

static void run_call(const void *argument)
{
    const struct call *call = argument;

    call->fn(call->data);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    ENTER(LaunchHostFunc);
    struct call call = {fn, userData};
    return fake_driver_queue(hStream, run_call, &call, sizeof(call));
}

/* --- events ---------------------------------------------------------------------------------- */

CUresult CUDAAPI cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    (void)Flags;
    ENTER(EventCreate);
    *phEvent = calloc(1, sizeof(struct fake_event));
    fake.live.events++;
    return CUDA_SUCCESS;
}

/* Its memory is ours, and a broken device is no leak. */
CUresult CUDAAPI cuEventDestroy(CUevent hEvent)
{
    free(hEvent);
    ENTER(EventDestroy);
    fake.live.events--;
    return CUDA_SUCCESS;
}

struct record {
    struct fake_event *event;
    unsigned count;
};

static void run_record(const void *argument)
{
    const struct record *record = argument;

    record->event->done = record->count;
}

CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream)
{
    ENTER(EventRecord);
    struct fake_event *event = (struct fake_event *)hEvent;
    struct record record = {event, ++event->recorded};
    event->stream = fake_driver_stream(hStream);
    return fake_driver_queue(hStream, run_record, &record, sizeof(record));
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
{
    ENTER(EventQuery);
    look();
    struct fake_event *event = (struct fake_event *)hEvent;
    return event->done == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* For what was recorded until now: a later record is another one. */
CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    (void)Flags;
    ENTER(StreamWaitEvent);
    struct fake_event *event = (struct fake_event *)hEvent;
    if (queue_of(hStream))
        queue_of(hStream)->awaited |= 1u << event->stream;
    if (must_queue(hStream) || (queue_of(hStream) && event->done != event->recorded)) {
        struct fake_operation *operation = append(hStream, NULL, "", 0);

        operation->event = event;
        operation->count = event->recorded;
    }
    return CUDA_SUCCESS;
}
