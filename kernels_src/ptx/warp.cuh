/*
 * What lanes of a warp tell each other, the clock, and the end of a kernel that went wrong.
 */
#pragma once

#include "ptx/target.cuh"

DEVICE u32 shfl_sync_idx(u32 value, u32 lane)
{
    u32 d;

    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(d) : "r"(value), "r"(lane));
    return d;
}

/* Nanoseconds, the low word of them. */
DEVICE u32 globaltimer_lo()
{
    u32 d;

    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(d)::"memory");
    return d;
}

DEVICE void trap()
{
    asm volatile("trap;");
}
