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

/* From the lane whose number differs in the bits of the mask. */
DEVICE u32 shfl_sync_bfly(u32 value, u32 lane_mask)
{
    u32 d;

    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=r"(d)
                 : "r"(value), "r"(lane_mask));
    return d;
}

/* Multiprocessors of the device, or a few more. */
DEVICE u32 nsmid()
{
    u32 d;

    asm("mov.u32 %0, %%nsmid;" : "=r"(d));
    return d;
}

/* Nanoseconds, the low word of them. */
DEVICE u32 globaltimer_lo()
{
    u32 d;

    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(d)::"memory");
    return d;
}

/* A store to no address: the launch ends in an error, if not at this instruction. Not a trap:
 * with one anywhere ptxas keeps to the registers that the launch gives each thread, whatever
 * setmaxnreg says. */
DEVICE void fault()
{
    asm volatile("st.global.u32 [%0], 0;" ::"l"(0ull) : "memory");
}
