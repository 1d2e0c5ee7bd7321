/*
 * Both operands of entry/gemm_stream.cu, from global to shared memory (tile/stream.cuh).
 *
 * Rows come by aligned chunks, several steps ahead, and are shifted by nobody: columns are, which
 * are few. Of the first chunk of a row some elements are not the row's, and may be anything; what
 * multiplies by them is zero, but NaN is not, so they are cleared. Of its last chunk what lies
 * beyond the row is not read.
 */
#pragma once

#include "abi/job.h"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "sched/raster.cuh"
#include "tile/chunk.cuh"
#include "tile/stream.cuh"

/* Steps of K, counted from the chunk in which a row begins; those of a split. */
struct step_span {
    int first, count;
};

/* A row has K + 7 elements at most from its first chunk on, wherever it begins. */
DEVICE step_span steps_of(const gemmd_job &job, u32 split, u32 splits)
{
    int k = job.alpha != 0 ? (int)job.k : 0;
    u32 all = k > 0 ? ((u32)k + stream::chunk - 1 + cfg::tile_k - 1) / cfg::tile_k : 0;
    u32 each = all / splits, more = all - each * splits; /* splits that have one more */

    return {(int)(split * each + (split < more ? split : more)), (int)(each + (split < more))};
}

/* A thread's chunks of the operand that has many rows. */
struct row_stream {
    u64 g_next; /* of its first row */
    u64 g_step; /* bytes, to its next row */
    u32 s_first;
    u32 skipped; /* elements of a first chunk that are not the row's */
    u32 stage;
    int rows; /* that the matrix has */
    int left; /* elements of a row from the next chunk on */

    DEVICE
    row_stream(const gemmd_job &job, const raster::place &at, int step, u32 s_base, u32 thread)
        : s_first(stream::chunk_of(s_base, 0, thread)), stage(0)
    {
        i64 ld = cfg::is_swapped ? job.ldb : job.lda;
        u64 g_item = cfg::is_swapped ? job.b + (u64)(at.item * job.stride_b * 2)
                                     : job.a + (u64)(at.item * job.stride_a * 2);
        int row = stream::row_of(thread / 32, 0, (int)(thread % 32 / 4));
        int in_tile = extent_in((cfg::is_swapped ? job.n : job.m) - at.row, cfg::tile_m) - row;
        i64 next = (i64)step * cfg::tile_k + thread % 4 * stream::chunk;
        u64 g_row = g_item + (u64)((at.row + row) * ld * 2);

        skipped = (u32)(g_row & 15) / 2;
        g_next = g_row - skipped * 2 + (u64)(next * 2);
        g_step = (u64)(ld * (stream::classes * 8 * 2));
        rows = in_tile > 0 ? (in_tile + stream::classes * 8 - 1) / (stream::classes * 8) : 0;
        left = (int)(job.k + skipped - next);
    }

    DEVICE u32 s_chunks() const
    {
        return s_first + stage * stream::stage_size;
    }

    /* The next step's, to the ring's next place. A group for every step, and empty ones behind the
     * last (`is_there`): the wait counts groups. */
    DEVICE void smem_from_gmem(bool is_there)
    {
        if (is_there) {
            u32 bytes = (u32)extent_in(left, stream::chunk) * 2;
            u64 g_chunk = g_next;

#pragma unroll
            for (int i = 0; i < stream::row_blocks; i++, g_chunk += g_step)
                cp_async_cg_16(s_chunks() + i * stream::chunk_step, g_chunk, i < rows ? bytes : 0);
        }
        cp_async_commit_group();
        g_next += cfg::tile_k * 2;
        left -= cfg::tile_k;
        advance();
    }

    DEVICE void advance()
    {
        stage = stage + 1 < cfg::stages ? stage + 1 : 0;
    }

    /* Of the first chunks of rows, which have come. */
    DEVICE void clear_skipped() const
    {
#pragma unroll 1
        for (int i = 0; i < stream::row_blocks; i++) {
            u32 s_chunk = s_chunks() + i * stream::chunk_step, r[4];

            ld_shared_v4_u32(r, s_chunk);
            chunk_keep(r, (int)skipped, stream::chunk);
            st_shared_v4_u32(s_chunk, r);
        }
    }
};

/* The columns of the other operand, by all threads. */
struct column_panel {
    static constexpr int chunks_at_once = 3, elements_at_once = 8;

    u64 g_first; /* of the tile's first column */
    i64 ld;
    int k, columns;
    u32 thread;

