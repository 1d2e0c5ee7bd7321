/*
 * The hopper family: tensor copies, mbarriers, wgmma. sm_90a.
 *
 * Roles by warpgroup. Specialised schedules: the first warp of group 0 loads, and the group gives
 * its registers away where two others multiply; these multiply and store, together on one tile
 * (coop) or each on every other unit (pingpong), so that one stores while the other multiplies. The
 * simpler schedules have no group for loading: the first thread of those that multiply does it in
 * passing.
 *
 * CTAs walk the units of all jobs of their feed; tma and pipelined are launched with a CTA for
 * each.
 */
#include "abi/job.h"
#include "epi/way_out.cuh"
#include "load/loading_warps.cuh"
#include "pipe/slot_ahead.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/setmaxnreg.cuh"

extern __shared__ __align__(1024) u8 dynamic_shared[];

/* Loading in passing: nothing to do where others load, or for all threads but one. */
template <bool IS_SPECIALIZED> struct side_loader {
    DEVICE side_loader(const launch &, bool)
    {
    }

    DEVICE void fill()
    {
    }

    DEVICE void next()
    {
    }
};

template <> struct side_loader<false> {
    loader loads;
    bool has_more; /* K tiles, and this thread is the one that loads */

    DEVICE side_loader(const launch &in, bool is_mine)
        : loads(in.feed, in.maps, in.place, in.s_base, true), has_more(is_mine && loads.next_unit())
    {
        loads.stamp.open(GEMMD_STAMP_LOADER, is_mine);
    }

    DEVICE void fill()
    {
        for (int i = 0; i < cfg::stages; i++)
            next();
    }

    DEVICE void next()
    {
        if (has_more)
            has_more = loads.advance();
    }
};

/* K tiles whose products may run on while the next ones are issued. */
constexpr int products_behind = cfg::is_specialized && cfg::stages > 1 ? 1 : 0;

/* Where sizes are odd, the last tiles have little in them, and often a round of their own: it takes
 * half as long without the products of what is not there. */
constexpr int edge_cols = 64;

struct multiplier {
    const launch &in;
    int group;
    u32 warp, lane; /* in the group */
    ring_position at;
    group_turn turn;
    side_loader<cfg::is_specialized> loads;
    stamps stamp;

    DEVICE multiplier(const launch &in_launch, int in_group, u32 in_warp, u32 in_lane)
        : in(in_launch), group(in_group), warp(in_warp), lane(in_lane),
          turn(in_launch.s_base, in_group),
          loads(in_launch, in_group == 0 && in_warp == 0 && in_lane == 0)
    {
        stamp.open(GEMMD_STAMP_GROUP_0 + group, warp == 0 && lane == 0);
    }

    DEVICE void release(int slot)
    {
        slot_release(in.s_base, slot, lane);
        loads.next();
    }

    /* Waits for the K tile whose turn it is and goes on to the one behind it; where it lies. */
    DEVICE ring_position pass(const slot_ahead &next)
    {
        ring_position here = at;

        if (!next.is_full)
            wait_parity(smem::full_barrier(in.s_base, at.slot), at.parity);
        stamp.slot_seen();
        at.advance();
        return here;
    }

    /* What there is to do beside the products of the K tile before `at`. */
    DEVICE auto beside(const ring_position &here, slot_ahead &next)
    {
        return both_beside(stamp.beside(in.s_base, here), look_ahead{next, in.s_base, at});
    }

    /* All products of a unit, of the tile's first COLS columns; those of the last K tile may run on
     * until finish(). */
    template <int COLS> DEVICE void accum_from_ring(group_tile &tile, int k_tiles)
    {
        int first_block = cfg::is_pingpong ? 0 : group * group_tile::blocks;

        if (cfg::is_pingpong)
            turn.wait();
        slot_ahead next(in.s_base, at);
#pragma unroll 1
        for (int i = 0; i < k_tiles; i++) {
            ring_position here = pass(next);

            if constexpr (COLS > 0)
                tile.accum_from_smem<COLS>(next.word, first_block, i > 0, beside(here, next));
            else
                next.look(in.s_base, at);
            stamp.products_issued();
            wgmma_wait_group<products_behind>();
            stamp.wait_ended();
            if (products_behind == 0)
                release(here.slot);
            else if (i > 0)
                release(here.before());
        }
        if (cfg::is_pingpong)
            turn.pass_on(lane);
    }

