/*
 * A chunk of D, eight elements of 16 bits in 16 aligned bytes, by one thread.
 */
#pragma once

#include "epi/ops.cuh"
#include "epi/quad.cuh"
#include "sched/raster.cuh"
#include "tile/panels.cuh"

static_assert(cfg::output_size * panels::chunk == 16, "chunks of 16 bits");

/* How far the tile's first column lies behind a chunk's start, in every eighth row from `row` on. */
DEVICE u32 elements_beyond(const gemmd_job &job, const raster::place &at, u32 row)
{
    i64 first = at.item * job.stride_d + (at.row + row) * job.ldd + at.col;

    return (u32)element_address(job.d, first) % 16 / cfg::output_size;
}

DEVICE void regs_from_plain(u32 (&r)[4], const epilogue &op, const float (&accum)[panels::chunk])
{
#pragma unroll
    for (int w = 0; w < 4; w++)
        r[w] = pack_pair(op.plain(accum[w * 2]), op.plain(accum[w * 2 + 1]));
}

/* Of a chunk at an end, those that are D's: a bit for each. */
DEVICE void gmem_from_part(u64 g_first, const u32 (&r)[4], u32 wanted)
{
#pragma unroll
    for (int i = 0; i < panels::chunk; i++)
        if (wanted >> i & 1)
            st_global_u16(element_address(g_first, i), (u16)(r[i / 2] >> i % 2 * 16));
}
