/*
 * Barriers and fences.
 */
#pragma once

#include "ptx/target.cuh"

/* All threads of the CTA arrive, all wait; orders their shared-memory accesses. */
DEVICE void bar_sync_0()
{
    asm volatile("bar.sync 0;" ::: "memory");
}

/* The same for `threads` threads of the CTA, whole warps, which name the same barrier, 0 to 15. */
DEVICE void bar_sync(u32 barrier, u32 threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* The part of one that waits for nobody: what it wrote before, those see who wait there. */
DEVICE void bar_arrive(u32 barrier, u32 threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* The same for the lanes of one warp. */
DEVICE void bar_warp_sync(u32 membermask)
{
    asm volatile("bar.warp.sync %0;" ::"r"(membermask) : "memory");
}

/* Acquire and release at gpu scope: later loads see what other CTAs published before. */
DEVICE void fence_acq_rel_gpu()
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
