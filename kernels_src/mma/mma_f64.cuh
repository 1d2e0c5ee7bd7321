/*
 * mma.sync m8n8k4 with fp64 operands: one element of A and of B a lane, loaded as it lies.
 */
#pragma once

#include "mma/warp_tile.cuh"
#include "ptx/mma_sync.cuh"

/* Element of lane (g, t) in 8 indices from origin + further, four k of slice `slice`. */
template <typename TILE>
DEVICE double element_f64(u32 s_tile, int origin, int further, int slice, int g, int t)
{
    int row = TILE::is_k_major ? origin + g : t;
    int further_row = TILE::is_k_major ? further : slice * 4;
    int col = TILE::is_k_major ? slice * 4 + t : origin + further + g;

    return ld_shared_f64(s_tile + TILE::offset(row, further_row, col / chunk_elements) +
                         col % chunk_elements * 8);
}

template <int M, int N> struct warp_tile<cfg::unit_mma_64, M, N> {
    static constexpr int slices = cfg::tile_k / 4;
    static constexpr int slices_at_once = slices;
    static constexpr int slabs = M / smem::slab_rows;

    static_assert(slices % 2 == 0, "fragments alternate between two sets of registers");

    struct fragment {
        double a[M / 8], b[N / 8];
    };

    double accum[M / 8][N / 8][2];
    int origin_m, origin_n, lane;

    DEVICE warp_tile(int warp, int in_lane)
        : origin_m(warp / cfg::warps_n * M), origin_n(warp % cfg::warps_n * N), lane(in_lane)
    {
    }

    DEVICE void clear()
    {
#pragma unroll
        for (int i = 0; i < M / 8; i++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                accum[i][j][0] = accum[i][j][1] = 0;
    }

    DEVICE void regs_from_smem(fragment &r, const warp_slot &slot, int slice) const
    {
        int g = lane >> 2, t = lane & 3;

#pragma unroll
        for (int i = 0; i < M / 8; i++)
            r.a[i] = element_f64<tile_a>(slot.s_a, origin_m, i * 8, slice, g, t);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            r.b[j] = element_f64<tile_b>(slot.s_b, origin_n, j * 8, slice, g, t);
    }

    DEVICE void accum_from_regs(const fragment &r)
    {
#pragma unroll
        for (int i = 0; i < M / 8; i++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                mma_m8n8k4_f64(accum[i][j], r.a[i], r.b[j], accum[i][j]);
    }

    DEVICE static int slab_row(int slab, int row)
    {
        return slab * smem::slab_rows + row;
    }

    DEVICE void smem_from_accum(u32 s_slab, int slab) const
    {
        int g = lane >> 2, t = lane & 3;

#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                smem_from_accum_2(s_slab, i * 8 + g, j * 8 + t * 2, accum[slab * 2 + i][j][0],
                                  accum[slab * 2 + i][j][1]);
    }
};
