/*
 * wgmma's matrix descriptor, PTX ISA "Matrix Descriptor Format": address / 16 in bits 0-13, leading
 * offset / 16 in 16-29, stride offset / 16 in 32-45, swizzle in 62-63 (1: 128 bytes).
 *
 * In both orders the stride offset leads from one pattern of eight rows to the next. The leading
 * offset leads from one block of 64 indices to the next in span-major order; K-major order with
 * this swizzle has no use for it.
 *
 * A descriptor moves by adding to its low word: addresses of shared memory do not carry out of it.
 * The bits above an address are the CTA's number in its cluster, and not for a descriptor.
 */
#pragma once

#include "tile/swizzled_tile.cuh"

template <typename TILE> struct wgmma_operand {
    static constexpr u32 step_block = TILE::block_size >> 4;
    static constexpr int tnsp = TILE::is_k_major ? 0 : 1;

    static constexpr u32 high_word = 1u << 30 | swizzle_atom >> 4;

    /* To the 16 elements along K with this number: in the row, or sixteen rows on. */
    DEVICE static constexpr u32 step_k(int slice)
    {
        int in_row = slice % 4 * 32, tile = slice / 4 * TILE::row_tile_size;

        return (TILE::is_k_major ? tile + in_row : slice * 16 * swizzle_row) >> 4;
    }

    DEVICE static constexpr u32 low_word(u32 s_address)
    {
        u32 leading = TILE::is_k_major ? 1 : TILE::block_size >> 4;

        return leading << 16 | (s_address & 0x3ffff) >> 4;
    }

    DEVICE static u64 desc(u32 low)
    {
        return (u64)high_word << 32 | low;
    }
};