    /* Of a tile that D ends in, no more products than it needs. */
    DEVICE void accum_from_ring_at(const out_place &to, group_tile &tile, int k_tiles)
    {
        if (to.row >= to.job.m)
            accum_from_ring<0>(tile, k_tiles);
        else if (to.cols_left(0) <= edge_cols)
            accum_from_ring<edge_cols>(tile, k_tiles);
        else
            accum_from_ring<cfg::tile_n>(tile, k_tiles);
    }

    DEVICE void finish(group_tile &tile, int k_tiles)
    {
        wgmma_wait_group<0>();
        stamp.products_done();
        tile.fence();
        if (products_behind > 0 && k_tiles > 0)
            release(at.before());
    }

    /* The exchange leaves the numbers what they are, the same in all lanes; but the compiler would
     * put off the divisions before it until after the wait for the products that they can overlap.
     */
    DEVICE out_place place_of(const job_feed &work, const raster::place &unit) const
    {
        const gemmd_tensor_map *map = in.maps.of[work.index];
        int row_in_tile = cfg::is_pingpong ? 0 : group * cfg::group_m;
        int row = (int)unit.row + (int)in.place.rank_m * cfg::tile_m + row_in_tile;
        int col = (int)unit.col + (int)in.place.rank_n * cfg::tile_n;

        return {work.job(), map, (int)shfl_sync_idx((u32)row, 0), (int)shfl_sync_idx((u32)col, 0),
                (int)unit.item};
    }

    /* A unit of which something is in registers, for which nothing else is kept. */
    struct unit_here {
        bool is_here; /* else there is none */
        u32 job;
        int row, col, item;
    };

    DEVICE unit_here unit_of(const job_feed &work) const
    {
        out_place to = place_of(work, work.place());

        return {true, work.index, to.row, to.col, to.item};
    }

    DEVICE out_place place_of(const unit_here &unit) const
    {
        return {in.feed.jobs[unit.job], in.maps.of[unit.job], unit.row, unit.col, unit.item};
    }

    /* A step of the last tile's way out, to be done beside the products of a K tile. */
    struct step_beside {
        const multiplier &of;
        const late_writer &writer;
        const unit_here &unit;
        int step;

        DEVICE void operator()(int slice) const
        {
            if (slice == 0)
                writer.gmem_from_buffers<1>(of.place_of(unit), step, unit.is_here);
        }
    };

    /* What has not left beside products, from this step on. */
    DEVICE void
    leave(const late_writer &writer, const late_tile &late, const unit_here &unit, int step) const
    {
        constexpr int burst = late_writer::burst;

        if (!unit.is_here)
            return;
#pragma unroll 1
        for (; step % burst != 0; step++)
            writer.gmem_from_buffers<1>(place_of(unit), step, true);
#pragma unroll 1
        for (; step < late_writer::steps; step += burst) {
            if (step == late_writer::half_steps)
                writer.turn_over(late);
            writer.gmem_from_buffers<burst>(place_of(unit), step, true);
        }
    }

    template <typename BESIDE>
    DEVICE void k_tile_beside(group_tile &tile, int number, slot_ahead &next, const BESIDE &more)
    {
        ring_position here = pass(next);

        tile.accum_from_smem<cfg::tile_n>(next.word, group, number > 0,
                                          both_beside(more, beside(here, next)));
        stamp.products_issued();
        wgmma_wait_group<1>();
        stamp.wait_ended();
        if (number > 0)
            release(here.before());
    }

