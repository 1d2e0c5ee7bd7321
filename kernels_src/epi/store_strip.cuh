/*
 * A warp's part of a tile of entry/gemm_strip.cu to D, through a slab of shared memory that it has
 * to itself: whole aligned chunks, sixteen lanes to a row, and elements at the two ends of a row.
 * What takes more than a factor goes by elements all of it, in 32 bits until then.
 *
 * Who meets whom: the lanes of a warp.
 */
#pragma once

#include "epi/chunk.cuh"
#include "mma/strip_tile.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/shared.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/sync.cuh"

struct strip_writer {
    static constexpr int row_lanes = strip::slab_row / chunk_size; /* a chunk each */
    static constexpr u32 rows_at_once = 32 / row_lanes;
    static constexpr int turns = strip::rows / rows_at_once;

    epilogue op;
    u32 s_slab, lane;
    int row, col; /* of the warp's first element in its item; the column may lie before D */
    bool is_first, is_last; /* of a row of tiles */
    u32 half;     /* whether the first row's first chunk is the second one of its sector */

    DEVICE
    strip_writer(const gemmd_job &job, const raster::place &at, const strip_tile &tile, u32 s_base)
        : op(job, at.item), s_slab(strip::slab_of_warp(s_base, tile.warp)), lane(tile.lane),
          row((int)(at.row + tile.warp)), col((int)at.col - (int)tile.beyond), is_first(at.col == 0),
          is_last(at.col + cfg::tile_n >= job.n), half((u32)(g_element(0, col) / chunk_size) % 2)
    {
    }

    /* In D, of the warp's rows. */
    DEVICE u64 g_element(u32 of_row, int of_col) const
    {
        i64 d_row = row + (int)of_row * strip::classes;

        return element_address(op.job.d, op.item * op.job.stride_d + d_row * op.job.ldd + of_col);
    }

    /* Columns of a row that are this tile's: where two tiles meet in the middle of a sector of 32
     * bytes, the chunk there is the left one's, so that one CTA writes all of it. Some products
     * gained a tenth by that, most nothing. Rows eight apart are as many chunks apart as `ldd`
     * says. */
    struct span {
        int first, end;
    };

    DEVICE span span_of(u32 of_row) const
    {
        int later = (int)((half + of_row * (u32)op.job.ldd) % 2) * chunk_elements;
        int first = is_first ? 0 : col + later, end = col + later + cfg::tile_n;

        return {first, is_last || end > (int)op.job.n ? (int)op.job.n : end};
    }

    /* Of the warp's rows, from the first on. */
    DEVICE int rows_left() const
    {
        return extent_in(op.job.m - row + strip::classes - 1, cfg::tile_m) / strip::classes;
    }

    /* By stmatrix, two blocks at a time, of each rows 0 to 7, then 8 to 15. The last one has nobody
     * beside it, and takes a place that no block has. */
    DEVICE void smem_from_plain(const strip_tile &tile) const
    {
        u32 s_row = strip::slab_chunk(s_slab, lane / 8 % 2 * 8 + lane % 8, lane / 16);

#pragma unroll
        for (int block = 0; block < strip::blocks; block += 2) {
            u32 r[4];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                int of = min_of(block + i / 2, strip::blocks - 1);
                const float *r_sums = tile.accum[of] + i % 2 * 2;

                r[i] = pack_pair(op.plain(r_sums[0]), op.plain(r_sums[1]));
            }
            stmatrix_x4(s_row ^ block * chunk_size, r);
        }
        bar_warp_sync(0xffffffff);
    }

    /* A lane's chunk of every second row. Its elements from `first` to `end` - 1 are this tile's. */
    struct column {
        u32 of_row, number;
        u64 g_chunk, g_step; /* in the first row, and to the next */
        int left;            /* rows, times two, that D has from the first on */
        int first, end;
    };

    DEVICE column column_of() const
    {
        u32 of_row = lane / row_lanes, number = lane % row_lanes;
        int chunk = col + (int)number * chunk_elements;
        span mine = span_of(of_row); /* and of all rows that this lane stores, two lines apart */

        static_assert(rows_at_once == 2, "rows of a lane begin in the same half of a sector");
        return {of_row,
                number,
                g_element(of_row, chunk),
                element_address(0, rows_at_once * strip::classes * op.job.ldd),
                rows_left() - (int)of_row,
                extent_in(mine.first - chunk, chunk_elements),
                extent_in(mine.end - chunk, chunk_elements)};
    }

    DEVICE u32 s_chunk(const column &of, int turn) const
    {
        return strip::slab_chunk(s_slab, of.of_row + turn * rows_at_once, of.number);
    }

    DEVICE void gmem_from_slab() const
    {
        column mine = column_of();
        bool is_whole = mine.end - mine.first == chunk_elements;

#pragma unroll
        for (int i = 0; i < turns; i++) {
            u32 r[4];

            ld_shared_v4_u32(r, s_chunk(mine, i));
            if (is_whole && i * (int)rows_at_once < mine.left)
                st_global_v4_u32(mine.g_chunk + i * mine.g_step, r);
        }
        if (!is_whole && mine.end > mine.first)
            ends_from_slab(mine);
        bar_warp_sync(0xffffffff); /* before the next tile overwrites it */
    }

    DEVICE void ends_from_slab(const column &mine) const
    {
#pragma unroll 1
        for (int i = 0; i < turns && i * (int)rows_at_once < mine.left; i++) {
            u32 r[4];

            ld_shared_v4_u32(r, s_chunk(mine, i));
            gmem_from_part(mine.g_chunk + i * mine.g_step, r, mine.first, mine.end);
        }
    }

    /* Sums of eight rows fill the slab: a row in two of its own. */
    DEVICE u32 s_sum(u32 in_row, u32 in_col) const
    {
        return s_slab + in_row * 2 * strip::slab_row + (in_col / 4 ^ in_row) * 16 + in_col % 4 * 4;
    }

    /* What is done to an element is long, and stands here once. */
    DEVICE void gmem_from_sums(u32 first_row) const
    {
        constexpr u32 cols = row_lanes * chunk_elements;
        int left = rows_left() - (int)first_row;

#pragma unroll 1
        for (u32 i = lane; i < 8 * cols; i += 32) {
            int of_col = col + (int)(i % cols);
            span mine = span_of(first_row + i / cols);

            if ((int)(i / cols) < left && of_col >= mine.first && of_col < mine.end)
                op.gmem_from_accum(ld_shared_f32(s_sum(i / cols, i % cols)),
                                   row + (int)(first_row + i / cols) * strip::classes, of_col);
        }
    }

    DEVICE void gmem_from_any(const strip_tile &tile) const
    {
        u32 s_pair = s_sum(lane / 4, lane % 4 * 2);

#pragma unroll 1
        for (u32 first_row = 0; first_row < strip::rows; first_row += 8) {
#pragma unroll
            for (int block = 0; block < strip::blocks; block++) {
                const float *r = tile.accum[block];

                st_shared_v2_f32(s_pair ^ block * 32, first_row ? r[2] : r[0],
                                 first_row ? r[3] : r[1]);
            }
            bar_warp_sync(0xffffffff);
            gmem_from_sums(first_row);
            bar_warp_sync(0xffffffff);
        }
    }

    DEVICE void gmem_from_accum(const strip_tile &tile) const
    {
        bool is_plain = op.is_plain();

        if (is_plain)
            smem_from_plain(tile);
        griddepcontrol_wait(); /* the grid before may read D, or write C */
        griddepcontrol_launch_dependents();
        if (is_plain)
            gmem_from_slab();
        else
            gmem_from_any(tile);
    }
};
