/*
 * A tile of entry/gemm_outer.cu to D: whole aligned chunks by the threads that have them, elements
 * at the two ends of a row. What takes more than a factor goes by elements all of it, through
 * shared memory that the warp has to itself.
 */
#pragma once

#include "epi/chunk.cuh"
#include "epi/ops.cuh"
#include "mma/outer.cuh"
#include "ptx/sync.cuh"
#include "ptx/warp.cuh"
#include "sched/raster.cuh"

struct chunk_writer {
    epilogue op;
    const outer_tile &tile;
    u32 s_slab;
    i64 row, col; /* of the thread's first element in its item; the column may lie before D */
    i64 end;      /* column behind the tile's last one */

    DEVICE
    chunk_writer(const gemmd_job &job, const raster::place &at, const outer_tile &of, u32 s_base)
        : op(job, at.item), tile(of), s_slab(panels::slab_of_warp(s_base, of.warp)),
          row(at.row + of.first_row()), col(at.col + of.col())
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
        int first = extent_in(-col, panels::chunk), behind = extent_in(end - col, panels::chunk);

#pragma unroll
        for (int i = 0; i < panels::rows; i++) {
            u32 r[4];

            if (i >= tile.rows)
                break;
            regs_from_plain(r, op, tile.accum[i]);
            if (is_whole)
                st_global_v4_u32(g_first, r);
            else if (behind > first)
                gmem_from_part(g_first, r, first, behind);
            g_first += g_step;
        }
    }

    /* A row of each of the warp's sets, lane after lane. */
    DEVICE void gmem_from_slab(int number) const
    {
        i64 first_col = col - (i64)tile.lane * panels::chunk;
        i64 first_row = row + ((i64)number - (i64)tile.set * panels::rows) * panels::classes;

#pragma unroll 1
        for (u32 i = threadIdx.x % 32; i < 32 * panels::chunk; i += 32) {
            u32 set = i / (panels::lanes * panels::chunk);
            float r[1] = {ld_shared_f32(s_slab + i * 4)}, r_c[1];
            i64 of_row = first_row + set * (panels::rows * panels::classes);
            i64 of_col = first_col + i % (panels::lanes * panels::chunk);

            if (of_row >= op.job.m || of_col < 0 || of_col >= end)
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
        int most = min_of((int)shfl_sync_idx((u32)tile.rows, 0), panels::rows); /* the first set's */

#pragma unroll 1
        for (int i = 0; i < most; i++) {
#pragma unroll
            for (int j = 0; j < panels::chunk; j++) {
                float r = tile.accum[0][j];

#pragma unroll
                for (int other = 1; other < panels::rows; other++)
                    r = i == other ? tile.accum[other][j] : r;
                st_shared_f32(s_slab + (threadIdx.x % 32 * panels::chunk + j) * 4, r);
            }
            bar_warp_sync(0xffffffff);
            gmem_from_slab(i);
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
