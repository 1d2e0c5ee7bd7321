/*
 * The way out of plain products in 16 bits of 128 x 256 tiles: beside the next tile's products.
 *
 * When a tile's last products have ended, its sums are rounded at once. Half of the columns goes to
 * the buffers of store_tma.cuh, the other half stays in a quarter of the sums' registers. So the
 * next products can begin, and both halves leave beside those of the first sixteen K tiles, two rows
 * of a warp with each: all CTAs store at the same time, and what the L2 cannot take at once would
 * keep warps from issuing products. Stored beside one K tile, D makes that take three times as long
 * (tests/bench/results/20261130-nvidia-h200-kernels-large-3.txt). To hold all of the tile in
 * registers takes more than there are.
 *
 * Nothing here waits for anybody: a warp writes 16 rows of the buffers, and reads them back by
 * itself as whole chunks.
 */
#pragma once

#include "epi/store_tma.cuh"
#include "ptx/stmatrix.cuh"

/* The second half of a tile that has not left yet. */
struct late_tile {
    static constexpr int half_cols = cfg::tile_n / 2;

    u32 rest[half_cols / 4];

    DEVICE late_tile()
    {
#pragma unroll
        for (int i = 0; i < half_cols / 4; i++)
            rest[i] = 0;
    }
};

struct late_writer {
    static constexpr int row_chunks = late_tile::half_cols / out_chunk; /* of half a tile */
    static constexpr int rows_at_once = 32 / row_chunks;                /* a chunk for each lane */
    static constexpr int half_steps = 16 / rows_at_once, steps = 2 * half_steps;
    static constexpr int burst = 4; /* steps at once, when no products are waited for */

    u32 s_buffers;  /* the group's two */
    u32 warp, lane; /* in the group */

    DEVICE u32 s_chunk(u32 row, u32 chunk) const
    {
        return s_buffers + chunk / 8 * smem::buffer_size + swizzled_offset(row, chunk % 8);
    }

    /* By the warp, as all that follows. Half a tile, by pairs as they lie in the accumulators: 16
     * rows x 16 columns a time. */
    DEVICE void buffers_from_pairs(const u32 *r_pairs) const
    {
        u32 row = warp * 16 + (lane & 15);

        bar_warp_sync(0xffffffffu);
#pragma unroll
        for (int piece = 0; piece < row_chunks; piece += 2) {
            const u32 *r = r_pairs + piece * 2;
            u32 r_d[4] = {r[0], r[1], r[2], r[3]};

            stmatrix_x4(s_chunk(row, piece + (lane >> 4)), r_d);
        }
        bar_warp_sync(0xffffffffu);
    }

    /* The first half to the buffers, the second to registers. */
    DEVICE void take(late_tile &late, group_tile &tile, const epilogue &op) const
    {
        const float *r_first = tile.accum[0], *r_second = r_first + late_tile::half_cols / 2;
        u32 first[late_tile::half_cols / 4];

        if (op.alpha != 1)
            scale(tile, op);
#pragma unroll
        for (int i = 0; i < late_tile::half_cols / 4; i++)
            first[i] = pack_pair(r_first[i * 2], r_first[i * 2 + 1]);
        buffers_from_pairs(first);
#pragma unroll
        for (int i = 0; i < late_tile::half_cols / 4; i++)
            late.rest[i] = pack_pair(r_second[i * 2], r_second[i * 2 + 1]);
    }

    /* Before step half_steps. */
    DEVICE void turn_over(const late_tile &late) const
    {
        buffers_from_pairs(late.rest);
    }

    /* The rows of COUNT steps of one half, unless there is no tile yet. */
    template <int COUNT>
    DEVICE void gmem_from_buffers(const out_place &to, int step, bool is_there) const
    {
        u32 chunk = lane % row_chunks;
        u32 row = warp * 16 + step % half_steps * rows_at_once + lane / row_chunks;
        int col = step / half_steps * late_tile::half_cols + (int)chunk * out_chunk;
        i64 in_d = to.item * to.job.stride_d + (to.row + (int)row) * to.job.ldd + to.col + col;
        int rows_left = (int)to.job.m - to.row - (int)row;
        u64 pitch = (u64)to.job.ldd * rows_at_once * cfg::output_size;
        u32 r[COUNT][4];

#pragma unroll
        for (int i = 0; i < COUNT; i++)
            ld_shared_v4_u32(r[i], s_chunk(row + i * rows_at_once, chunk));
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            st_global_cs_v4_u32_if(is_there && rows_left > i * rows_at_once &&
                                       to.cols_left(col) > 0,
                                   element_address(to.job.d, in_d) + i * pitch, r[i]);
    }

    DEVICE static void scale(group_tile &tile, const epilogue &op)
    {
#pragma unroll
        for (int i = 0; i < cfg::tile_n / 2; i++)
            tile.accum[0][i] = op.plain(tile.accum[0][i]);
    }
};
