/*
 * A tile of entry/gemm_outer.cu to D: whole aligned chunks by the threads that have them, elements
 * at the two ends of a row. What takes more than a factor goes by elements all of it, through
 * shared memory that the warp has to itself.
 */
#pragma once

#include "epi/ops.cuh"
#include "epi/quad.cuh"
#include "mma/outer.cuh"
#include "ptx/sync.cuh"
#include "sched/raster.cuh"

static_assert(cfg::output_size * panels::chunk == 16, "chunks of 16 bits");

/* How far the tile's first column lies behind a chunk's start, in a warp's rows. */
DEVICE u32 elements_beyond(const gemmd_job &job, const raster::place &at, u32 warp)
{
    i64 first = at.item * job.stride_d + (at.row + warp) * job.ldd + at.col;

    return (u32)element_address(job.d, first) % 16 / cfg::output_size;
}

struct chunk_writer {
    epilogue op;
    const outer_tile &tile;
    u32 s_slab;
    i64 row, col; /* of the thread's first element in its item; the column may lie before D */
    i64 end;      /* column behind the tile's last one */

    DEVICE
    chunk_writer(const gemmd_job &job, const raster::place &at, const outer_tile &of, u32 s_base)
        : op(job, at.item), tile(of), s_slab(panels::slab_of_warp(s_base, of.warp)),
          row(at.row + of.warp), col(at.col + of.col())
    {
        bool is_last = at.col + cfg::tile_n >= job.n;

        /* Up to a chunk's start, or to D's end. */
        end = is_last ? job.n : at.col + cfg::tile_n - of.beyond;
    }

    DEVICE u64 g_row_of_d(i64 of_row) const
    {
        return element_address(op.job.d, op.item * op.job.stride_d + of_row * op.job.ldd);
    }

    DEVICE void gmem_from_plain() const
    {
        u64 g_first = element_address(g_row_of_d(row), col);
        u64 g_step = element_address(0, panels::classes * op.job.ldd);
        bool is_whole = col >= 0 && col + panels::chunk <= end;
        u32 wanted = is_whole ? 0 : elements_wanted();

#pragma unroll
        for (int i = 0; i < panels::rows; i++) {
            u32 r[4];

            if (i >= tile.rows)
                break;
#pragma unroll
            for (int w = 0; w < 4; w++)
                r[w] = pack_pair(op.plain(tile.accum[i][w * 2]),
                                 op.plain(tile.accum[i][w * 2 + 1]));
            if (is_whole)
                st_global_v4_u32(g_first, r);
            if (wanted != 0)
                gmem_from_part(g_first, r, wanted);
            g_first += g_step;
        }
    }

    /* Of a chunk at an end of a row, those that are the row's: a bit for each. */
    DEVICE u32 elements_wanted() const
    {
        int first = (int)(col < 0 ? -col : 0), behind = extent_in(end - col, panels::chunk);

        return ((1u << behind) - 1) >> first << first;
    }

    DEVICE static void gmem_from_part(u64 g_first, const u32 (&r)[4], u32 wanted)
    {
#pragma unroll
        for (int i = 0; i < panels::chunk; i++)
            if (wanted >> i & 1)
                st_global_u16(element_address(g_first, i), (u16)(r[i / 2] >> i % 2 * 16));
    }

    /* A row of the warp's: lane after lane. */
    DEVICE void gmem_from_slab(i64 of_row) const
    {
        i64 first = col - (i64)tile.lane * panels::chunk; /* of the slab */

#pragma unroll 1
        for (u32 i = tile.lane; i < panels::lanes * panels::chunk; i += 32) {
            float r[1] = {ld_shared_f32(s_slab + i * 4)}, r_c[1];
            i64 of_col = first + i;

            if (of_col < 0 || of_col >= end)
                continue;
            if (op.reads_c)
                r_c[0] = reg_from_gmem(element_address(
                    op.job.c, op.item * op.job.stride_c + of_row * op.job.ldc + of_col));
            op.apply(r, r_c, of_row, of_col);
            gmem_from_reg(element_address(g_row_of_d(of_row), of_col), r[0]);
        }
    }

    /* What is done to an element is long, and stands here once. */
    DEVICE void gmem_from_any() const
    {
#pragma unroll 1
        for (int i = 0; i < tile.rows; i++) {
#pragma unroll
            for (int j = 0; j < panels::chunk; j++) {
                float r = tile.accum[0][j];

#pragma unroll
                for (int other = 1; other < panels::rows; other++)
                    r = i == other ? tile.accum[other][j] : r;
                st_shared_f32(s_slab + (tile.lane * panels::chunk + j) * 4, r);
            }
            bar_warp_sync(0xffffffff);
            gmem_from_slab(row + i * panels::classes);
            bar_warp_sync(0xffffffff);
        }
    }

    DEVICE void gmem_from_accum() const
    {
        if (op.is_plain())
            gmem_from_plain();
        else
            gmem_from_any();
    }
};
