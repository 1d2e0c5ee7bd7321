/*
 * A warp's part of the CTA tile: its accumulators, and the two steps that feed them. Each unit
 * specialises this (mma_sync.cuh, mma_f64.cuh, simt.cuh); the entry sees one face:
 *
 *   struct fragment              operands of one K slice in registers
 *   slices                       K slices of a K tile
 *   slices_at_once               of them unrolled: all, unless that is too much to compile
 *   clear()                      accumulators to zero
 *   regs_from_smem(f, slot, s)   fragment f of slice s
 *   accum_from_regs(f)           multiply and add
 *   slabs, slab_row(slab, r)     the warp tile's rows in groups of 16: row of the warp tile which
 *                                row r of the slab holds
 *   smem_from_accum(s_slab, slab)
 *
 * Rows and columns of the accumulators may be permuted against the warp tile (int8 and SIMT with a
 * transposed operand); slab_row() and the columns smem_from_accum() writes to undo it.
 */
#pragma once

#include "base/number.cuh"
#include "ptx/shared.cuh"
#include "tile/smem_map.cuh"

template <int UNIT, int M, int N> struct warp_tile;

/* Where a warp reads in a slot: addresses of the tiles. */
struct warp_slot {
    u32 s_a, s_b;
};

DEVICE u32 slab_address(u32 s_slab, int row, int col)
{
    return s_slab + row * smem::slab_pitch + col * cfg::accumulator_size;
}

/* One accumulator to its place in the slab. */
DEVICE void smem_from_accum_1(u32 s_slab, int row, int col, scalar r)
{
    if constexpr (cfg::unit == cfg::unit_mma_8)
        st_shared_u32(slab_address(s_slab, row, col), (u32)r);
    else if constexpr (cfg::unit == cfg::unit_mma_64)
        st_shared_f64(slab_address(s_slab, row, col), r);
    else
        st_shared_f32(slab_address(s_slab, row, col), (float)r);
}

/* Two of neighbouring columns, the first of them even. */
DEVICE void smem_from_accum_2(u32 s_slab, int row, int col, scalar r0, scalar r1)
{
    if constexpr (cfg::unit == cfg::unit_mma_8)
        st_shared_v2_u32(slab_address(s_slab, row, col), (u32)r0, (u32)r1);
    else if constexpr (cfg::unit == cfg::unit_mma_64)
        st_shared_v2_f64(slab_address(s_slab, row, col), r0, r1);
    else
        st_shared_v2_f32(slab_address(s_slab, row, col), (float)r0, (float)r1);
}
