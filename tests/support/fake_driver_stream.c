/*
 * The fake driver's streams and events. Work is done when it is given; what a stream tells the host
 * about it, the values it writes, can be held.
 */
#include "fake_driver_state.h"

#include <stdlib.h>

void fake_driver_hold(bool hold)
{
    fake.is_held = hold;
    for (int i = 0; i < FAKE_DRIVER_STREAMS && !hold; i++)
        fake_driver_release((unsigned)i);
}

void fake_driver_release(unsigned stream)
{
    struct fake_stream *held = &fake.streams[stream];

    if (held->word)
        *held->word = held->value;
    held->word = NULL;
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

static unsigned number_of_stream(CUstream stream)
{
    return (unsigned)((struct fake_stream *)stream - fake.streams);
}

CUresult CUDAAPI cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    (void)Flags;
    ENTER(StreamCreate);
    *phStream = (CUstream)&fake.streams[fake.live.streams++ % FAKE_DRIVER_STREAMS];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    (void)flags;
    ENTER(StreamCreateWithPriority);
    fake.streams[fake.live.streams % FAKE_DRIVER_STREAMS].priority = priority;
    *phStream = (CUstream)&fake.streams[fake.live.streams++ % FAKE_DRIVER_STREAMS];
    return CUDA_SUCCESS;
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
    (void)hStream;
    ENTER(StreamQuery);
    return fake.is_held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream)
{
    (void)hStream;
    ENTER(StreamSynchronize);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream,
                                      CUdeviceptr addr,
                                      cuuint32_t value,
                                      unsigned int flags)
{
    (void)flags;
    ENTER(StreamWriteValue32);
    struct fake_stream *on = (struct fake_stream *)stream;
    cuuint32_t *word = (cuuint32_t *)(uintptr_t)addr;
    fake.last_stream = number_of_stream(stream);
    if (fake.is_held) {
        on->word = word;
        on->value = value;
    } else {
        *word = value;
    }
    return CUDA_SUCCESS;
}

/* An event is the set of streams it was last recorded on: one. */
CUresult CUDAAPI cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    (void)Flags;
    ENTER(EventCreate);
    *phEvent = malloc(sizeof(unsigned));
    fake.live.events++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent hEvent)
{
    ENTER(EventDestroy);
    free(hEvent);
    fake.live.events--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream)
{
    ENTER(EventRecord);
    *(unsigned *)hEvent = number_of_stream(hStream);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    (void)Flags;
    ENTER(StreamWaitEvent);
    ((struct fake_stream *)hStream)->awaited |= 1u << *(unsigned *)hEvent;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    (void)hStream;
    ENTER(LaunchHostFunc);
    fn(userData);
    return CUDA_SUCCESS;
}
