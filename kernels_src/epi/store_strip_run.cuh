/*
 * A tile of entry/gemm_strip.cu that is one run of memory to D: all columns, no gaps between rows.
 * By rows a narrow D is mostly ends of rows, which leave by pieces; so all warps lay their rows
 * beside each other in shared memory as they lie in D, and whole chunks leave, whoever's they are.
 *
 * Who meets whom: all threads, at barrier 0, when all of the run is there. That it has been read
 * before the next one comes, the barriers of the next K tile see to.
 */
#pragma once

#include "epi/chunk.cuh"
#include "mma/strip_tile.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/shared.cuh"
#include "ptx/sync.cuh"

struct strip_run_writer {
    epilogue op;
    u32 s_run;
    u64 g_run;
    u32 columns;
    int rows_left;

    static_assert(cfg::tile_m * cfg::tile_n * cfg::output_size <= strip::slabs_size, "it fits");

    DEVICE strip_run_writer(const gemmd_job &job, const raster::place &at, u32 s_base)
        : op(job, at.item), s_run(strip::slab_of_warp(s_base, 0)),
          g_run(element_address(job.d, at.item * job.stride_d + at.row * job.ldd)),
          columns((u32)job.n), rows_left(extent_in(job.m - at.row, cfg::tile_m))
    {
    }

    /* Two neighbours of a row, which begin where a word of D does. */
    DEVICE void smem_from_pair(u32 s_row, int col, u32 r) const
    {
        int behind = (int)columns;

        if (col >= 0 && col + 1 < behind)
            st_shared_u32(s_row + col * 2, r);
        else if (col >= 0 && col < behind)
            st_shared_u16(s_row + col * 2, (u16)r);
        else if (col == -1)
            st_shared_u16(s_row, (u16)(r >> 16));
    }

    DEVICE void smem_from_accum(const strip_tile &tile) const
    {
        u32 row = tile.warp + tile.lane / 4 * strip::classes;
        u32 s_low = s_run + row * columns * 2, s_high = s_low + 8 * strip::classes * columns * 2;
        int col = (int)(tile.lane % 4 * 2) - (int)tile.beyond;

#pragma unroll
        for (int block = 0; block < strip::blocks; block++) {
            const float *r = tile.accum[block];

            if (block * chunk_elements - (int)tile.beyond >= (int)columns)
                break;
            smem_from_pair(s_low, col + block * chunk_elements,
                           pack_pair(op.plain(r[0]), op.plain(r[1])));
            smem_from_pair(s_high, col + block * chunk_elements,
                           pack_pair(op.plain(r[2]), op.plain(r[3])));
        }
    }

    DEVICE void gmem_from_smem() const
    {
        int left = rows_left * (int)columns - (int)threadIdx.x * chunk_elements; /* elements */

#pragma unroll 2
        for (u32 i = threadIdx.x; left > 0; i += cfg::threads) {
            u64 g_chunk = g_run + i * chunk_size;
            u32 r[4];

            ld_shared_v4_u32(r, s_run + i * chunk_size);
            if (left >= chunk_elements)
                st_global_v4_u32(g_chunk, r);
            else
                gmem_from_part(g_chunk, r, 0, left);
            left -= cfg::threads * chunk_elements;
        }
    }

    DEVICE void gmem_from_accum(const strip_tile &tile) const
    {
        smem_from_accum(tile);
        bar_sync_0();
        griddepcontrol_wait(); /* the grid before may read D, or write C */
        griddepcontrol_launch_dependents();
        gmem_from_smem();
    }
};
