/*
 * K tiles from global to shared memory by tensor copies, issued by one thread. What CTAs of a
 * cluster have in common, each copies a part of, to all of them.
 */
#pragma once

#include "pipe/stamps.cuh"
#include "ptx/proxy.cuh"
#include "ptx/tma.cuh"
#include "sched/job_feed.cuh"
#include "sched/turn.cuh"

/* One operand of one unit. SHARERS: CTAs of the cluster that read the same. */
template <typename TILE, int SHARERS> struct tensor_operand {
    static constexpr int part_rows = (TILE::is_k_major ? TILE::span : cfg::tile_k) / SHARERS;

    const gemmd_tensor_map *map; /* the edge's, for a part that is lower */
    int origin;                  /* of the tile along m or n */
    int item;
    u32 part;  /* which of them is this CTA's */
    u32 first; /* the first of them, in the cluster */
    int rows;  /* of the part that there are */
    u32 bytes; /* of all parts */

    /* `extent`: along m or n, less than 2^31 (daemon/plan/plan_hopper.c). */
    DEVICE void trim(int extent, const gemmd_tensor_map *edge)
    {
        rows = part_rows;
        bytes = TILE::size;
        if constexpr (TILE::is_k_major) {
            int left = max_of(extent - origin, 0);

            rows = max_of(min_of(left - (int)part * part_rows, part_rows), 0);
            bytes = (u32)min_of(left, TILE::span) * (swizzle_row * row_tiles);
            if (rows < part_rows)
                map = edge;
        }
    }

    DEVICE void copy(u32 s_destination, int c0, int c1, u32 s_barrier) const
    {
        if constexpr (SHARERS == 1)
            cp_async_bulk_tensor_3d_shared_global(s_destination, map, c0, c1, item, s_barrier);
        else
            cp_async_bulk_tensor_3d_shared_global_multicast(s_destination, map, c0, c1, item,
                                                            s_barrier,
                                                            (u16)(((1 << SHARERS) - 1) << first));
    }

    /* To the L2, where it stays current whoever writes it. */
    DEVICE void prefetch(int k) const
    {
        int first = (int)part * part_rows;

        if (rows == 0)
            return;
        if constexpr (TILE::is_k_major) {
#pragma unroll
            for (int tile = 0; tile < row_tiles; tile++)
                cp_async_bulk_prefetch_tensor_3d(map, k + tile * row_elements, origin + first,
                                                 item);
        } else {
#pragma unroll
            for (int at = 0; at < TILE::span; at += block_span)
                cp_async_bulk_prefetch_tensor_3d(map, origin + at, k + first, item);
        }
    }

    /* The part: of a K-major tile its share of the rows, of a span-major one of each block's. */
    DEVICE void smem_from_gmem(u32 s_tile, int k, u32 s_barrier) const
    {
        int first = (int)part * part_rows;

        if (rows == 0)
            return;
        if constexpr (TILE::is_k_major) {
#pragma unroll
            for (int tile = 0; tile < row_tiles; tile++)
                copy(s_tile + tile * TILE::row_tile_size + first * swizzle_row,
                     k + tile * row_elements, origin + first, s_barrier);
        } else {
#pragma unroll
            for (int block = 0; block < TILE::span / block_span; block++)
                copy(s_tile + block * TILE::block_size + first * swizzle_row,
                     origin + block * block_span, k + first, s_barrier);
        }
    }
};

/* A CTA's place in its cluster, and the cluster's among the walkers. */
struct cta_place {
    u32 rank_m, rank_n, rank_k;
    u32 walker, walkers;

    /* The first CTA of those that read the same part of K. */
    DEVICE u32 first_sharer() const
    {
        return cfg::cluster_k == 1 ? 0 : rank_k * cfg::sharers;
    }
};

