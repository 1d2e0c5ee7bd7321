/*
 * cp.async: 16 bytes from global to shared memory past the registers, in groups.
 *
 * Only .cg (L2): the .ca form would leave lines in L1 that the next job reads stale. src_size below
 * 16 fills the rest with zeros; with 0 the source is not accessed.
 */
#pragma once

#include "ptx/target.cuh"

DEVICE void cp_async_cg_16(u32 s_destination, u64 g_source, u32 src_size)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(s_destination),
                 "l"(g_source), "r"(src_size)
                 : "memory");
}

DEVICE void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most N of this thread's newest groups are pending. */
template <int N> DEVICE void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
