/*
 * All of a CTA's shared memory in the hopper family, from an address on 1024 bytes:
 *
 *   ring      stages slots, each an A tile and a B tile
 *   raw       where rows start anywhere: tiles as they lie in memory, before they are shifted
 *   buffers   for each group of warps that multiplies, two for 64 rows x 128 bytes of D;
 *             where these start anywhere, 16 bytes more for each of eight rows of a warp;
 *             none where D leaves from registers
 *   barriers  full and empty of each slot, turn of each group
 *
 * Split configurations have, in place of the buffers and their barriers (those that leave parts:
 * neither),
 *   exchange  for each warp what its peers in the cluster take, and pages of 16 x 16 elements
 *   barriers  arrived and taken of each warp
 */
#pragma once

#include "tile/swizzled_tile.cuh"

namespace smem
{

constexpr int slot_size = tile_a::size + tile_b::size;
constexpr int ring_size = cfg::stages * slot_size;
/* One that is shifted, two that are on their way. */
constexpr int raw_tiles = 3;
constexpr int raw_slot_size = raw_tile<tile_a>::size + raw_tile<tile_b>::size;
constexpr int raw_size = cfg::realigns ? raw_tiles * raw_slot_size : 0;
constexpr int buffer_rows = 64;
constexpr int buffer_size = buffer_rows * swizzle_row;
/* Eight rows of each warp may begin anywhere in a chunk: epi/rounded_part.cuh. */
constexpr int part_rows = 8, chunk_bytes = 16;
constexpr int group_buffers_size =
    2 * buffer_size + (cfg::stores_anywhere ? 4 * part_rows * chunk_bytes : 0);
constexpr bool has_buffers = cfg::stores_anywhere || cfg::leaves_by_copies || cfg::leaves_late;
constexpr int buffers_size = has_buffers ? cfg::groups * group_buffers_size : 0;

/* A chunk: four accumulators of each lane, 16 rows x 8 columns of the tile. The CTAs of a cluster
 * share out a warp's chunks, by pairs: a CTA sums what all have of its own ones. */
constexpr int warps = cfg::groups * 4;
constexpr int chunk_size = 32 * 16;
constexpr int chunks = cfg::group_m / block_span * (cfg::tile_n / 8);
constexpr int share = (chunks + 2 * cfg::cluster_k - 1) / (2 * cfg::cluster_k) * 2;
constexpr int owners = (chunks + share - 1) / share; /* the first CTAs, where chunks are few */
constexpr int offered_size = (cfg::cluster_k - 1) * share * chunk_size;
constexpr int page_pitch = (16 + 4) * 4; /* four more: rows begin in different banks */
constexpr int page_size = 16 * page_pitch;
constexpr int pages =
    min_of(share / 2, cfg::cluster_k == 1 ? 16 / warps : 2); /* as many pairs leave at once */
constexpr int exchange_size = warps * (offered_size + pages * page_size);

constexpr int out_size = cfg::leaves_parts ? 0 : cfg::is_split ? exchange_size : buffers_size;
constexpr int out_barriers = cfg::leaves_parts ? 0 : cfg::is_split ? 2 * warps : cfg::groups;
constexpr int barriers_size = (2 * cfg::stages + out_barriers) * 8;

static_assert(ring_size + raw_size + out_size + barriers_size == cfg::shared_memory,
              "daemon/plan/config.c computes the same size");
static_assert(!cfg::is_split || cfg::tile_n % 16 == 0, "chunks go by pairs");

DEVICE u32 a_of_slot(u32 s_base, int slot)
{
    return s_base + slot * slot_size;
}

DEVICE u32 b_of_slot(u32 s_base, int slot)
{
    return s_base + slot * slot_size + tile_a::size;
}

DEVICE u32 raw_a(u32 s_base, int slot)
{
    return s_base + ring_size + slot * raw_slot_size;
}

DEVICE u32 raw_b(u32 s_base, int slot)
{
    return raw_a(s_base, slot) + raw_tile<tile_a>::size;
}

DEVICE u32 buffer(u32 s_base, int group, int number)
{
    return s_base + ring_size + group * group_buffers_size + number * buffer_size;
}

DEVICE u32 full_barrier(u32 s_base, int slot)
{
    return s_base + ring_size + raw_size + out_size + slot * 16;
}

DEVICE u32 empty_barrier(u32 s_base, int slot)
{
    return full_barrier(s_base, slot) + 8;
}

/* CTAs that take chunks from the one with this rank. */
DEVICE constexpr int takers(u32 rank)
{
    return owners - (rank < (u32)owners);
}

/* What a warp of CTA `rank` has for the same warp of CTA `owner`. */
DEVICE u32 offered(u32 s_base, int warp, u32 rank, u32 owner)
{
    u32 place = owner - (owner > rank);

    return s_base + ring_size + raw_size + warp * offered_size + place * share * chunk_size;
}

DEVICE u32 page(u32 s_base, int warp)
{
    return s_base + ring_size + raw_size + warps * offered_size + warp * pages * page_size;
}

DEVICE u32 arrived_barrier(u32 s_base, int warp)
{
    return full_barrier(s_base, cfg::stages) + warp * 16;
}

DEVICE u32 taken_barrier(u32 s_base, int warp)
{
    return arrived_barrier(s_base, warp) + 8;
}

DEVICE u32 turn_barrier(u32 s_base, int group)
{
    return full_barrier(s_base, cfg::stages) + group * 8;
}

} // namespace smem
