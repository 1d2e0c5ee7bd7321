/*
 * K tiles of both operands of entry/gemm_strip.cu as they lie in memory, by asynchronous copies of
 * the aligned chunks that they have a part in; and from there, shifted, to registers.
 *
 * An operand with K along its rows has one raw row for each of them; where these lie close to each
 * other, all come as one run, with what is between them. One without has a raw row for each K. What
 * lies behind K is somebody else's, and may be NaN: it becomes zero, on both sides. What lies beyond
 * a matrix's rows is nobody's: it is part of no element of D.
 */
#pragma once

#include "abi/job.h"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "sched/raster.cuh"
#include "tile/chunk.cuh"
#include "tile/strip_map.cuh"

/* A K tile of an operand: indices along m or n from a first one on, some of which exist. */
struct strip_part {
    u64 g_first; /* of its first index, as if that existed, and first K */
    u64 g_ld;    /* bytes */
    int first, end; /* indices that exist */
    int depth;      /* K */
};

/* The aligned chunk that holds g_wanted, if a byte of the row is in it, which ends `left` bytes
 * behind g_wanted or, negative, before it: no page is touched that the row has no part in. */
DEVICE void raw_from_gmem(u32 s_chunk, u64 g_wanted, int left)
{
    int skipped = (int)(g_wanted % chunk_size);

    if (left + skipped > 0)
        cp_async_cg_16(s_chunk, g_wanted - (u32)skipped, chunk_size);
}

template <bool IS_K_MAJOR> struct strip_raw;

template <> struct strip_raw<true> {
    strip_part of;
    u32 s_raw;

    DEVICE bool comes_as_run() const
    {
        return of.g_ld < strip::raw_pitch;
    }

    DEVICE void run_from_gmem(u32 thread) const
    {
        u32 before = (u32)of.g_first % chunk_size, ld = (u32)of.g_ld;
        u32 first = (before + (u32)of.first * ld) / chunk_size;
        u32 end = before + (u32)(of.end - 1) * ld + (u32)of.depth * cfg::input_size;
        u64 g_chunks = of.g_first - before;

#pragma unroll 1
        for (u32 i = first + thread; i * chunk_size < end; i += cfg::threads)
            cp_async_cg_16(s_raw + i * chunk_size, g_chunks + i * chunk_size, chunk_size);
    }

    /* Eight threads a row, and one for the chunk by which a row is longer that does not begin with
     * one. */
    DEVICE void rows_from_gmem(u32 thread) const
    {
        constexpr int step = cfg::threads / strip::row_chunks;
        u32 chunk = thread % strip::row_chunks;
        int left = of.depth * cfg::input_size;
        u64 g_chunk = of.g_first + chunk * chunk_size, g_last = of.g_first + strip::row_size;

#pragma unroll 1
        for (int row = (int)(thread / strip::row_chunks); row < of.end; row += step)
            if (row >= of.first)
                raw_from_gmem(s_raw + row * strip::raw_pitch + chunk * chunk_size,
                              g_chunk + (u64)row * of.g_ld, left - (int)chunk * chunk_size);
        if ((int)thread >= of.first && (int)thread < of.end)
            raw_from_gmem(s_raw + thread * strip::raw_pitch + strip::row_size,
                          g_last + thread * of.g_ld, left - strip::row_size);
    }

    DEVICE void from_gmem(u32 thread) const
    {
        if (of.end <= of.first)
            return;
        if (comes_as_run())
            run_from_gmem(thread);
        else
            rows_from_gmem(thread);
    }

    /* Where a row's first element is. */
    DEVICE u32 s_row(u32 row) const
    {
        u32 before = (u32)of.g_first % chunk_size, ld = (u32)of.g_ld;

        return comes_as_run() ? s_raw + before + row * ld
                        : s_raw + row * strip::raw_pitch + (before + row * ld) % chunk_size;
    }

    /* Eight neighbours along K: by words, of which four take one shift each. Two aligned chunks
     * would take thirteen selections more, and here instructions are what counts. */
    DEVICE void regs_from_smem(u32 (&r)[4], u32 s_row, int k) const
    {
        u32 s_first = s_row + (u32)k * cfg::input_size, s_word = s_first & ~3u, words[5];
        int left = of.depth - k;

#pragma unroll
        for (int w = 0; w < 5; w++)
            words[w] = ld_shared_u32(s_word + w * 4);
#pragma unroll
        for (int w = 0; w < 4; w++)
            r[w] = shf_r_wrap(words[w], words[w + 1], s_first * 8);
        if (left < chunk_elements)
            chunk_cut(r, left);
    }
};

