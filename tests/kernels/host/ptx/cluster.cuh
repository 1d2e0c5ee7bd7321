#pragma once

#include "ptx/target.cuh"

inline u32 cluster_ctarank()
{
    return machine::now().rank;
}

inline u32 mapa_shared_cluster(u32 s_address, u32 rank)
{
    return (s_address & ((1u << host::rank_shift) - 1)) | rank << host::rank_shift;
}

inline void ld_shared_cluster_v4_f32(float (&d)[4], u32 s_address)
{
    host::expect_met(s_address >> host::rank_shift);
    memcpy(d, host::shared_of(s_address >> host::rank_shift, s_address, 16), 16);
}

inline void barrier_cluster_arrive_relaxed()
{
    host::expect_fenced();
}

inline void barrier_cluster_arrive_release()
{
    host::expect_fenced();
}

inline void barrier_cluster_wait_acquire()
{
    machine::meet(machine::self.cluster, (u32)machine::self.fibers.size());
    machine::now().has_met = true;
}
