/*
 * Clocks, and the place that they are of.
 */
#pragma once

#include "ptx/target.cuh"

/* Cycles of this multiprocessor. The form of 32 bits may be read through a uniform register, and
 * then waits for it. */
DEVICE u64 sm_clock64()
{
    u64 d;

    asm volatile("mov.u64 %0, %%clock64;" : "=l"(d));
    return d;
}

/* Nanoseconds, the same everywhere on the device; in steps of some 32. */
DEVICE u64 globaltimer()
{
    u64 d;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(d));
    return d;
}

/* Of the multiprocessor. */
DEVICE u32 smid()
{
    u32 d;

    asm volatile("mov.u32 %0, %%smid;" : "=r"(d));
    return d;
}
