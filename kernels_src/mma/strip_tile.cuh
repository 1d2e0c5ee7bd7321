/*
 * A warp's part of a tile by mma.sync m16n8k16: sixteen rows eight apart, and columns that begin
 * where D's aligned chunks do (tile/strip_map.cuh).
 */
#pragma once

#include "load/strip_raw.cuh"
#include "mma/product_16.cuh"
#include "ptx/ldmatrix.cuh"
#include "tile/strip_map.cuh"

struct strip_tile {
    float accum[strip::blocks][4]; /* as mma.sync leaves them */
    u32 warp, lane;
    u32 beyond; /* elements of the chunk that D's first column lies behind its start */
    int count;  /* blocks that D has something of */

    /* columns: of D, from the tile's first one on. */
    DEVICE strip_tile(u32 in_beyond, int columns, u32 thread)
        : warp(thread / 32), lane(thread % 32), beyond(in_beyond),
          count((columns + (int)in_beyond + chunk_elements - 1) / chunk_elements)
    {
#pragma unroll
        for (int i = 0; i < strip::blocks; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                accum[i][j] = 0;
    }

    /* Of 32 K, two products for each block of columns. */
    DEVICE void accum_from_regs(u32 s_matrix, const u32 (&r_low)[4], const u32 (&r_high)[4])
    {
        u32 r_first[4] = {r_low[0], r_high[0], r_low[1], r_high[1]};
        u32 r_second[4] = {r_low[2], r_high[2], r_low[3], r_high[3]};
        constexpr int at_once = strip::blocks_at_once;

#pragma unroll
        for (int block = 0; block < strip::blocks; block += at_once) {
            u32 r_b[at_once][4];

            if (block >= count)
                break;
#pragma unroll
            for (int i = 0; i < at_once; i++)
                ldmatrix_x4(r_b[i], s_matrix + (block + i) * 8 * strip::row_size);
#pragma unroll
            for (int i = 0; i < at_once; i++)
                accum_from_product_16(accum[block + i], r_first, r_b[i][0], r_b[i][1]);
#pragma unroll
            for (int i = 0; i < at_once; i++)
                accum_from_product_16(accum[block + i], r_second, r_b[i][2], r_b[i][3]);
        }
    }

    /* A's rows are `warp`, eight on, and so forth: lane / 4 and eight lines on of those. */
    DEVICE void accum_from_smem(u32 s_base, const strip_raw<!cfg::trans_a> &raw)
    {
        u32 row = warp + lane / 4 * strip::classes;
        u32 s_low = raw.s_row(row), s_high = raw.s_row(row + 8 * strip::classes);
        u32 place = chunk_elements - beyond + lane % 8;

#pragma unroll 1
        for (int block = 0; block * strip::block_k < raw.of.depth; block++) {
            int k = block * strip::block_k + (int)(lane % 4) * chunk_elements;
            u32 r_low[4], r_high[4];

            raw.regs_from_smem(r_low, s_low, k);
            raw.regs_from_smem(r_high, s_high, k);
            accum_from_regs(strip::panel_chunk(s_base, place, block * 4 + lane / 8), r_low, r_high);
        }
    }
};
