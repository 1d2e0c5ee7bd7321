/*
 * All of a CTA's shared memory: a ring of slots, each an A tile and a B tile. The epilogue comes
 * when the ring is drained and takes the same bytes as one slab per warp.
 *
 * A slab holds 16 rows of the warp tile as accumulators. Rows are padded by 32 bytes: then the
 * eight rows that one store of a fragment touches begin eight banks apart.
 */
#pragma once

#include "tile/operand_tile.cuh"

namespace smem
{

constexpr int slot_size = tile_a::size + tile_b::size;
constexpr int ring_size = cfg::stages * slot_size;

constexpr int slab_rows = 16;
constexpr int slab_pitch = cfg::warp_n * cfg::accumulator_size + 32;
constexpr int slab_size = slab_rows * slab_pitch;

static_assert(max_of(ring_size, cfg::warps_m *cfg::warps_n *slab_size) == cfg::shared_memory,
              "daemon/plan/config.c computes the same size");

DEVICE u32 a_of_slot(u32 s_ring, int slot)
{
    return s_ring + slot * slot_size;
}

DEVICE u32 b_of_slot(u32 s_ring, int slot)
{
    return s_ring + slot * slot_size + tile_a::size;
}

DEVICE u32 slab_of_warp(u32 s_ring, int warp)
{
    return s_ring + warp * slab_size;
}

} // namespace smem
