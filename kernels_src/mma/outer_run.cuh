/*
 * A tile that has all columns of a D without gaps between rows: one run of memory, so a thread's
 * chunks need not end where rows do. Eight rows are as many chunks as D has columns, and the next
 * eight are divided alike: a thread has one of these chunks in each eight rows of its group, and
 * each element of it a row and a column of its own.
 *
 * By rows (mma/outer.cuh) most chunks of a narrow D are the end of some row, and leave by elements.
 */
#pragma once

#include "ptx/shared.cuh"
#include "tile/panels.cuh"

struct run_tile {
    static constexpr int at_once = 4; /* of eight rows each, that come by one load of A */

    float accum[panels::rows][panels::chunk];
    u32 columns, place, group; /* the chunk's number in eight rows; which rows */
    int left; /* elements of the tile, from the thread's first one on: none behind the last group */

    /* columns: of D, at most a tile's. rows_left: from the tile's first one on. */
    DEVICE run_tile(u32 in_columns, int rows_left, u32 thread)
        : columns(in_columns), place(thread % in_columns), group(thread / in_columns),
          left(rows_left * (int)in_columns - first())
    {
#pragma unroll
        for (int i = 0; i < panels::rows; i++)
#pragma unroll
            for (int j = 0; j < panels::chunk; j++)
                accum[i][j] = 0;
    }

    /* Elements from chunk to chunk of a thread. */
    DEVICE int step() const
    {
        return (int)columns * panels::classes;
    }

    /* Elements before the thread's first one, from the tile's on. */
    DEVICE int first() const
    {
        return (int)group * panels::rows * step() + (int)place * panels::chunk;
    }

    /* Where the panels have an element's row of A and column of B. */
    DEVICE void find(u32 s_base, u32 (&s_a)[panels::chunk], u32 (&s_b)[panels::chunk]) const
    {
        u32 row = place * panels::chunk / columns, column = place * panels::chunk - row * columns;

        row += group * panels::rows * panels::classes;
#pragma unroll
        for (int j = 0; j < panels::chunk; j++) {
            s_a[j] = panels::a_of(s_base, 0, row);
            s_b[j] = panels::b_of(s_base, 0, panels::chunk + column);
            column++;
            row += column == columns ? 1 : 0;
            column = column == columns ? 0 : column;
        }
    }

    DEVICE void accum_from_smem(u32 s_base, int count)
    {
        u32 s_a[panels::chunk], s_b[panels::chunk];

        if (left <= 0)
            return;
        find(s_base, s_a, s_b);
#pragma unroll 1
        for (int k = 0; k < count; k++) {
#pragma unroll
            for (int j = 0; j < panels::chunk; j++) {
                float b = ld_shared_f32(s_b[j] + k * panels::b_step);

#pragma unroll
                for (int of = 0; of < panels::rows; of += at_once) {
                    float a[at_once];

                    if (of * step() >= left)
                        break;
                    ld_shared_v4_f32(a, s_a[j] + k * panels::a_step + of * 4);
#pragma unroll
                    for (int i = 0; i < at_once; i++)
                        accum[of + i][j] += a[i] * b;
                }
            }
        }
    }
};
