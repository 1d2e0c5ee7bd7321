/*
 * K tiles of rows that start anywhere, from global to shared memory by the four warps of the
 * loading group. Aligned chunks around what is wanted are copied asynchronously to a raw tile,
 * several tiles ahead; when they are there, they are shifted in registers and stored where tensor
 * copies would have put them. wgmma does not see the difference.
 *
 * Each warp has rows of its own, from the copy to the last store, so it waits for nobody but its
 * lanes and for a free slot. A row begins at the same byte of a chunk in every K tile, for a K tile
 * is a whole number of chunks along either side.
 *
 * `full` of a slot collects the four warps' arrivals, each behind its lanes' stores. The fence
 * towards wgmma is for those who wait: it waits for all that a thread has under way, here copies
 * that are to take their time.
 */
#pragma once

#include "load/tma.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/warp.cuh"
#include "tile/chunk.cuh"

/* The place of a lane's first chunk in the next K tile of an operand; its others lie `step` rows
 * apart, in the same column of chunks. */
template <typename TILE> struct realigned_operand {
    typedef raw_tile<TILE> raw;

    static constexpr int step = 32 / raw::row_chunks;
    static constexpr int count = raw::warp_rows / step;

    static_assert(step * raw::row_chunks == 32 && count * step == raw::warp_rows,
                  "lanes copy alike");
    static_assert(raw::warp_rows <= 32, "a lane for each row's last chunk");

    u64 g_first;
    u64 g_step, g_tile_step; /* bytes, from chunk to chunk and from K tile to K tile */
    u64 g_last;              /* behind what the K tile takes of one of the warp's rows */
    u32 warp, lane;
    u32 row_skipped; /* bytes of a chunk before the row that this lane shifts, of those by rows */
    int rows_left, cols_left; /* from the warp's first row and the lane's chunk on */
    int last_left;            /* columns from g_last on */

    DEVICE realigned_operand()
    {
    }

    DEVICE realigned_operand(u64 g_base, i64 ld, i64 origin, i64 limit, i64 k, i64 k_limit, u32 thread)
        : g_step((u64)(ld * (step * 2))), warp(thread / 32), lane(thread % 32)
    {
        i64 row = (TILE::is_k_major ? origin : k) + warp * raw::warp_rows;
        i64 col = TILE::is_k_major ? k : origin;
        i64 row_limit = TILE::is_k_major ? limit : k_limit;
        i64 col_limit = TILE::is_k_major ? k_limit : limit;
        u64 g_rows = g_base + (u64)((row * ld + col) * 2);

        g_first = g_rows + (u64)(lane / raw::row_chunks * ld * 2) + lane % raw::row_chunks * 16;
        row_skipped = (u32)(g_rows + (u64)(lane % raw::warp_rows * ld * 2)) & 15;
        g_last = g_rows + (u64)(lane * ld * 2) + raw::row_chunks * 16;
        g_tile_step = (u64)((TILE::is_k_major ? 1 : ld) * (cfg::tile_k * 2));
        rows_left = (int)(row_limit - row);
        cols_left = (int)(col_limit - col) - (int)(lane % raw::row_chunks * 8);
        last_left = (int)(col_limit - col) - raw::row_chunks * 8;
    }

    /* Bytes of the lane's i-th row before its first element, in a chunk. */
    DEVICE u32 skipped(int i) const
    {
        return (u32)(g_first + i * g_step) & 15;
    }

    DEVICE void advance()
    {
        g_first += g_tile_step;
        g_last += g_tile_step;
        if (TILE::is_k_major)
            last_left -= cfg::tile_k;
        (TILE::is_k_major ? cols_left : rows_left) -= cfg::tile_k;
    }

    /* The aligned chunk that g_wanted lies in, if the row has a byte in it, which `left` elements
     * from g_wanted on say; so no page is touched that the row has no part in. Counted in elements:
     * bytes of a row do not fit into 32 bits. */
    DEVICE static void raw_from_gmem(u32 s_chunk, u64 g_wanted, bool has_row, int left)
    {
        int skipped = (int)(g_wanted & 15);

        cp_async_cg_16(s_chunk, g_wanted - (u32)skipped,
                       has_row && left + skipped / 2 > 0 ? 16 : 0);
    }

    DEVICE void raw_from_gmem(u32 s_raw) const
    {
        u32 s_rows = s_raw + warp * (raw::warp_rows * raw::pitch);
        u32 row = lane / raw::row_chunks, chunk = lane % raw::row_chunks;

#pragma unroll
        for (int i = 0; i < count; i++)
            raw_from_gmem(s_rows + (row + i * step) * raw::pitch + chunk * 16, g_first + i * g_step,
                          (int)row + i * step < rows_left, cols_left);
        if (lane < raw::warp_rows)
            raw_from_gmem(s_rows + lane * raw::pitch + raw::row_chunks * 16, g_last,
                          (int)lane < rows_left && (g_last & 15) != 0, last_left);
    }

    /* To the L2, what raw_from_gmem() will read of this K tile, a row for each lane. */
    DEVICE void prefetch() const
    {
        if (lane >= raw::warp_rows || (int)lane >= rows_left)
            return;
#pragma unroll
        for (int back = raw::row_chunks * 16; back >= 0; back -= 128)
            if (last_left + back / 2 > 0)
                prefetch_global_l2(g_last - back);
    }

    /* Some chunks of a row beside each other, by a lane: one more is read than written, where lanes
     * with chunks of their own read two for each. Eight rows beside each other begin in different
     * banks. */
    template <int FIRST = 0> DEVICE void smem_from_raw_rows(u32 s_tile, u32 s_raw) const
    {
        constexpr int row_lanes = 32 / raw::warp_rows, each = raw::row_chunks / row_lanes;
        constexpr int batch = min_of(each - FIRST, 4);
        u32 row = warp * raw::warp_rows + lane % raw::warp_rows;
        u32 first = lane / raw::warp_rows * each + FIRST;
        u32 s_chunk = s_raw + row * raw::pitch + first * 16;
        int left = last_left + (raw::row_chunks - (int)first) * 8;
        u32 r_raw[batch + 1][4], r[batch][4];

#pragma unroll
        for (int i = 0; i <= batch; i++)
            ld_shared_v4_u32(r_raw[i], s_chunk + i * 16);
#pragma unroll
        for (int i = 0; i < batch; i++)
            chunk_across(r[i], r_raw[i], r_raw[i + 1], row_skipped);
        /* Behind the row's end there is nothing: zeros, as tensor copies give. */
        if (left < batch * 8)
#pragma unroll
            for (int i = 0; i < batch; i++)
                chunk_cut(r[i], left - i * 8);
#pragma unroll
        for (int i = 0; i < batch; i++)
            st_shared_v4_u32(s_tile + (first + i) / 8 * TILE::row_tile_size +
                                 swizzled_offset(row, (first + i) % 8),
                             r[i]);
        if constexpr (FIRST + batch < each)
            smem_from_raw_rows<FIRST + batch>(s_tile, s_raw);
    }

    /* Of a K tile that is there. */
    DEVICE void smem_from_raw(u32 s_tile, u32 s_raw) const
    {
        if constexpr (TILE::is_k_major && raw::warp_rows >= 8)
            smem_from_raw_rows(s_tile, s_raw);
        else
            smem_from_raw_chunks(s_tile, s_raw);
    }

    /* Chunks FIRST to FIRST + batch - 1 of this K tile. Loads before shifts before stores: they are
     * each other's latency. */
    template <int FIRST = 0> DEVICE void smem_from_raw_chunks(u32 s_tile, u32 s_raw) const
    {
        constexpr int batch = min_of(count - FIRST, 4);
        constexpr int part = TILE::is_k_major ? TILE::row_tile_size : TILE::block_size;
        u32 row = warp * raw::warp_rows + lane / raw::row_chunks + FIRST * step;
        u32 chunk = lane % raw::row_chunks;
        u32 low[batch][4], high[batch][4], r[batch][4];

#pragma unroll
        for (int i = 0; i < batch; i++) {
            u32 s_chunk = s_raw + (row + i * step) * raw::pitch + chunk * 16;

            ld_shared_v4_u32(low[i], s_chunk);
            ld_shared_v4_u32(high[i], s_chunk + 16);
        }
#pragma unroll
        for (int i = 0; i < batch; i++)
            chunk_across(r[i], low[i], high[i], skipped(FIRST + i));
        if (TILE::is_k_major && cols_left < 8)
#pragma unroll
            for (int i = 0; i < batch; i++)
                chunk_cut(r[i], cols_left);
#pragma unroll
        for (int i = 0; i < batch; i++)
            st_shared_v4_u32(s_tile + chunk / 8 * part + swizzled_offset(row + i * step, chunk % 8),
                             r[i]);
        if constexpr (FIRST + batch < count)
            smem_from_raw_chunks<FIRST + batch>(s_tile, s_raw);
    }
};