    /* All products of a unit; the last unit leaves beside the first of them. */
    DEVICE void accum_late(group_tile &tile,
                           int k_tiles,
                           const late_writer &writer,
                           const late_tile &late,
                           const unit_here &unit)
    {
        slot_ahead next(in.s_base, at);
        int i = 0;

#pragma unroll 1
        for (; i < min_of(k_tiles, late_writer::steps); i++) {
            if (i == late_writer::half_steps)
                writer.turn_over(late);
            k_tile_beside(tile, i, next, step_beside{*this, writer, unit, i});
        }
        leave(writer, late, unit, i);
#pragma unroll 1
        for (; i < k_tiles; i++)
            k_tile_beside(tile, i, next, nothing_beside());
    }

    /* A tile is rounded when its products have ended, and stored beside those of the next one. */
    DEVICE void run_late()
    {
        job_feed work(in.feed, in.place.walker, in.place.walkers);
        late_writer writer = way_out{in.s_base, group, warp, lane}.late();
        group_tile tile;
        late_tile late;
        unit_here unit = {false, 0, 0, 0, 0};

        if (!are_settled(in.feed.jobs[0]))
            griddepcontrol_wait();
        while (work.take()) {
            int k_tiles = k_tiles_of(work.job());

            stamp.tile_begins();
            if (k_tiles > 0) {
                accum_late(tile, k_tiles, writer, late, unit);
                unit = unit_of(work); /* while the last products run */
                finish(tile, k_tiles);
            } else {
                leave(writer, late, unit, 0);
                unit = unit_of(work);
                tile.clear();
            }
            writer.take(late, tile, epilogue(work.job(), unit.item));
            griddepcontrol_wait(); /* as in run() */
            stamp.epilogue_ends();
        }
        leave(writer, late, unit, 0);
        stamp.close();
    }

    DEVICE void leave_by(way_out &way, group_tile &tile, int k_tiles, const out_place &to)
    {
        epilogue op(to.job, to.item);

        finish(tile, k_tiles);
        griddepcontrol_wait(); /* the grid before may read D, or write C */
        way.gmem_from_accum(tile, to, op);
        stamp.epilogue_ends();
    }

    DEVICE void run()
    {
        job_feed work(in.feed, in.place.walker, in.place.walkers);
        way_out way = {in.s_base, group, warp, lane};

        if (!cfg::is_specialized)
            take_turn();
        else if (!are_settled(in.feed.jobs[0]))
            griddepcontrol_wait(); /* here, and not in the ring, whose waits have a limit */
        loads.fill();
        for (u32 number = 0; work.take(); number++) {
            int k_tiles = k_tiles_of(work.job());
            group_tile tile;

            if (cfg::is_pingpong && number % cfg::groups != (u32)group) {
                at.skip(k_tiles);
                continue;
            }
            stamp.tile_begins();
            if (k_tiles == 0)
                tile.clear();
            if constexpr (cfg::trims_edges) {
                out_place to = place_of(work, work.place());

                accum_from_ring_at(to, tile, k_tiles);
                leave_by(way, tile, k_tiles, to);
            } else {
                accum_from_ring<cfg::tile_n>(tile, k_tiles);
                /* Found while the last products run. */
                leave_by(way, tile, k_tiles, place_of(work, work.place()));
            }
        }
        way.drain();
        stamp.close();
    }
};

extern "C" __global__ void __launch_bounds__(cfg::threads, cfg::ctas_per_multiprocessor)
    gemm(const __grid_constant__ gemmd_tensor_feed feed,
         const __grid_constant__ gemmd_tensor_maps maps)
{
    /* All that needs no memory that another grid writes comes before griddepcontrol_wait(). */
    u32 warp = shfl_sync_idx(threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    int group = (int)warp / 4 - (cfg::is_specialized ? 1 : 0);
    launch in = {feed, maps, cvta_to_shared(dynamic_shared), cta_place_of(blockIdx.x, gridDim.x)};

    if (warp == 2 && !loaders_make_barriers)
        barriers_init(in.s_base, (int)lane);
    if (group < 0) {
        if (cfg::moves_registers)
            setmaxnreg_dec<56>();
        load(in, warp, lane);
    } else {
        if (cfg::moves_registers)
            setmaxnreg_inc<224>();
        multipliers_meet();
        if constexpr (cfg::leaves_late)
            multiplier(in, group, warp % 4, lane).run_late();
        else
            multiplier(in, group, warp % 4, lane).run();
    }
}
