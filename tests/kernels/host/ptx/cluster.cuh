#pragma once

#include "ptx/target.cuh"

inline u32 cluster_ctarank()
{
    return machine::now().rank;
}

inline void barrier_cluster_arrive_release()
{
}

inline void barrier_cluster_wait_acquire()
{
    machine::meet(machine::self.cluster, (u32)machine::self.fibers.size());
}