DEVICE cta_place cta_place_of(u32 cta, u32 ctas)
{
    u32 rank = cfg::cluster == 1 ? 0 : cluster_ctarank();

    return {rank % cfg::cluster_m, rank / cfg::cluster_m % cfg::cluster_n,
            cfg::cluster_k == 1 ? 0 : rank / cfg::sharers,
            cta / cfg::cluster, ctas / cfg::cluster};
}

DEVICE int k_tiles_of(const gemmd_job &job)
{
    return job.alpha != 0 ? (int)((job.k + cfg::tile_k - 1) / cfg::tile_k) : 0;
}

/* K tiles of a unit that this CTA multiplies: every so many of them. */
struct k_span {
    int first, count, step;
};

constexpr int final_more = cfg::leaves_parts ? 0 : 256 / cfg::tile_k;

/* All of them, or its part. The final split, which adds what the others have put down by then, has
 * some more; else the last parts have one more where they cannot be equal. Which CTA of which split
 * has a part follows from their numbers alone, so the sums have one order. */
DEVICE k_span k_span_of(const job_feed &work, u32 rank_k)
{
    int tiles = k_tiles_of(work.job());

    if constexpr (!cfg::is_split)
        return {0, tiles, 1};
    if constexpr (cfg::leaves_parts) {
        int splits = (int)work.splits, split = (int)work.split();

        return {split, max_of(tiles - split + splits - 1, 0) / splits, splits};
    }

    int parts = (int)work.splits * cfg::cluster_k, others = parts - cfg::cluster_k;
    int part = (int)(work.split() * cfg::cluster_k + rank_k);
    int more = min_of(final_more, tiles / parts / 8);
    int least = (tiles + others * more) / parts, from = parts - (tiles + others * more) % parts;

    /* As if the others had as many more, too. */
    return {part * least + max_of(part - from, 0) - min_of(part, others) * more,
            least + (part >= from) - (part < others ? more : 0), 1};
}

/* The walk of who loads: K tile after K tile over all units, ahead of who multiplies by as much as
 * the ring holds. Only smem_from_gmem() reads operands: all else may be done while the grid
 * before this one still runs. */
struct loader {
    job_feed work;
    const gemmd_tensor_maps &maps;
    cta_place place;
    u32 s_base;
    ring_position at;
    tensor_operand<tile_a, cfg::cluster_n> a;
    tensor_operand<tile_b, cfg::cluster_m> b;
    int k, k_end, k_step; /* elements along K */
    u32 fenced;    /* the job whose inputs tensor copies see */
    bool issues;   /* this thread; of a warp that walks together one does */
    bool is_empty; /* the slot at `at`; else it was not when that was looked at */
    stamps stamp;

    DEVICE loader(const gemmd_tensor_feed &feed,
                  const gemmd_tensor_maps &in_maps,
                  const cta_place &in_place,
                  u32 in_s_base,
                  bool in_issues)
        : work(feed, in_place.walker, in_place.walkers), maps(in_maps), place(in_place),
          s_base(in_s_base), fenced(0), issues(in_issues), is_empty(true)
    {
    }

    DEVICE void open(const raster::place &unit)
    {
        const gemmd_job &job = work.job();
        const gemmd_tensor_map *map = maps.of[work.index];
        i64 stride_a = cfg::is_swapped ? job.stride_b : job.stride_a;
        i64 stride_b = cfg::is_swapped ? job.stride_a : job.stride_b;
        k_span span = k_span_of(work, place.rank_k);

        /* What an earlier job of the launch wrote is for TMA to see. */
        if (fenced != work.index) {
            fence_proxy_async_global();
            fenced = work.index;
        }
        a = {map + (cfg::is_swapped ? GEMMD_TENSOR_B : GEMMD_TENSOR_A),
             (int)unit.row + (int)place.rank_m * cfg::tile_m, stride_a != 0 ? (int)unit.item : 0,
             place.rank_n, place.first_sharer()};
        a.trim((int)(cfg::is_swapped ? job.n : job.m),
               &maps.edge[work.index][cfg::is_swapped ? GEMMD_TENSOR_B : GEMMD_TENSOR_A]);
        b = {map + (cfg::is_swapped ? GEMMD_TENSOR_A : GEMMD_TENSOR_B),
             (int)unit.col + (int)place.rank_n * cfg::tile_n, stride_b != 0 ? (int)unit.item : 0,
             place.rank_m, place.first_sharer()};
        b.trim((int)(cfg::is_swapped ? job.m : job.n),
               &maps.edge[work.index][cfg::is_swapped ? GEMMD_TENSOR_A : GEMMD_TENSOR_B]);
        k = span.first * cfg::tile_k;
        k_step = span.step * cfg::tile_k;
        k_end = k + span.count * k_step;
    }

