/*
 * A tile that is one run of memory to D (mma/outer_run.cuh): whole aligned chunks, and elements
 * where D ends.
 */
#pragma once

#include "epi/chunk.cuh"
#include "epi/ops.cuh"
#include "mma/outer_run.cuh"
#include "sched/raster.cuh"

struct run_writer {
    epilogue op;
    const run_tile &tile;
    u64 g_first; /* of the thread's */

    DEVICE run_writer(const gemmd_job &job, const raster::place &at, const run_tile &of, u32)
        : op(job, at.item), tile(of),
          g_first(element_address(job.d, at.item * job.stride_d + at.row * job.ldd + of.first()))
    {
    }

    DEVICE void gmem_from_accum() const
    {
#pragma unroll
        for (int i = 0; i < panels::rows; i++) {
            int left = tile.left - i * tile.step();
            u64 g_chunk = element_address(g_first, i * tile.step());
            u32 r[4];

            if (left <= 0)
                break;
            regs_from_plain(r, op, tile.accum[i]);
            if (left >= panels::chunk)
                st_global_v4_u32(g_chunk, r);
            else
                gmem_from_part(g_chunk, r, 0, left);
        }
    }
};
