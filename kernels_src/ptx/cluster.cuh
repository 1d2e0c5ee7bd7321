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

/* The same place in the shared memory of CTA `rank` of the cluster. */
DEVICE u32 mapa_shared_cluster(u32 s_address, u32 rank)
{
    u32 d;

    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(s_address), "r"(rank));
    return d;
}

/* From an address of any CTA in the cluster. */
DEVICE void ld_shared_cluster_v4_f32(float (&d)[4], u32 s_address)
{
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(s_address)
                 : "memory");
}

/* Orders nothing but what a fence before it has released. */
DEVICE void barrier_cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

DEVICE void barrier_cluster_arrive_release()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DEVICE void barrier_cluster_wait_acquire()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
