/*
 * A warp's products of entry/gemm_stream.cu: 64 rows that begin alike, all columns of the tile
 * (tile/stream.cuh), for mma.sync 16 columns times 8 rows. Which of a row's elements is which K of
 * a product follows from what lies in a lane's chunk: words 0 and 1 are its part of the first
 * product, words 2 and 3 of the second. So no register moves between its load and its products.
 */
#pragma once

#include "mma/product_16.cuh"
#include "ptx/shared.cuh"
#include "tile/stream.cuh"

/* Where a lane's words of its columns lie in a panel, for the first step of a slice. */
DEVICE u32 panel_words(u32 skipped, u32 lane)
{
    u32 is_odd = skipped & 1;
    u32 element = stream::chunk + lane % 4 * stream::chunk - skipped - is_odd;

    return stream::column_of(0, lane / 4) + is_odd * stream::copy_size + element * 2;
}

struct stream_tile {
    /* Columns g, g, g + 8, g + 8 of lane (g, t), rows 2t and 2t + 1. */
    float accum[stream::row_blocks][stream::column_blocks][4];

    DEVICE void clear()
    {
#pragma unroll
        for (int i = 0; i < stream::row_blocks; i++)
#pragma unroll
            for (int j = 0; j < stream::column_blocks; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    accum[i][j][e] = 0;
    }

    /* Of both products of a step: columns g and g + 8 of a block, a word of each in turn. */
    DEVICE static void regs_from_panel(u32 (&r)[2][4], u32 s_words, int block)
    {
        constexpr u32 eight = 2 * stream::quad_pitch * 4;
        u32 s_block = s_words + block * (2 * eight);

#pragma unroll
        for (int w = 0; w < 4; w++) {
            r[w / 2][w % 2 * 2] = ld_shared_u32(s_block + w * 4);
            r[w / 2][w % 2 * 2 + 1] = ld_shared_u32(s_block + eight + w * 4);
        }
    }

    /* One step. s_chunks: the lane's; blocks: of sixteen columns, that there are. */
    DEVICE void accum_from_smem(u32 s_chunks, u32 s_words, int blocks)
    {
        u32 r_rows[stream::row_blocks][4], r_columns[2][4];

#pragma unroll
        for (int i = 0; i < stream::row_blocks; i++)
            ld_shared_v4_u32(r_rows[i], s_chunks + i * stream::chunk_step);
#pragma unroll
        for (int j = 0; j < stream::column_blocks; j++) {
            if (j >= blocks)
                break;
            regs_from_panel(r_columns, s_words, j);
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < stream::row_blocks; i++)
                    accum_from_product_16(accum[i][j], r_columns[half], r_rows[i][half * 2],
                             r_rows[i][half * 2 + 1]);
        }
    }
};
