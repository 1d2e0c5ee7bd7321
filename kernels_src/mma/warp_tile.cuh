/*
 * A warp's part of the CTA tile: its accumulators, and the two steps that feed them. Each unit
 * specialises this (mma_sync.cuh, mma_f64.cuh, simt.cuh); the entry sees one face:
 *
 *   struct fragment              operands of one K slice in registers
 *   slices                       K slices of a K tile
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

DEVICE void smem_from_accum_at(u32 s_slab, int row, int col, float value)
{
    st_shared_f32(s_slab + row * smem::slab_pitch + col * 4, value);
}

DEVICE void smem_from_accum_at(u32 s_slab, int row, int col, u32 value)
{
    st_shared_u32(s_slab + row * smem::slab_pitch + col * 4, value);
}

DEVICE void smem_from_accum_at(u32 s_slab, int row, int col, double value)
{
    st_shared_f64(s_slab + row * smem::slab_pitch + col * 8, value);
}
