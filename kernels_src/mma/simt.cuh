/*
 * fp32 on CUDA cores: true fp32 products and sums. Lanes of a warp form 4 x 8; each owns M/4 rows
 * and N/8 columns of the warp tile.
 *
 * A slice is four k. A K-major operand gives one 16-byte load per index, four k each, and a lane's
 * indices lie `lanes` apart; a span-major one gives one load per k, four indices each, and a lane's
 * indices come in runs of four. Either way eight lanes read eight different bank groups or the
 * same address.
 */
#pragma once

#include "mma/warp_tile.cuh"

/* Index that entry i of lane `at` (of `lanes` along this side) has in the warp tile. */
template <typename TILE> DEVICE int simt_index(int lanes, int at, int i)
{
    return TILE::is_k_major ? i * lanes + at : i / 4 * (lanes * 4) + at * 4 + i % 4;
}

template <typename TILE, int COUNT>
DEVICE void
simt_fragment(float (&r)[COUNT][4], u32 s_tile, int origin, int slice, int lanes, int at)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if constexpr (TILE::is_k_major) {
            ld_shared_v4_f32(r[i], s_tile + TILE::offset(origin + at, i * lanes, slice));
        } else {
            int first = origin + simt_index<TILE>(lanes, at, i / 4 * 4);
            float values[4];

            ld_shared_v4_f32(values, s_tile + TILE::offset(i % 4, slice * 4, first / 4));
#pragma unroll
            for (int e = 0; e < 4; e++)
                r[i / 4 * 4 + e][i % 4] = values[e];
        }
    }
}

template <int M, int N> struct warp_tile<cfg::unit_simt, M, N> {
    static constexpr int slices = cfg::tile_k / 4;
    static constexpr int slabs = M / smem::slab_rows;
    static constexpr int lanes_m = 4, lanes_n = 8;
    static constexpr int rows = M / lanes_m, cols = N / lanes_n; /* of a lane */

    /* 512 products: more of them in a row take longer to compile and are hardly faster. */
    static constexpr int slices_at_once = 512 / (rows * cols * 4);

    static_assert(rows % 4 == 0 && cols % 4 == 0, "runs of four");
    static_assert(slices % slices_at_once == 0 && slices_at_once % 2 == 0, "pairs");

    struct fragment {
        float a[rows][4], b[cols][4];
    };

    float accum[rows][cols];
    int origin_m, origin_n, lane_m, lane_n;

    DEVICE warp_tile(int warp, int lane)
        : origin_m(warp / cfg::warps_n * M), origin_n(warp % cfg::warps_n * N),
          lane_m(lane / lanes_n), lane_n(lane % lanes_n)
    {
    }

    DEVICE void clear()
    {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < cols; j++)
                accum[i][j] = 0;
    }

    DEVICE void regs_from_smem(fragment &r, const warp_slot &slot, int slice) const
    {
        simt_fragment<tile_a>(r.a, slot.s_a, origin_m, slice, lanes_m, lane_m);
        simt_fragment<tile_b>(r.b, slot.s_b, origin_n, slice, lanes_n, lane_n);
    }

    DEVICE void accum_from_regs(const fragment &r)
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < rows; i++)
#pragma unroll
                for (int j = 0; j < cols; j++)
                    accum[i][j] += r.a[i][k] * r.b[j][k];
    }

    /* A slab is four entries of all four row lanes: its row 4i + l is entry i of lane l. */
    DEVICE static int slab_row(int slab, int row)
    {
        return simt_index<tile_a>(lanes_m, row % lanes_m, slab * 4 + row / lanes_m);
    }

    DEVICE void smem_from_accum(u32 s_slab, int slab) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < cols; j++)
                smem_from_accum_1(s_slab, i * lanes_m + lane_m,
                                  simt_index<tile_b>(lanes_n, lane_n, j), accum[slab * 4 + i][j]);
    }
};
