/*
 * One operand's K tile in shared memory: where each 16-byte chunk lies.
 *
 * The tile keeps the operand's own order. K-major (A not transposed, B transposed): a row is one
 * index along m or n and holds tile_k elements. Span-major (the other two): a row is one k and
 * holds SPAN elements along m or n. So loads are plain copies, and transposing is the business of
 * whoever reads fragments (mma/).
 *
 * Chunks of a row are permuted by an XOR with a key of the row, so that the eight (or four) chunks
 * that one shared-memory wavefront reads lie in different banks. What a wavefront reads depends on
 * the unit:
 *   ldmatrix and SIMT, 16 bytes a lane: eight consecutive rows, same chunk;
 *   fp64, 8 bytes a lane: four consecutive rows, an even chunk and the next;
 *   int8 span-major, 4 bytes a lane: rows r, r+4, r+8, r+12, an even chunk and the next.
 */
#pragma once

#include "tile/chunk_size.cuh"

template <int SPAN, bool K_MAJOR> struct operand_tile {
    static constexpr int span = SPAN;
    static constexpr bool is_k_major = K_MAJOR;
    static constexpr int rows = K_MAJOR ? SPAN : cfg::tile_k;
    static constexpr int row_size = (K_MAJOR ? cfg::tile_k : SPAN) * cfg::input_size;
    static constexpr int row_chunks = row_size / chunk_size;
    static constexpr int size = rows * row_size;

    /* Rows that share one 128-byte line of banks, and the chunks an XOR may move within a row. */
    static constexpr int line_rows = max_of(1, 128 / row_size);
    static constexpr u32 key_mask = min_of(8, row_chunks) - 1;
    /* Rows after which key() repeats itself. */
    static constexpr int key_period = cfg::unit == cfg::unit_mma_64              ? 4
                                      : cfg::unit == cfg::unit_mma_8 && !K_MAJOR ? 16
                                                                                 : 8;

    static_assert((row_chunks & (row_chunks - 1)) == 0, "a row is a power of two of chunks");

    DEVICE static u32 key(u32 row)
    {
        if constexpr (cfg::unit == cfg::unit_mma_64)
            return (row & 3) * 2 & key_mask;
        else if constexpr (cfg::unit == cfg::unit_mma_8 && !K_MAJOR)
            return (row >> 2 & 3) * 2 & key_mask;
        else
            return row / line_rows & key_mask;
    }

    /* Byte offset of a chunk in the tile. */
    DEVICE static u32 offset(u32 row, u32 chunk)
    {
        return row * row_size + ((chunk ^ key(row)) * chunk_size);
    }

    /* The same, `further` rows down. Where that is a constant, rows that differ by whole periods
     * of the key share one address in a register; the compiler cannot know that they do. */
    DEVICE static u32 offset(u32 row, int further, u32 chunk)
    {
        int whole = further / key_period * key_period;

        return offset(row + (further - whole), chunk) + whole * row_size;
    }
};

typedef operand_tile<cfg::tile_m, !cfg::trans_a> tile_a;
typedef operand_tile<cfg::tile_n, cfg::trans_b> tile_b;
