/*
 * What entry/gemm_stream.cu has in shared memory, and how its threads share a tile.
 *
 * Of the operand with many rows (the kernel's A, K along them) a row begins `skipped` elements
 * behind an aligned chunk of memory, from 0 to 7; rows eight apart begin alike, whatever the
 * leading dimension. A warp has such rows, in blocks of eight, and lane (g, t) chunk t of each step
 * of K of row g of each block. Only it reads what it has copied, so it waits for nobody else's:
 *
 *   ring      stages steps; of each, one chunk after the other of all threads side by side
 *   panels    two slices of the other operand: one that is read, one that is filled
 *
 * The order of K within a product is free as long as both operands agree: a lane's chunk is its
 * part of two products, and what belongs to it of a column of the other operand are the same eight
 * elements. So chunks are fragments as they are, of the operand of mma.sync that has eight columns,
 * and what is multiplied is the tile's transpose. A column's elements begin anywhere in words, so a
 * panel holds its columns twice, the second time an element further on. Columns lie an odd number
 * of words apart, and every four of them half of the banks: of eight columns, four lanes each, all
 * words lie in different banks.
 */
#pragma once

#include "base/config.cuh"

namespace stream
{

constexpr int chunk = 8;   /* elements of 16 bytes */
constexpr int classes = 8; /* of rows that begin alike: warps */
constexpr int class_rows = cfg::tile_m / classes;
constexpr int row_blocks = class_rows / 8; /* of a warp: a lane has a row of each */
constexpr int columns = cfg::tile_n;
constexpr int column_blocks = columns / 16;
constexpr int step_chunks = cfg::tile_k / chunk; /* of a row: one for each lane t */
constexpr int chunk_step = cfg::threads * 16;    /* bytes, to a lane's next chunk */
constexpr int stage_size = row_blocks * chunk_step;
constexpr int ring_size = cfg::stages * stage_size;

constexpr int slice_steps = 4;
constexpr int slice = slice_steps * cfg::tile_k;
constexpr int panel_depth = chunk + slice; /* rows may begin so much before the slice */
constexpr int panel_chunks = panel_depth / chunk;
constexpr int pitch = panel_depth / 2 + 1; /* words */
constexpr int quad_pitch = (4 * pitch + 15) / 32 * 32 + 16;
constexpr int copy_size = columns / 4 * quad_pitch * 4;
constexpr int panel_size = 2 * copy_size;
constexpr int size = ring_size + 2 * panel_size;

static_assert(step_chunks == 4 && cfg::threads == classes * 32, "lanes and warps, as above");
static_assert(class_rows % 8 == 0 && columns % 16 == 0, "whole products");
static_assert(pitch % 2 == 1 && quad_pitch % 32 == 16, "banks, as above");
static_assert(quad_pitch >= 4 * pitch, "columns have room");
static_assert(!cfg::trans_a, "K runs along the rows");
static_assert(size == cfg::shared_memory, "daemon/plan/config.c computes the same size");

/* Of the tile. */
DEVICE int row_of(u32 warp, int block, int in_block)
{
    return (int)warp + classes * (block * 8 + in_block);
}

/* Of a stage, a thread's first chunk. */
DEVICE u32 chunk_of(u32 s_base, u32 stage, u32 thread)
{
    return s_base + stage * stage_size + thread * 16;
}

DEVICE u32 panel_of(u32 s_base, u32 number)
{
    return s_base + ring_size + number * panel_size;
}

DEVICE u32 column_of(u32 s_panel, u32 column)
{
    return s_panel + (column / 4 * quad_pitch + column % 4 * pitch) * 4;
}

} // namespace stream
