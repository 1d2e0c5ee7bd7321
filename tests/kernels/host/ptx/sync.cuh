#pragma once

#include "ptx/target.cuh"

inline void bar_sync_0()
{
    host::expect_fenced();
    machine::meet(machine::now_cta().all, machine::self.threads);
}

inline void bar_sync(u32 barrier, u32 threads)
{
    host::expect_fenced();
    machine::meet(machine::now_cta().named[barrier], threads);
}

inline void bar_arrive(u32 barrier, u32 threads)
{
    host::expect_fenced();
    machine::arrive(machine::now_cta().named[barrier], threads);
}

inline void bar_warp_sync(u32 membermask)
{
    if (membermask != 0xffffffffu)
        abort();
    machine::meet(machine::now_warp().meet, 32);
}

/* One CTA after the other in one OS thread: nothing to order. */
inline void fence_acq_rel_gpu()
{
}