/* One walk over all K tiles of all units, as loader's (load/tma.cuh). */
struct realigner_walk {
    job_feed work;
    cta_place place;
    u32 thread;
    realigned_operand<tile_a> a;
    realigned_operand<tile_b> b;
    int k_tiles; /* of the unit that are left */

    DEVICE realigner_walk(const gemmd_tensor_feed &feed, const cta_place &in_place, u32 in_thread)
        : work(feed, in_place.walker, in_place.walkers), place(in_place), thread(in_thread),
          k_tiles(0)
    {
    }

    DEVICE void open(const raster::place &unit)
    {
        const gemmd_job &job = work.job();
        u64 g_a = job.a + (u64)(unit.item * job.stride_a * 2);
        u64 g_b = job.b + (u64)(unit.item * job.stride_b * 2);
        k_span span = k_span_of(work, place.rank_k);
        i64 k = (i64)span.first * cfg::tile_k;

        a = realigned_operand<tile_a>(cfg::is_swapped ? g_b : g_a,
                                      cfg::is_swapped ? job.ldb : job.lda, unit.row,
                                      cfg::is_swapped ? job.n : job.m, k, job.k, thread);
        b = realigned_operand<tile_b>(cfg::is_swapped ? g_a : g_b,
                                      cfg::is_swapped ? job.lda : job.ldb, unit.col,
                                      cfg::is_swapped ? job.m : job.n, k, job.k, thread);
        k_tiles = span.count;
    }

