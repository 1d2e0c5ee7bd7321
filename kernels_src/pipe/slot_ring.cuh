/*
 * The ring of K tiles between tensor copies and wgmma.
 *
 * Each slot has two barriers. `full`: one arrival, the loader's, that announces the bytes of the
 * whole slot; the phase ends when they are there, whichever CTA of the cluster copied them; the
 * multiplying warps wait. `empty`: every multiplying warp of every CTA that shares operands arrives
 * when it has read the slot, for a copy of one CTA may write to all of these; the loader waits.
 *
 * The one rule of phases: count the K tiles that this CTA has seen from the kernel's start, over
 * all units and jobs. Number t lies in slot t % stages and its phase of `full` has the parity of
 * t / stages; the loader waits for `empty` with the other parity, which a new barrier lets through.
 * Nothing is ever reset. A wait by parity tells a phase only from its neighbours, so nobody may
 * wait for number t before t - stages was there: those who multiply in order see to it by
 * themselves, ping-pong groups take turns (group_turn).
 */
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sync.cuh"
#include "ptx/warp.cuh"
#include "tile/smem_hopper.cuh"

struct ring_position {
    int slot;
    u32 parity;

    DEVICE ring_position() : slot(0), parity(0)
    {
    }

    DEVICE void advance()
    {
        if (++slot == cfg::stages) {
            slot = 0;
            parity ^= 1;
        }
    }

    /* The slot of the K tile before. */
    DEVICE int before() const
    {
        return slot == 0 ? cfg::stages - 1 : slot - 1;
    }

    /* Past K tiles that another group multiplies. */
    DEVICE void skip(u32 tiles)
    {
        u32 end = slot + tiles;

        parity ^= end / cfg::stages & 1;
        slot = end % cfg::stages;
    }
};

/* A wait that takes this long is a bug of ours, or a GPU that stands still: the kernel ends in an
 * error instead of holding the device. In the 32 bits of the clock's low word, which go round in
 * 4.3 s: those who wait hold accumulators, registers are dear. */
#ifndef GEMMD_WAIT_LIMIT_NS
#    define GEMMD_WAIT_LIMIT_NS 3000000000u /* all ones: no limit, for tools that make kernels slow */
#endif
constexpr u32 wait_limit_ns = GEMMD_WAIT_LIMIT_NS;

DEVICE void wait_parity(u32 s_barrier, u32 parity)
{
    if (mbarrier_try_wait_parity(s_barrier, parity))
        return;

    u32 start = globaltimer_lo();
    while (!mbarrier_try_wait_parity(s_barrier, parity))
        if (globaltimer_lo() - start > wait_limit_ns)
            fault();
}

/* The same for who has something to do before the end: false when it took too long. */
DEVICE bool is_over_in_time(u32 s_barrier, u32 parity)
{
    if (mbarrier_try_wait_parity(s_barrier, parity))
        return true;

    u32 start = globaltimer_lo();
    while (!mbarrier_try_wait_parity(s_barrier, parity))
        if (globaltimer_lo() - start > wait_limit_ns)
            return false;
    return true;
}

DEVICE void turns_init(u32 s_base)
{
    for (int group = 0; group < cfg::groups; group++)
        mbarrier_init(smem::turn_barrier(s_base, group), 4);
}

DEVICE void exchange_init(u32 s_base)
{
    u32 rank = cfg::cluster_k == 1 ? 0 : cluster_ctarank() / cfg::sharers;

    for (int warp = 0; warp < cfg::groups * 4; warp++) {
        mbarrier_init(smem::arrived_barrier(s_base, warp), max_of(cfg::cluster_k - 1, 1));
        mbarrier_init(smem::taken_barrier(s_base, warp), max_of(smem::takers(rank), 1));
    }
}

/* The same for what other CTAs of the cluster have written. */
DEVICE void wait_parity_of_cluster(u32 s_barrier, u32 parity)
{
    u32 start = globaltimer_lo();

    while (!mbarrier_try_wait_parity_acquire_cluster(s_barrier, parity))
        if (globaltimer_lo() - start > wait_limit_ns)
            fault();
}

/* One thread, before all others go on (cluster_meet). */
DEVICE void barriers_init(u32 s_base)
{
    for (int slot = 0; slot < cfg::stages; slot++) {
        int readers = cfg::is_pingpong ? 1 : cfg::groups;

        mbarrier_init(smem::full_barrier(s_base, slot), cfg::realigns ? 4 : 1);
        mbarrier_init(smem::empty_barrier(s_base, slot), readers * 4 * cfg::sharers);
    }
    if (cfg::is_split && !cfg::leaves_parts)
        exchange_init(s_base);
    else if (!cfg::is_split)
        turns_init(s_base);
    fence_mbarrier_init_release_cluster();
}

/* All threads of the cluster. */
DEVICE void cluster_meet()
{
    if constexpr (cfg::cluster == 1) {
        bar_sync_0();
    } else {
        barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    }
}

/* All threads, last of all: the other CTA of a cluster may still copy to this one, and arrive here.
 */
DEVICE void cluster_leave()
{
    if constexpr (cfg::cluster > 1)
        cluster_meet();
}

/* By a whole warp, when its wgmma have read the slot. Nothing was written that the loader, or what
 * it copies, would have to see: an arrival without order at cluster scope is enough. first: of the
 * CTAs that copy to each other, in the cluster. */
DEVICE void slot_release(u32 s_base, int slot, u32 lane, u32 first = 0)
{
    u32 s_barrier = smem::empty_barrier(s_base, slot);

    if constexpr (cfg::sharers == 1) {
        if (lane == 0)
            mbarrier_arrive(s_barrier);
    } else if (lane < cfg::sharers) {
        mbarrier_arrive_cluster(s_barrier, first + lane);
    }
}

/*
 * Whose K tiles come next, among two ping-pong groups: a group may begin a unit when the other has
 * seen all K tiles of the unit before. Its barrier `turn` collects the other's four warps; the
 * phases count the other's units. Group 0 begins, so it is one phase behind.
 */
struct group_turn {
    u32 s_mine, s_other, parity;

    DEVICE group_turn(u32 s_base, int group)
        : s_mine(smem::turn_barrier(s_base, group)), s_other(smem::turn_barrier(s_base, 1 - group)),
          parity(group == 0)
    {
    }

    DEVICE void wait()
    {
        wait_parity(s_mine, parity);
        parity ^= 1;
    }

    DEVICE void pass_on(u32 lane) const
    {
        if (lane == 0)
            mbarrier_arrive(s_other);
    }
};
