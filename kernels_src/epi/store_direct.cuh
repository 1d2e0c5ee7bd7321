/*
 * The way out of plain products in 16 bits: from registers to D.
 *
 * A fragment gives a lane two neighbours of a row, and the four lanes of a quad eight: a chunk of
 * 16 bytes. Of four such chunks of a row each lane of the quad takes one, so that stores are of 16
 * bytes and of whole sectors. It is shorter than the way through shared memory, has nobody to wait
 * for and no end to wait for either; what small products gain is mostly the code they need not
 * fetch.
 */
#pragma once

#include "epi/quad.cuh"
#include "epi/store_tma.cuh"

struct direct_writer {
    u32 warp, lane; /* in the group */

    /* Two rows of the lane in a block, eight apart: of every 32 columns one chunk of each. */
    DEVICE void gmem_from_block(const float *r_accum,
                                const epilogue &op,
                                u64 g_chunk, /* the lane's first */
                                u64 pitch,   /* bytes of eight rows */
                                int rows_left,
                                int cols_left) const
    {
#pragma unroll
        for (int col = 0; col + 32 <= cfg::tile_n; col += 32)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 r[4];

#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *r_pair = r_accum + col / 2 + i * 4 + half * 2;

                    r[i] = pack_pair(op.plain(r_pair[0]), op.plain(r_pair[1]));
                }
                quad_transpose(r, lane);
                st_global_cs_v4_u32_if(rows_left > half * 8 && cols_left > col,
                                       g_chunk + half * pitch + col * cfg::output_size, r);
            }
        if constexpr (cfg::tile_n % 32 != 0)
            gmem_from_last_columns(r_accum, op, g_chunk, pitch, rows_left, cols_left);
    }

    /* Sixteen columns that are left: two chunks of both rows are a lane's share of the quad, too. */
    DEVICE void gmem_from_last_columns(const float *r_accum,
                                       const epilogue &op,
                                       u64 g_chunk,
                                       u64 pitch,
                                       int rows_left,
                                       int cols_left) const
    {
        constexpr int col = cfg::tile_n / 32 * 32;
        bool is_lower = lane & 2; /* the lane stores of the lower row what another has above */
        int back = is_lower ? 16 : 0;
        u32 r[4];

        static_assert(cfg::tile_n % 32 % 16 == 0, "two chunks");
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *r_pair = r_accum + col / 2 + i % 2 * 4 + i / 2 * 2;

            r[i] = pack_pair(op.plain(r_pair[0]), op.plain(r_pair[1]));
        }
        quad_transpose(r, lane);
        st_global_cs_v4_u32_if(rows_left > (is_lower ? 8 : 0) && cols_left > col - back,
                               g_chunk + (is_lower ? pitch : 0) +
                                   (u64)((col - back) * cfg::output_size),
                               r);
    }

    /* By whole warps. */
    DEVICE void
    gmem_from_accum(const group_tile &tile, const out_place &to, const epilogue &op) const
    {
        /* The same number, but the compiler takes it for a new one: what follows from it is then
         * not kept through the main loop, which has no register to spare. */
        u32 mine = shfl_sync_idx(warp * 32 + lane, lane);
        int row = to.row + (int)(mine / 32 * 16 + mine % 32 / 4),
            col = to.col + (int)(mine % 4 * 8);
        i64 in_d = to.item * to.job.stride_d + row * to.job.ldd + col;
        u64 pitch = (u64)to.job.ldd * 8 * cfg::output_size;

#pragma unroll
        for (int block = 0; block < group_tile::blocks; block++)
            gmem_from_block(tile.accum[block], op,
                            element_address(to.job.d, in_d) + block * 8 * pitch, pitch,
                            (int)to.job.m - row - block * block_span, (int)to.job.n - col);
    }
};
