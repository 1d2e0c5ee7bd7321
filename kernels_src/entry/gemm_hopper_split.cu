/*
 * The hopper family's split configurations: K shared by the CTAs of a cluster and by clusters, and
 * narrow tiles by computing the transpose of D. sm_90a.
 *
 * Roles by warp: those that multiply do it together on one tile, each four of them on rows of their
 * own, and every warp stores its fragments by itself; the first warp behind them loads, the first
 * thread of the next one lets the next grid begin. The ring runs on into the next unit while they
 * do. Beside one group that multiplies there are these two warps: then registers suffice for all
 * without being moved, and a CTA starts sooner. Beside two it is a group, which leaves its registers
 * to them; not where they leave parts of the sum, for which they need few. Where rows start anywhere,
 * four warps load.
 *
 * CTAs walk the units of all jobs of their feed, times splits. What a role can know of its first
 * unit it finds out before it waits for the grid before: constants and divisions take as long as a
 * small product.
 */
#include "abi/job.h"
#include "epi/part_writer.cuh"
#include "epi/store_fragments.cuh"
#include "load/loading_warps.cuh"
#include "load/realign.cuh"
#include "pipe/slot_ahead.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/setmaxnreg.cuh"

extern __shared__ __align__(1024) u8 dynamic_shared[];

/* Products of a K tile run on while those of the next are issued; not where a slot takes longer to
 * fill than its products, and is given back sooner for it. */
constexpr int products_behind = cfg::realigns ? 0 : 1;

/* What takes the sums from a warp. */
template <bool LEAVES_PARTS> struct writer_of {
    typedef fragment_writer type;
};

template <> struct writer_of<true> {
    typedef part_writer type;
};

typedef writer_of<cfg::leaves_parts>::type tile_out;

struct multiplier {
    const launch &in;
    int group;
    u32 warp, lane; /* in the group */
    ring_position at;

    DEVICE multiplier(const launch &in_launch, int in_group, u32 in_warp, u32 in_lane)
        : in(in_launch), group(in_group), warp(in_warp), lane(in_lane)
    {
    }

    DEVICE void accum_from_ring(group_tile &tile, int k_tiles)
    {
        slot_ahead next(in.s_base, at);

        if (k_tiles == 0)
            tile.clear();
#pragma unroll 1
        for (int i = 0; i < k_tiles; i++) {
            /* With products on their way registers are not this thread's, not even for a fault: the
             * compiler would wait for them by itself. */
            if (!next.is_full &&
                !is_over_in_time(smem::full_barrier(in.s_base, at.slot), at.parity)) {
                wgmma_wait_group<0>();
                fault();
            }
            /* The slot was written by threads. */
            if (cfg::realigns)
                fence_proxy_async_shared_cta();
            ring_position here = at;
            at.advance();
            tile.accum_from_smem<cfg::tile_n>(next.word, group * group_tile::blocks, i > 0,
                                              look_ahead{next, in.s_base, at});
            wgmma_wait_group<products_behind>();
            if (products_behind == 0)
                slot_release(in.s_base, here.slot, lane, in.place.first_sharer());
            else if (i > 0)
                slot_release(in.s_base, here.before(), lane, in.place.first_sharer());
        }
        wgmma_wait_group<0>();
        tile.fence();
        if (products_behind > 0 && k_tiles > 0)
            slot_release(in.s_base, at.before(), lane, in.place.first_sharer());
    }

    DEVICE fragment_place place_of(const job_feed &work) const
    {
        raster::place unit = work.place();

        return {(int)unit.row + (int)in.place.rank_m * cfg::tile_m + group * cfg::group_m +
                    (int)warp * 16,
                (int)unit.col + (int)in.place.rank_n * cfg::tile_n, unit.item, work.has_more()};
    }

    DEVICE void run()
    {
        job_feed work(in.feed, in.place.walker, in.place.walkers);
        tile_out writer(in.s_base, group * 4 + (int)warp, lane, in.place);
        bool is_first = true;

        while (work.take()) {
            fragment_place to = place_of(work);
            group_tile tile;

            /* Here, and not in the ring, whose waits have a limit; or for the counters. */
            if (is_first &&
                (!are_settled(in.feed.jobs[0]) || (work.splits > 1 && !cfg::leaves_parts)))
                griddepcontrol_wait();
            is_first = false;
            writer.announce(work);
            accum_from_ring(tile, k_span_of(work, in.place.rank_k).count);
            griddepcontrol_wait(); /* the grid before may read D or the workspace, or write C */
            if (cfg::realigns) /* all others have something to do, where take_turn() would wait */
                griddepcontrol_launch_dependents();
            writer.gmem_from_accum(tile, work, to);
        }
    }
};

extern "C" __global__ void __launch_bounds__(cfg::threads_held, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_tensor_feed feed,
         const __grid_constant__ gemmd_tensor_maps maps)
{
    /* All that needs no memory that another grid writes comes before griddepcontrol_wait(). */
    u32 warp = shfl_sync_idx(threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    launch in = {feed, maps, cvta_to_shared(dynamic_shared), cta_place_of(blockIdx.x, gridDim.x)};

    if (warp == 0 && !loaders_make_barriers)
        barriers_init(in.s_base, (int)lane);
    if (warp < smem::warps) {
        if (cfg::moves_registers)
            setmaxnreg_inc<224>();
        multipliers_meet();
        multiplier(in, (int)warp / 4, warp % 4, lane).run();
    } else if constexpr (cfg::realigns) {
        if (threadIdx.x == smem::warps * 32)
            lead_on(feed.jobs[0]);
        if (warp == smem::warps)
            barriers_make(in.s_base, (int)lane);
        realigner copies(feed, in.place, in.s_base, threadIdx.x - smem::warps * 32);
        bar_sync(realigners_barrier, cfg::loading_warps * 32); /* what the first of them made */
        copies.run();
        griddepcontrol_wait(); /* if there was nothing to do: no grid ends before the one before */
    } else {
        if (cfg::moves_registers)
            setmaxnreg_dec<56>();
        load(in, warp - smem::warps, lane);
    }
    cluster_leave(); /* another CTA may still read what this one offers */
}
