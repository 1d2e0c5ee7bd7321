/*
 * One thread's share of an operand's K tiles: which chunks it copies, from where, and how much of
 * them exists. Both copy variants start from here.
 *
 * A thread's chunks lie in one column of chunks, `row_step` rows apart, so a K tile costs one
 * pointer and one validity test a chunk. Everything outside the matrix is zero on both operands:
 * along K zero times zero adds nothing, along m and n the results are never stored.
 */
#pragma once

#include "tile/chunk_size.cuh"

template <typename TILE> struct operand {
    static constexpr int row_step = cfg::threads / TILE::row_chunks;
    static constexpr int chunks = TILE::rows / row_step;

    static_assert(row_step * TILE::row_chunks == cfg::threads, "one column of chunks a thread");
    static_assert(chunks * row_step == TILE::rows, "all threads copy alike");

    u64 g_chunk;     /* this thread's first chunk in the next K tile */
    u64 g_row_step;  /* bytes between its chunks */
    u64 g_tile_step; /* bytes between K tiles */
    u32 row, chunk;
    int span_left; /* indices along m or n that exist, from the tile's first */

    DEVICE operand(u64 g_base, i64 ld, i64 origin, i64 limit, u32 thread)
        : g_row_step((u64)(ld * (row_step * cfg::input_size))), row(thread / TILE::row_chunks),
          chunk(thread % TILE::row_chunks), span_left(extent_in(limit - origin, TILE::span))
    {
        i64 row0 = TILE::is_k_major ? origin + row : (i64)row;
        i64 col0 = (i64)chunk * chunk_elements + (TILE::is_k_major ? 0 : origin);

        g_chunk = g_base + (u64)((row0 * ld + col0) * cfg::input_size);
        g_tile_step = (u64)((TILE::is_k_major ? 1 : ld) * (cfg::tile_k * cfg::input_size));
    }

    DEVICE void advance()
    {
        g_chunk += g_tile_step;
    }

    DEVICE u64 source(int i) const
    {
        return g_chunk + (u64)i * g_row_step;
    }

    DEVICE u32 destination(int i) const
    {
        return TILE::offset(row, i * row_step, chunk);
    }

    /* Elements of chunk i that exist, 0 to chunk_elements; k_left counts from the K tile's first.
     */
    DEVICE int elements(int i, int k_left) const
    {
        int rows_left = TILE::is_k_major ? span_left : k_left;
        int cols_left = TILE::is_k_major ? k_left : span_left;
        int left = min_of(cols_left - (int)chunk * chunk_elements, chunk_elements);

        return (int)row + i * row_step < rows_left ? max_of(left, 0) : 0;
    }
};
