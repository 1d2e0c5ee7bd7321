/*
 * Clocks, and the place that they are of.
 */
#pragma once

#include "ptx/target.cuh"

/* Cycles of this multiprocessor, the low word of them. */
DEVICE u32 clock_lo()
{
    u32 d;

    asm volatile("mov.u32 %0, %%clock;" : "=r"(d));
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