    DEVICE column_panel(const gemmd_job &job, const raster::place &at, u32 in_thread)
        : ld(cfg::is_swapped ? job.lda : job.ldb), k((int)job.k), thread(in_thread)
    {
        u64 g_item = cfg::is_swapped ? job.a + (u64)(at.item * job.stride_a * 2)
                                     : job.b + (u64)(at.item * job.stride_b * 2);

        g_first = g_item + (u64)(at.col * (cfg::trans_b ? ld : 1) * 2);
        columns = extent_in((cfg::is_swapped ? job.m : job.n) - at.col, cfg::tile_n);
    }

    /* The slice that begins with element `begin`, and what lies before it; zeros where there is no
     * such element. */
    DEVICE void smem_from_gmem(u32 s_panel, int begin) const
    {
        if constexpr (cfg::trans_b)
            smem_from_rows(s_panel, begin - stream::chunk);
        else
            smem_from_elements(s_panel, begin - stream::chunk);
    }

    /* Eight elements, to both copies. In the second they begin within a word. */
    DEVICE static void smem_from_regs(u32 s_panel, u32 column, u32 chunk, const u32 (&r)[4])
    {
        u32 s_chunk = stream::column_of(s_panel, column) + chunk * 16;
        u32 s_further = s_chunk + stream::copy_size;

#pragma unroll
        for (int w = 0; w < 4; w++)
            st_shared_u32(s_chunk + w * 4, r[w]);
        if (chunk > 0)
            st_shared_u16(s_further - 2, (u16)r[0]);
#pragma unroll
        for (int w = 0; w < 3; w++)
            st_shared_u32(s_further + w * 4, shf_r_wrap(r[w], r[w + 1], 16));
        st_shared_u16(s_further + 12, (u16)(r[3] >> 16));
    }

    /* first: element, from -8 on. */
    DEVICE void smem_from_rows(u32 s_panel, int first) const
    {
        constexpr u32 step = cfg::threads, each = stream::panel_chunks;
        u32 count = (u32)columns * each;

#pragma unroll 1
        for (u32 task = thread; task < count; task += chunks_at_once * step) {
            chunk_pair r_pair[chunks_at_once];

#pragma unroll
            for (u32 i = 0; i < chunks_at_once; i++) {
                u32 column = (task + i * step) / each, chunk = (task + i * step) % each;
                u64 g_row = g_first + (u64)(column * ld * 2);
                i64 element = first + (int)chunk * stream::chunk;

                if (task + i * step < count)
                    r_pair[i].regs_from_gmem(g_row + (u64)(element * 2), g_row, g_row + (u64)k * 2);
            }
#pragma unroll
            for (u32 i = 0; i < chunks_at_once; i++) {
                u32 column = (task + i * step) / each, chunk = (task + i * step) % each, r[4];
                int element = first + (int)chunk * stream::chunk;

                if (task + i * step >= count)
                    break;
                r_pair[i].take(r);
                chunk_keep(r, -element, k - element);
                smem_from_regs(s_panel, column, chunk, r);
            }
        }
    }

    /* Neighbours beside each other, along the columns that there are. */
    DEVICE void smem_from_elements(u32 s_panel, int first) const
    {
        u32 shift = columns <= 8 ? 3 : columns <= 16 ? 4 : columns <= 32 ? 5 : 6;
        u32 column = thread & ((1u << shift) - 1);
        int step = cfg::threads >> shift;
        u32 s_column = stream::column_of(s_panel, column);
        u64 g_column = g_first + column * 2;

        if ((int)column >= columns)
            return;
#pragma unroll 1
        for (int at = (int)(thread >> shift); at < stream::panel_depth;
             at += elements_at_once * step) {
            u16 r[elements_at_once];

#pragma unroll
            for (int i = 0; i < elements_at_once; i++) {
                int element = first + at + i * step;

                r[i] = 0;
                if (element >= 0 && element < k && at + i * step < stream::panel_depth)
                    r[i] = ld_global_u16(g_column + (u64)(element * ld * 2));
            }
#pragma unroll
            for (int i = 0; i < elements_at_once; i++) {
                u32 s_element = s_column + (u32)(at + i * step) * 2;

                if (at + i * step >= stream::panel_depth)
                    break;
                st_shared_u16(s_element, r[i]);
                if (at + i * step > 0)
                    st_shared_u16(s_element + stream::copy_size - 2, r[i]);
            }
        }
    }
};
