/*
 * What of a tile entry/gemm_strip.cu has in shared memory: a K tile of both operands as it lies in
 * memory (raw), of A twice, for the next one comes while this one is multiplied; a panel of B, in
 * the order in which it is multiplied; on the way out a slab of each warp.
 *
 * A row of D begins `beyond` elements behind an aligned chunk of memory, from 0 to 7, and rows eight
 * apart begin alike, whatever D's leading dimension. So a warp has such rows, sixteen of them, and
 * for them columns that begin `beyond` before the tile's: each eight, an n8 block of mma.sync, is an
 * aligned chunk of D. What differs from warp to warp is only which rows of B's panel it reads; it
 * begins eight columns before the tile. Rows of A that begin alike are shifted alike, each by the
 * one warp that multiplies it.
 *
 * A tile has a block less than a warp: the last block is the next tile's first, and the last tile's
 * own, where D ends in it.
 *
 * Which K a product adds first is free, if both operands agree. Of 32 K lane t of a quad has eight
 * neighbours of A, 8t and on, in four words; word i is what the i-th of four n8k8 matrices of B has
 * to have there. So a chunk of the panel holds the i-th words of all four lanes.
 */
#pragma once

#include "tile/chunk_size.cuh"

namespace strip
{

constexpr int classes = 8;                               /* of rows that begin alike: warps */
constexpr int rows = cfg::tile_m / classes;              /* of a warp */
constexpr int blocks = cfg::tile_n / chunk_elements + 1; /* of eight columns, of a warp */
constexpr int blocks_at_once = 3;                        /* products that do not wait for each other */
constexpr int block_k = 32;
constexpr int panel_rows = cfg::tile_m; /* of A, and of B's panel */
constexpr int row_size = cfg::tile_k * cfg::input_size;
constexpr int row_chunks = row_size / chunk_size;
constexpr int raw_pitch = row_size + chunk_size; /* of a row that does not begin with a chunk */
constexpr int raw_size = panel_rows * raw_pitch;
constexpr int slab_row = 16 * chunk_size;
constexpr int slab = rows * slab_row;
constexpr int panel_size = panel_rows * row_size;
constexpr int slabs_size = classes * slab;
constexpr int size = panel_size + slabs_size + 3 * raw_size;

static_assert(cfg::threads == classes * 32, "a warp for each class");
static_assert(rows == 16 && blocks < 16, "a block of mma.sync; lanes of half a warp have a row");
static_assert(blocks % blocks_at_once == 0, "products by threes");
static_assert((blocks + 1) * chunk_elements == panel_rows, "all columns that a warp may have");
static_assert(row_chunks == 8, "chunks trade places among eight");
static_assert(4 * panel_rows % cfg::threads == 0, "quads fill the panel's rows alike");
static_assert(size == cfg::shared_memory, "daemon/plan/config.c computes the same size");

/* Chunks of the panel's rows trade places by the row's number, so that eight rows of an ldmatrix
 * are in different banks. */
DEVICE u32 panel_chunk(u32 s_base, u32 row, u32 number)
{
    return s_base + row * row_size + (number ^ row % 8) * chunk_size;
}

DEVICE u32 slab_of_warp(u32 s_base, u32 warp)
{
    return s_base + panel_size + warp * slab;
}

/* The same in a slab of 16 rows, eight chunks among each other. */
DEVICE u32 slab_chunk(u32 s_slab, u32 row, u32 number)
{
    return s_slab + row * slab_row + (number ^ row % 8) * chunk_size;
}

DEVICE u32 raw_b(u32 s_base)
{
    return s_base + panel_size + slabs_size;
}

DEVICE u32 raw_a(u32 s_base, u32 turn)
{
    return s_base + panel_size + slabs_size + (1 + turn) * raw_size;
}

} // namespace strip
