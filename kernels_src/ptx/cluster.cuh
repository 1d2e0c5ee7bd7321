/*
 * The cluster: this CTA's number in it, and the barrier of all its threads.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

DEVICE u32 cluster_ctarank()
{
    u32 d;

    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(d));
    return d;
}

DEVICE void barrier_cluster_arrive_release()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DEVICE void barrier_cluster_wait_acquire()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