template <> struct strip_raw<false> {
    static constexpr u32 chunks = strip::panel_rows / chunk_elements + 1;
    static constexpr u32 pitch = chunks * chunk_size;
    static constexpr int items = cfg::tile_k * chunks;

    static_assert(cfg::tile_k * pitch <= strip::raw_size, "they fit");

    strip_part of;
    u32 s_raw;

    /* Those chunks of a row of the matrix that hold an index that exists. */
    DEVICE void from_gmem(u32 thread) const
    {
        if (of.end <= of.first)
            return;
#pragma unroll 1
        for (u32 item = thread; item < items; item += cfg::threads) {
            u32 k = item / chunks, chunk = item % chunks;
            u64 g_row = of.g_first + k * of.g_ld;
            u64 g_chunk = g_row - g_row % chunk_size + chunk * chunk_size;

            if ((int)k < of.depth && g_chunk + chunk_size > g_row + (u32)of.first * cfg::input_size &&
                g_chunk < g_row + (u32)of.end * cfg::input_size)
                cp_async_cg_16(s_raw + k * pitch + chunk * chunk_size, g_chunk, chunk_size);
        }
    }

    /* Where an index's element of the first K would be, if all rows began with a chunk. */
    DEVICE u32 s_row(u32 row) const
    {
        return s_raw + row * cfg::input_size;
    }

    DEVICE u32 element(u32 s_row, int k) const
    {
        u32 skipped = ((u32)of.g_first + (u32)k * (u32)of.g_ld) % chunk_size;

        return k < of.depth ? ld_shared_u16(s_row + (u32)k * pitch + skipped) : 0;
    }

    DEVICE void regs_from_smem(u32 (&r)[4], u32 s_row, int k) const
    {
#pragma unroll
        for (int w = 0; w < 4; w++)
            r[w] = element(s_row, k + w * 2) | element(s_row, k + w * 2 + 1) << 16;
    }
};

/* Of B's raw rows to the panel. A thread has what lane t of a quad multiplies, a quad a row: rows
 * lie a multiple of banks apart where K is one, and only eight of them are read at once. */
DEVICE void panel_from_raw(u32 s_base, const strip_raw<cfg::trans_b> &raw, u32 thread)
{
    u32 t = thread % 4;

#pragma unroll
    for (u32 pass = 0; pass < strip::panel_rows * 4 / cfg::threads; pass++) {
        u32 row = thread / 4 + pass * cfg::threads / 4;
        u32 s_row = raw.s_row(row), s_word = strip::panel_chunk(s_base, row, 0) + t * 4;

#pragma unroll 1
        for (int k = (int)t * chunk_elements; k - (int)t * chunk_elements < raw.of.depth;
             k += strip::block_k, s_word ^= 4 * chunk_size) {
            u32 r[4];

            raw.regs_from_smem(r, s_row, k);
#pragma unroll
            for (int i = 0; i < 4; i++)
                st_shared_u32(s_word ^ i * chunk_size, r[i]);
        }
    }
}

/* The K tiles of a unit, one after the other. */
struct strip_loader {
    u64 g_a, g_b;      /* of each part's first index, if it existed, at this K */
    int rows, columns; /* of the parts: up to D's end */
    int first_column;  /* of B's part, whose first eight are not there in D's first tile */
    int left;          /* of K */
    u32 turn;          /* of A's two places */

    DEVICE strip_loader() : turn(1)
    {
    }

    DEVICE void open(const gemmd_job &job, const raster::place &at)
    {
        i64 col = at.col - chunk_elements;
        i64 first_a = at.item * job.stride_a + at.row * (cfg::trans_a ? 1 : job.lda);
        i64 first_b = at.item * job.stride_b + col * (cfg::trans_b ? job.ldb : 1);

        g_a = job.a + (u64)(first_a * cfg::input_size);
        g_b = job.b + (u64)(first_b * cfg::input_size);
        rows = extent_in(job.m - at.row, strip::panel_rows);
        columns = extent_in(job.n - col, strip::panel_rows);
        first_column = at.col == 0 ? chunk_elements : 0;
        left = job.alpha != 0 ? (int)job.k : 0;
    }

    /* K of this tile; 0: there is nothing to multiply. */
    DEVICE int depth() const
    {
        return min_of(left, cfg::tile_k);
    }

    DEVICE strip_raw<!cfg::trans_a> a(const gemmd_job &job, u32 s_base) const
    {
        return {{g_a, (u64)job.lda * cfg::input_size, 0, rows, depth()}, strip::raw_a(s_base, turn)};
    }

    DEVICE strip_raw<cfg::trans_b> b(const gemmd_job &job, u32 s_base) const
    {
        return {{g_b, (u64)job.ldb * cfg::input_size, first_column, columns, depth()},
                strip::raw_b(s_base)};
    }

    DEVICE void raw_from_gmem(const gemmd_job &job, u32 s_base, u32 thread)
    {
        turn ^= 1;
        if (left > 0) {
            a(job, s_base).from_gmem(thread);
            b(job, s_base).from_gmem(thread);
        }
        cp_async_commit_group();
    }

    /* On to the next K tile; whether there is one. */
    DEVICE bool advance(const gemmd_job &job)
    {
        u64 step = cfg::tile_k * cfg::input_size;

        g_a += cfg::trans_a ? step * (u64)job.lda : step;
        g_b += cfg::trans_b ? step : step * (u64)job.ldb;
        left -= cfg::tile_k;
        return left > 0;
    }
};
