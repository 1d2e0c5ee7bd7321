/*
 * A thread's part of a tile: one aligned chunk of D in every eighth row (tile/panels.cuh), as sums
 * of outer products.
 */
#pragma once

#include "ptx/shared.cuh"
#include "tile/panels.cuh"

struct outer_tile {
    static constexpr int at_once = 4; /* rows, that come by one load of A */

    float accum[panels::rows][panels::chunk];
    u32 warp, set, lane; /* the lane of its set */
    u32 beyond; /* elements of the chunk that D's first column lies behind its start */
    int rows;   /* of D from the set's first one on: more than it has, or none, or less */

    /* rows_left: of D, from the tile's first one on. */
    DEVICE outer_tile(u32 in_beyond, int rows_left, u32 thread)
        : warp(thread / 32), set(thread % 32 / panels::lanes), lane(thread % panels::lanes),
          beyond(in_beyond),
          rows((rows_left - first_row() + panels::classes - 1) / panels::classes)
    {
#pragma unroll
        for (int i = 0; i < panels::rows; i++)
#pragma unroll
            for (int j = 0; j < panels::chunk; j++)
                accum[i][j] = 0;
    }

    /* Of the set, in the tile. */
    DEVICE int first_row() const
    {
        return (int)(warp + set * panels::rows * panels::classes);
    }

    /* Of the chunk, from the tile's first column on. */
    DEVICE int col() const
    {
        return (int)lane * panels::chunk - (int)beyond;
    }

    DEVICE void accum_from_smem(u32 s_base, int count)
    {
        u32 s_a = panels::a_of(s_base, 0, (u32)first_row()), s_b[panels::chunk];

#pragma unroll
        for (int j = 0; j < panels::chunk; j++)
            s_b[j] = panels::b_of(s_base, 0, (u32)(col() + panels::chunk + j));
#pragma unroll 1
        for (int k = 0; k < count; k++) {
            float b[panels::chunk];

#pragma unroll
            for (int j = 0; j < panels::chunk; j++)
                b[j] = ld_shared_f32(s_b[j] + k * panels::b_step);
#pragma unroll
            for (int first = 0; first < panels::rows; first += at_once) {
                float a[at_once];

                if (first >= rows)
                    break;
                ld_shared_v4_f32(a, s_a + k * panels::a_step + first * 4);
#pragma unroll
                for (int i = 0; i < at_once; i++)
#pragma unroll
                    for (int j = 0; j < panels::chunk; j++)
                        accum[first + i][j] += a[i] * b[j];
            }
        }
    }
};
