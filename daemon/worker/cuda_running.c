#include "cuda_running.h"

_Static_assert(CUDA_RUNNING_MAX >= GEMMD_FEED_JOBS, "what a feed of jobs writes");

void cuda_running_only(struct cuda_running *running, size_t count, const struct access written[])
{
    assert(count <= CUDA_RUNNING_MAX);
    running->earliest = ++running->latest;
    running->count = count;
    for (size_t i = 0; i < count; i++)
        running->written[i] = written[i];
}

void cuda_running_add(struct cuda_running *running, bool lets_next_begin, struct access written)
{
    if (!lets_next_begin) {
        cuda_running_only(running, 1, &written);
        return;
    }
    assert(cuda_running_has_room(running));
    running->latest++;
    running->earliest = MAX(running->earliest, 1u);
    running->written[running->count++] = written;
}

bool cuda_running_has_room(const struct cuda_running *running)
{
    return running->count < CUDA_RUNNING_MAX;
}

bool cuda_running_touches(const struct cuda_running *running, const struct gemmd_job *job)
{
    for (size_t i = 0; i < running->count; i++)
        if (access_touches_inputs(&running->written[i], job))
            return true;
    return false;
}

bool cuda_running_has(const struct cuda_running *running, uint64_t number)
{
    return number != 0 && number >= running->earliest;
}
