/*
 * Parts of sums of entry/gemm_stream.cu: to the workspace, and, by the kernel behind it, from there
 * to D.
 *
 * A place holds chunks of 8 rows x 16 columns as mma.sync leaves them in registers, 16 bytes of
 * each lane side by side: a quad of sums. Whoever adds has quads, too: of few splits one for each
 * lane, of many one for some lanes of a warp, each of which adds a share of the splits in the order
 * of their numbers, and then the shares by pairs. How many lanes follows from the splits alone, so
 * the bits depend on nothing else.
 */
#pragma once

#include "epi/ops.cuh"
#include "mma/stream.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "sched/job_feed.cuh"

namespace part
{

constexpr u32 chunk_size = 32 * 16;
constexpr u32 warp_chunks = stream::row_blocks * stream::column_blocks;
constexpr u32 size = stream::classes * warp_chunks * chunk_size;

static_assert(size == cfg::tile_m * cfg::tile_n * 4, "what the plan counts for a split of a tile");

/* unit: of those that the job has here. */
DEVICE u64 g_part(const gemmd_job &job, u32 unit, u32 splits, u32 split)
{
    return job.workspace + GEMMD_SPLIT_COUNTERS * 4 + ((u64)unit * splits + split) * size;
}

/* Of a place. */
DEVICE u32 quad_of(u32 warp, int block, int column_block, u32 lane)
{
    u32 number = warp * warp_chunks + block * stream::column_blocks + column_block;

    return number * chunk_size + lane * 16;
}

/* rows, columns: that the tile has. */
DEVICE void
gmem_from_accum(u64 g_to, const stream_tile &tile, u32 warp, u32 lane, int rows, int columns)
{
    u64 policy = createpolicy_evict_last();

#pragma unroll
    for (int i = 0; i < stream::row_blocks; i++)
#pragma unroll
        for (int j = 0; j < stream::column_blocks; j++)
            if (stream::row_of(warp, i, 0) < rows && j * 16 + (int)lane / 4 < columns) {
                const float *r = tile.accum[i][j];

                st_global_hint_v4_f32(g_to + quad_of(warp, i, j, lane), r[0], r[1], r[2], r[3],
                                      policy);
            }
}

/* What the kernel behind the product's does. */
struct sum {
    static constexpr u32 warps = GEMMD_SUM_THREADS / 32;
    static constexpr u32 splits_at_once = 8; /* quads under way */

    const gemmd_job &job;
    u32 lane, splits, units;
    u32 together; /* lanes that share a quad, 1 to 32 */
    u32 blocks;   /* of sixteen columns, in any tile */
    raster::extent size_in_units;

    DEVICE sum(const gemmd_job &in_job, u32 thread)
        : job(in_job), lane(thread % 32), splits((u32)max_of((int)in_job.splits, 1)), together(1),
          size_in_units(raster::extent_of(in_job))
    {
        i64 columns = cfg::is_swapped ? job.m : job.n;
        u32 left = raster::units(job, size_in_units) - (u32)job.first_tile;

        units = job.tile_count != 0 ? (u32)job.tile_count : left;
        blocks = ((u32)extent_in(columns, cfg::tile_n) + 15) / 16;
        while (together < 32 && together * splits_at_once < splits)
            together *= 2;
    }

    /* This lane's share of a quad; g_quad: of the first split. */
    DEVICE void add_share(float (&r_sum)[4], u64 g_quad, u32 share) const
    {
        u32 first = share * splits / together, end = (share + 1) * splits / together;

        g_quad += (u64)first * size;
#pragma unroll 1
        for (int left = (int)(end - first); left > 0; left -= (int)splits_at_once) {
            float r[splits_at_once][4];

#pragma unroll
            for (int i = 0; i < (int)splits_at_once; i++, g_quad += size)
                if (i < left)
                    ld_global_v4_f32(r[i], g_quad);
#pragma unroll
            for (int i = 0; i < (int)splits_at_once; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (i < left)
                        r_sum[e] += r[i][e];
        }
    }

    DEVICE void add_shares(float (&r_sum)[4]) const
    {
#pragma unroll 1
        for (u32 mask = 32 / together; mask < 32; mask *= 2)
#pragma unroll
            for (int e = 0; e < 4; e++)
                r_sum[e] += __uint_as_float(shfl_sync_bfly(__float_as_uint(r_sum[e]), mask));
    }

    /* row, col: the first of the quad's, in the kernel's D. A loop, and sums move up, since
     * registers have no index. */
    DEVICE void gmem_from_sums(float (&r_sum)[4], i64 item, i64 row, i64 col) const
    {
        epilogue out(job, item);

#pragma unroll 1
        for (int e = 0; e < 4; e++) {
            i64 in_row = row + e % 2 * stream::classes, in_col = col + e / 2 * 8;
            i64 d_row = cfg::is_swapped ? in_col : in_row;
            i64 d_col = cfg::is_swapped ? in_row : in_col;

            if (d_row < job.m && d_col < job.n)
                out.gmem_from_accum(r_sum[0], d_row, d_col);
#pragma unroll
            for (int next = 1; next < 4; next++)
                r_sum[next - 1] = r_sum[next];
        }
    }

    /* As many quads as a warp has at once, from the one with this number on: of one chunk. */
    DEVICE void take(u32 number) const
    {
        constexpr u32 tile_chunks = stream::classes * stream::row_blocks;
        u32 quad = number + lane % (32 / together), share = lane / (32 / together);
        u32 chunk = quad / 32, of_lane = quad % 32;
        u32 in_column = chunk % tile_chunks, warp = in_column % stream::classes;
        u32 column_block = chunk / tile_chunks % blocks, unit = chunk / tile_chunks / blocks;
        int block = (int)(in_column / stream::classes);
        raster::place at =
            raster::place_of(size_in_units, (raster::number)job.first_tile + unit, job);
        i64 row = at.row + stream::row_of(warp, block, (int)(of_lane % 4 * 2));
        i64 col = at.col + column_block * 16 + of_lane / 4;
        bool is_there = row < (cfg::is_swapped ? job.n : job.m) &&
                        col < (cfg::is_swapped ? job.m : job.n);
        float r_sum[4] = {0, 0, 0, 0};

        if (is_there)
            add_share(r_sum,
                      g_part(job, unit, splits, 0) +
                          quad_of(warp, block, (int)column_block, of_lane),
                      share);
        add_shares(r_sum);
        if (is_there && share == 0)
            gmem_from_sums(r_sum, at.item, row, col);
    }

    DEVICE void run(u32 cta, u32 ctas, u32 warp) const
    {
        u32 count = units * blocks * (stream::classes * stream::row_blocks * 32);
        u32 at_once = 32 / together;

#pragma unroll 1
        for (u32 number = (cta * warps + warp) * at_once; number < count;
             number += ctas * warps * at_once)
            take(number);
    }
};

} // namespace part