    /*
     * For a CTA that has its place while the grid before this one still runs: the inputs come from
     * memory meanwhile. Units of one row or column read the same; each of them fetches a part. Not
     * more than a small product has, and the ring will not see for long: the L2 is others' too.
     */
    DEVICE void prefetch() const
    {
        int end = min_of(k_end, 32 * cfg::tile_k);
        int row = a.origin / cfg::tile_m, rows = (int)work.size.units_m * cfg::cluster_m;
        int col = b.origin / cfg::tile_n, cols = (int)work.size.units_n * cfg::cluster_n;

#pragma unroll 1
        for (int at = col * cfg::tile_k; at < end; at += cols * cfg::tile_k)
            a.prefetch(at);
#pragma unroll 1
        for (int at = row * cfg::tile_k; at < end; at += rows * cfg::tile_k)
            b.prefetch(at);
    }

    /* On to the next unit that has K tiles; false when there is none. */
    DEVICE bool next_unit()
    {
        raster::place unit;

        do {
            if (!work.take(unit))
                return false;
            open(unit);
        } while (k == k_end);
        return true;
    }

    /* The next K tile of the unit to the next slot; false after the last one. */
    DEVICE bool smem_from_gmem()
    {
        int slot = at.slot;
        u32 s_full = smem::full_barrier(s_base, slot);

        if (!is_empty)
            wait_parity(smem::empty_barrier(s_base, slot), at.parity ^ 1);
        at.advance();
        /* Looked at ahead: a look, two copies and a round of this loop take 300 cycles one after the
         * other, the products of a K tile of 64 x 64 128. */
        is_empty = mbarrier_test_wait_parity(smem::empty_barrier(s_base, at.slot), at.parity ^ 1);
        if (issues) {
            mbarrier_arrive_expect_tx(s_full, a.bytes + b.bytes);
            a.smem_from_gmem(smem::a_of_slot(s_base, slot), k, s_full);
            b.smem_from_gmem(smem::b_of_slot(s_base, slot), k, s_full);
        }
        stamp.copies_issued();
        k += k_step;
        return k < k_end;
    }

    /* The next K tile of whatever unit; false after the last one. For who loads in passing. */
    DEVICE bool advance()
    {
        return smem_from_gmem() || next_unit();
    }

    /* All of the walk, by a warp. It finds its first unit before it meets those of a cluster, or
     * who makes the ring's barriers: parameters and divisions take as long as these do to come. One
     * call of next_unit() serves the first unit and the others: all that is behind it is inlined, a
     * second time for a second call. */
    DEVICE void meet_and_run()
    {
        bool is_settled = are_settled(work.jobs[0]);

        for (bool has_met = false;; has_met = true) {
            bool has_unit = next_unit();

            if (!has_met)
                loader_meets();
            if (!has_unit)
                break;
            if (!is_settled) {
                /* Two such grids fit beside each other; what is repacked is not there yet. */
                if (!cfg::is_split && !cfg::stores_anywhere && 2 * gridDim.x <= nsmid() && issues)
                    prefetch();
                griddepcontrol_wait();
                is_settled = true;
            }
            while (smem_from_gmem())
                ;
        }
        ring_drain(s_base, at);
    }
};
