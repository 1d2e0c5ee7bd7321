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

DEVICE void exchange_init(u32 s_base, int warp)
{
    u32 rank = cfg::cluster_k == 1 ? 0 : cluster_ctarank() / cfg::sharers;

    mbarrier_init(smem::arrived_barrier(s_base, warp), max_of(cfg::cluster_k - 1, 1));
    mbarrier_init(smem::taken_barrier(s_base, warp), max_of(smem::takers(rank), 1));
}

/* The same for what other CTAs of the cluster have written. */
DEVICE void wait_parity_of_cluster(u32 s_barrier, u32 parity)
{
    u32 start = globaltimer_lo();

    while (!mbarrier_try_wait_parity_acquire_cluster(s_barrier, parity))
        if (globaltimer_lo() - start > wait_limit_ns)
            fault();
}

/* One warp, before all others go on. Each lane has barriers of its own: one thread took 700 cycles
 * for all of them, a third of the way to the first copy. */
DEVICE void barriers_init(u32 s_base, int lane)
{
    static_assert(cfg::stages <= 32 && smem::warps <= 32, "a lane for each");

    if (lane < cfg::stages) {
        int readers = cfg::is_pingpong ? 1 : cfg::groups;

        mbarrier_init(smem::full_barrier(s_base, lane), cfg::realigns ? 4 : 1);
        mbarrier_init(smem::empty_barrier(s_base, lane), readers * 4 * cfg::sharers);
    }
    if (cfg::is_split && !cfg::leaves_parts && lane < smem::warps)
        exchange_init(s_base, lane);
    else if (!cfg::is_split && lane < cfg::groups)
        mbarrier_init(smem::turn_barrier(s_base, lane), 4);
    fence_mbarrier_init_release_cluster();
}

/* --- until all know of the barriers ---
 *
 * Of a cluster all threads meet. In a CTA by itself the second loading warp makes them, while the
 * first one finds its first unit: parameters and divisions take as long as the barriers do. It
 * waits for nobody, but arrives at two named barriers, each for one phase:
 *
 *   8  its 32 threads arrive; all that multiply wait (128 for each group), before anything of the
 *      ring; then they may look for K tiles
 *   9  its 32 threads arrive; the first loading warp (32) waits, before its first look at a slot;
 *      then it may copy
 *
 * Those who realign, four warps, find their first unit each for itself: their first one makes the
 * barriers before, arrives at 8, and meets the others at a barrier of their own (load/realign.cuh).
 *
 * PTX would let all meet at one barrier by instructions of their own, but synccheck reports it
 * ("Divergent thread(s) in block"). Schedules without a loading warp come by one instruction, all
 * threads of the CTA.
 */
constexpr bool loaders_make_barriers = cfg::is_specialized && cfg::cluster == 1;
/* Named; groups have 1 + group. */
constexpr u32 multipliers_barrier = 8, loader_barrier = 9, realigners_barrier = 10;
constexpr u32 multipliers_threads = 32 + cfg::groups * 128; /* and who makes the others */
constexpr u32 loader_threads = 32 + 32;

DEVICE void cluster_meet()
{
    barrier_cluster_arrive_relaxed(); /* the fence of who made the barriers releases them */
    barrier_cluster_wait_acquire();
}

/* By one warp of those that load, in a CTA by itself. The lanes meet, since each has made others:
 * what the warp says of its barriers is true of all of them. */
DEVICE void barriers_make(u32 s_base, int lane)
{
    barriers_init(s_base, lane);
    bar_warp_sync(0xffffffffu);
    bar_arrive(multipliers_barrier, multipliers_threads);
}

/* By all that multiply, before anything else of the ring. */
DEVICE void multipliers_meet()
{
    if constexpr (loaders_make_barriers)
        bar_sync(multipliers_barrier, multipliers_threads);
    else if constexpr (cfg::cluster == 1)
        bar_sync_0();
    else
        cluster_meet();
}

/* By the first loading warp, before anything else of the ring. */
DEVICE void loader_meets()
{
    if constexpr (loaders_make_barriers)
        bar_sync(loader_barrier, loader_threads);
    else
        cluster_meet();
}

/* By the warps beside it. The second one, in a CTA by itself, says to both sorts that the ring's
 * barriers are there. */
DEVICE void others_meet(u32 s_base, u32 warp, u32 lane)
{
    if constexpr (!loaders_make_barriers) {
        cluster_meet();
    } else if (warp == 1) {
        barriers_make(s_base, (int)lane);
        bar_arrive(loader_barrier, loader_threads);
    }
}

/* All threads, last of all, where CTAs take from each other's shared memory (of CTAs that copy to
 * each other it is the loader that stays, ring_drain()). */
DEVICE void cluster_leave()
{
    if constexpr (cfg::cluster_k > 1) {
        barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    }
}

/* By the loading warp, behind its last copy. A CTA may not end while another one of its cluster
 * copies to it or arrives at its barriers. When every slot has been given back by all its readers,
 * those of the other CTA too, all that was for here has come, and what this CTA copied there has
 * been read. The readers store D meanwhile: nobody waits for that, as they would by a barrier of the
 * cluster, which orders memory as well. */
DEVICE void ring_drain(u32 s_base, ring_position at)
{
    constexpr int slots = cfg::sharers > 1 ? cfg::stages : 0;

#pragma unroll 1
    for (int i = 0; i < slots; i++) {
        wait_parity(smem::empty_barrier(s_base, at.slot), at.parity ^ 1);
        at.advance();
    }
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
