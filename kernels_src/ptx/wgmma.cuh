/*
 * wgmma: order and completion. The products themselves are in wgmma_mma.cuh and
 * wgmma_mma_wide.cuh.
 *
 * A wgmma reads and writes accumulators and shared memory behind the thread's back: fence before
 * the first one after the registers were touched, commit a group, and wait for it before anyone
 * touches them again.
 */
#pragma once

#include "ptx/wgmma_mma.cuh"
#include "ptx/wgmma_mma_wide.cuh"

DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N of the warp's newest groups are not complete. */
template <int N> DEVICE void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
