/*
 * One operand's K tile in shared memory as TMA writes it and wgmma reads it: rows of 128 bytes in
 * the 128-byte swizzle (the 16-byte chunk is XORed with the row modulo 8, so the tile starts on
 * 1024 bytes).
 *
 * K-major (A not transposed, B transposed): row s holds 64 elements along K of index s along m or
 * n; where a K tile has more of them, as many tiles of rows follow each other. Span-major (the
 * other two): blocks of tile_k rows; row k of block b holds indices 64b to 64b + 63 along m or n,
 * and wgmma transposes.
 */
#pragma once

#include "base/config.cuh"

constexpr int swizzle_row = 128;
constexpr int swizzle_atom = 8 * swizzle_row; /* what the pattern repeats after */
constexpr int row_elements = 64;
constexpr int block_span = 64;
constexpr int row_tiles = cfg::tile_k / row_elements; /* along K */

template <int SPAN, bool K_MAJOR> struct swizzled_tile {
    static constexpr int span = SPAN;
    static constexpr bool is_k_major = K_MAJOR;
    static constexpr int row_tile_size = SPAN * swizzle_row; /* K-major */
    static constexpr int block_size = (K_MAJOR ? block_span : cfg::tile_k) * swizzle_row;
    static constexpr int size = SPAN * swizzle_row * row_tiles;

    static_assert(SPAN % (K_MAJOR ? 8 : block_span) == 0, "whole patterns of the swizzle");
};

typedef swizzled_tile<cfg::tile_m, !cfg::trans_a> tile_a;
typedef swizzled_tile<cfg::tile_n, cfg::trans_b> tile_b;

/* The aligned chunks around a K tile whose rows start anywhere: one more in each row. With an odd
 * number of chunks, rows begin in different banks. */
template <typename TILE> struct raw_tile {
    static constexpr int rows = TILE::is_k_major ? TILE::span : cfg::tile_k;
    static constexpr int row_chunks = (TILE::is_k_major ? cfg::tile_k : TILE::span) / 8;
    static constexpr int pitch = (row_chunks + 1) * 16;
    static constexpr int size = rows * pitch;
    static constexpr int warp_rows = rows / 4; /* of a warp of the loading group */
};

/* Byte offset of a 16-byte chunk, for those who read and write such rows by themselves. */
DEVICE u32 swizzled_offset(u32 row, u32 chunk)
{
    return row * swizzle_row + ((chunk ^ (row & 7)) * 16);
}
