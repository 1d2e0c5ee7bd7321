/*
 * Tensor copies of three dimensions: columns, rows, items. What lies outside of the tensor is
 * filled with zeros on the way in, and counts as bytes; on the way out it is left alone.
 */
#pragma once

#include "abi/job.h"
#include "ptx/target_sm90a.cuh"

DEVICE void cp_async_bulk_tensor_3d_shared_global(
    u32 s_destination, const gemmd_tensor_map *map, int c0, int c1, int c2, u32 s_barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(s_destination),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(s_barrier)
                 : "memory");
}

/* To the same place in every CTA of the mask, each with its own barrier at the same place. */
DEVICE void cp_async_bulk_tensor_3d_shared_global_multicast(
    u32 s_destination, const gemmd_tensor_map *map, int c0, int c1, int c2, u32 s_barrier, u16 mask)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(s_destination),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(s_barrier), "h"(mask)
                 : "memory");
}

/* To the L2 only. */
DEVICE void cp_async_bulk_prefetch_tensor_3d(const gemmd_tensor_map *map, int c0, int c1, int c2)
{
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}

/* `policy`: of the L2, by createpolicy. */
DEVICE void cp_async_bulk_tensor_3d_global_shared(
    const gemmd_tensor_map *map, int c0, int c1, int c2, u32 s_source, u64 policy)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint"
                 " [%0, {%1, %2, %3}], [%4], %5;" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(c2), "r"(s_source), "l"(policy)
                 : "memory");
}

/* Lines that the L2 gives up before others. */
DEVICE u64 createpolicy_evict_first()
{
    u64 d;

    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(d));
    return d;
}

/* Lines that it gives up after others. */
DEVICE u64 createpolicy_evict_last()
{
    u64 d;

    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(d));
    return d;
}

DEVICE void cp_async_bulk_commit_group()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N of this thread's newest groups still read their source. */
template <int N> DEVICE void cp_async_bulk_wait_group_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Until at most N are not complete. */
template <int N> DEVICE void cp_async_bulk_wait_group()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
