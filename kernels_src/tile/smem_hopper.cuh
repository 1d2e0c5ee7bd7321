/*
 * All of a CTA's shared memory in the hopper family, from an address on 1024 bytes:
 *
 *   ring      stages slots, each an A tile and a B tile
 *   buffers   for each group of warps that multiplies, two for 64 rows x 128 bytes of D and C
 *   barriers  full and empty of each slot, filled of each buffer, turn of each group
 */
#pragma once

#include "tile/swizzled_tile.cuh"

namespace smem
{

constexpr int slot_size = tile_a::size + tile_b::size;
constexpr int ring_size = cfg::stages * slot_size;
constexpr int buffer_rows = 64;
constexpr int buffer_size = buffer_rows * swizzle_row;
constexpr int buffers_size = cfg::groups * 2 * buffer_size;
constexpr int barriers_size = (2 * cfg::stages + 3 * cfg::groups) * 8;

static_assert(ring_size + buffers_size + barriers_size == cfg::shared_memory,
              "daemon/plan/config.c computes the same size");

DEVICE u32 a_of_slot(u32 s_base, int slot)
{
    return s_base + slot * slot_size;
}

DEVICE u32 b_of_slot(u32 s_base, int slot)
{
    return s_base + slot * slot_size + tile_a::size;
}

DEVICE u32 buffer(u32 s_base, int group, int number)
{
    return s_base + ring_size + (group * 2 + number) * buffer_size;
}

DEVICE u32 full_barrier(u32 s_base, int slot)
{
    return s_base + ring_size + buffers_size + slot * 16;
}

DEVICE u32 empty_barrier(u32 s_base, int slot)
{
    return full_barrier(s_base, slot) + 8;
}

DEVICE u32 buffer_barrier(u32 s_base, int group, int number)
{
    return full_barrier(s_base, cfg::stages) + (group * 2 + number) * 8;
}

DEVICE u32 turn_barrier(u32 s_base, int group)
{
    return buffer_barrier(s_base, cfg::groups, 0) + group * 8;
}

} // namespace smem
