/*
 * A K tile in the layout of swizzled_tile.cuh, as threads see it that copy it chunk by chunk: rows
 * of the operand's own order, which for span-major tiles run over all blocks.
 */
#pragma once

#include "tile/chunk_size.cuh"
#include "tile/swizzled_tile.cuh"

template <typename TILE> struct copied_tile {
    static constexpr int span = TILE::span;
    static constexpr bool is_k_major = TILE::is_k_major;
    static constexpr int rows = is_k_major ? span : cfg::tile_k;
    static constexpr int row_chunks = (is_k_major ? cfg::tile_k : span) / chunk_elements;
    static constexpr int block_chunks = swizzle_row / chunk_size;

    /* Of a chunk, `further` rows below `row`. */
    DEVICE static u32 offset(u32 row, int further, u32 chunk)
    {
        return chunk / block_chunks * (is_k_major ? TILE::row_tile_size : TILE::block_size) +
               swizzled_offset(row + further, chunk % block_chunks);
    }
};