    /* To a unit that has K tiles left; false when there is none, also when asked again: take() does
     * not know that it said so. */
    DEVICE bool find()
    {
        raster::place unit;

        while (k_tiles == 0) {
            if (work.index >= work.job_count || !work.take(unit))
                return false;
            open(unit);
        }
        return true;
    }

    DEVICE void advance()
    {
        a.advance();
        b.advance();
        k_tiles--;
    }
};

/* The loading group's two walks: what is copied, and what is shifted some tiles later. Each looks for
 * its next unit in one place: there are divisions behind it, a hundred instructions and more. */
struct realigner {
    u32 s_base, lane;
    realigner_walk copies, shifts;
    int raw_slot; /* of the next tile of either walk, for the ring of raw tiles is full */
    ring_position at;
    bool is_settled; /* what the grid before this one writes is no input, or it has ended */

    DEVICE
    realigner(const gemmd_tensor_feed &feed, const cta_place &place, u32 in_s_base, u32 thread)
        : s_base(in_s_base), lane(thread % 32), copies(feed, place, thread),
          shifts(feed, place, thread), raw_slot(0), is_settled(are_settled(feed.jobs[0]))
    {
    }

    /* With the first K tiles known. A CTA that has its place while the grid before still runs has
     * them fetched to the L2 meanwhile, where two such grids fit beside each other. */
    DEVICE void settle()
    {
        if (2 * gridDim.x <= nsmid() * cfg::ctas_per_multiprocessor) {
            copies.a.prefetch();
            copies.b.prefetch();
        }
        griddepcontrol_wait();
        is_settled = true;
    }

    /* A group for every K tile, and empty ones behind the last: the wait counts groups. */
    DEVICE void raw_from_gmem()
    {
        if (copies.find()) {
            if (!is_settled)
                settle();
            copies.a.raw_from_gmem(smem::raw_a(s_base, raw_slot));
            copies.b.raw_from_gmem(smem::raw_b(s_base, raw_slot));
            copies.advance();
        }
        cp_async_commit_group();
        raw_slot = raw_slot + 1 < smem::raw_tiles ? raw_slot + 1 : 0;
    }

    /* The oldest raw tile to the next slot; its own is free then. */
    DEVICE void smem_from_raw()
    {
        cp_async_wait_group<smem::raw_tiles - 1>();
        bar_warp_sync(0xffffffff);
        wait_parity(smem::empty_barrier(s_base, at.slot), at.parity ^ 1);
        shifts.a.smem_from_raw(smem::a_of_slot(s_base, at.slot), smem::raw_a(s_base, raw_slot));
        shifts.b.smem_from_raw(smem::b_of_slot(s_base, at.slot), smem::raw_b(s_base, raw_slot));
        bar_warp_sync(0xffffffff);
        if (lane == 0)
            mbarrier_arrive(smem::full_barrier(s_base, at.slot));
        at.advance();
        shifts.advance();
    }

    /* The first turns copy only, until the ring of raw tiles is full. */
    DEVICE void run()
    {
#pragma unroll 1
        for (int to_fill = smem::raw_tiles; to_fill > 0 || shifts.find(); to_fill -= to_fill > 0) {
            if (to_fill == 0)
                smem_from_raw();
            raw_from_gmem();
        }
    }
};
