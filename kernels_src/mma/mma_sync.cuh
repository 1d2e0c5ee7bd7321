/*
 * mma.sync m16n8 with 16-bit and 8-bit operands.
 *
 * Both have fragments of 32 bytes along K (16 or 32 elements) with the same layout in bytes, so one
 * struct serves both. A slice of 16 indices of an operand is one ldmatrix.x4. Its four matrices for
 * A are (rows 0-7, k low), (rows 8-15, k low), (0-7, high), (8-15, high), the registers of one
 * fragment; for B (0-7, low), (0-7, high), (8-15, low), (8-15, high), two n8 fragments: the two
 * registers of each are neighbours, as the instruction has them, or every product would copy them.
 *
 * Span-major operands: 16-bit ones through ldmatrix.trans. There is no 8-bit form of it, so int8
 * reads 4x4 bytes as words of four rows and transposes them by byte permutes; a lane then holds
 * indices 4g..4g+3 of each 32, and block j of four has index 4g + j where it would have 8j + g.
 */
#pragma once

#include "mma/product_16.cuh"
#include "mma/warp_tile.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/prmt.cuh"

/* Registers of 16 indices along m or n, one K slice. */
typedef u32 fragment_16[4];

/* Of which operand: the order of the registers, see above. */
enum fragment_order {
    fragment_a,
    fragment_b,
};

template <typename TILE, fragment_order ORDER, int COUNT>
DEVICE void
fragments_by_ldmatrix(fragment_16 (&r)[COUNT], u32 s_tile, int origin, int slice, int lane)
{
    int matrix = lane >> 3, low = lane & 7;
    int is_upper = ORDER == fragment_a ? matrix & 1 : matrix >> 1; /* 8 of the 16 indices */
    int is_high = ORDER == fragment_a ? matrix >> 1 : matrix & 1;  /* half of K */

#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if constexpr (TILE::is_k_major)
            ldmatrix_x4(r[i], s_tile + TILE::offset(origin + is_upper * 8 + low, i * 16,
                                                    slice * 2 + is_high));
        else
            ldmatrix_x4_trans(r[i], s_tile + TILE::offset(is_high * 8 + low, slice * 16,
                                                          (origin + i * 16) / 8 + is_upper));
    }
}

/* Four words, one per k, each four indices: to four words, one per index, each four k. */
DEVICE void transpose_4x4_bytes(u32 (&r)[4])
{
    u32 low01 = prmt(r[0], r[1], 0x5140), high01 = prmt(r[0], r[1], 0x7362);
    u32 low23 = prmt(r[2], r[3], 0x5140), high23 = prmt(r[2], r[3], 0x7362);

    r[0] = prmt(low01, low23, 0x5410);
    r[1] = prmt(low01, low23, 0x7632);
    r[2] = prmt(high01, high23, 0x5410);
    r[3] = prmt(high01, high23, 0x7632);
}

template <typename TILE, fragment_order ORDER, int COUNT>
DEVICE void fragments_by_bytes(fragment_16 (&r)[COUNT], u32 s_tile, int origin, int slice, int lane)
{
    int g = lane >> 2, t = lane & 3;

#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int group = 0; group < COUNT / 2; group++) {
            int byte = origin + group * 32 + g * 4;
            u32 words[4];

#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = ld_shared_u32(
                    s_tile + TILE::offset(t * 4 + i, slice * 32 + half * 16, byte / chunk_size) +
                    byte % chunk_size);
            transpose_4x4_bytes(words);
#pragma unroll
            for (int j = 0; j < 4; j++)
                r[group * 2 + j / 2][ORDER == fragment_a ? half * 2 + j % 2 : j % 2 * 2 + half] =
                    words[j];
        }
}

template <int UNIT, int M, int N> struct warp_tile_mma {
    static constexpr int slices = cfg::tile_k * cfg::input_size / 32;
    static constexpr int slices_at_once = slices;
    static constexpr int slabs = M / smem::slab_rows;
    static constexpr bool is_byte = UNIT == cfg::unit_mma_8;
    static constexpr bool permutes_rows = is_byte && !tile_a::is_k_major;
    static constexpr bool permutes_cols = is_byte && !tile_b::is_k_major;

    static_assert(M % 32 == 0 && N % 32 == 0, "fragments_by_bytes takes 32 indices");
    static_assert(slices % 2 == 0, "fragments alternate between two sets of registers");

    struct fragment {
        fragment_16 a[M / 16], b[N / 16];
    };

    scalar accum[M / 16][N / 8][4];
    int origin_m, origin_n, lane;

    DEVICE warp_tile_mma(int warp, int in_lane)
        : origin_m(warp / cfg::warps_n * M), origin_n(warp % cfg::warps_n * N), lane(in_lane)
    {
    }

    DEVICE void clear()
    {
#pragma unroll
        for (int i = 0; i < M / 16; i++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    accum[i][j][e] = 0;
    }

    DEVICE void regs_from_smem(fragment &r, const warp_slot &slot, int slice) const
    {
        if constexpr (permutes_rows)
            fragments_by_bytes<tile_a, fragment_a>(r.a, slot.s_a, origin_m, slice, lane);
        else
            fragments_by_ldmatrix<tile_a, fragment_a>(r.a, slot.s_a, origin_m, slice, lane);
        if constexpr (permutes_cols)
            fragments_by_bytes<tile_b, fragment_b>(r.b, slot.s_b, origin_n, slice, lane);
        else
            fragments_by_ldmatrix<tile_b, fragment_b>(r.b, slot.s_b, origin_n, slice, lane);
    }

    template <typename T>
    DEVICE static void multiply(T (&d)[4], const fragment_16 &a, u32 b0, u32 b1)
    {
        if constexpr (is_byte)
            mma_m16n8k32_s32_s8(d, a, b0, b1, d);
        else
            accum_from_product_16(d, a, b0, b1);
    }

    DEVICE void accum_from_regs(const fragment &r)
    {
#pragma unroll
        for (int i = 0; i < M / 16; i++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                multiply(accum[i][j], r.a[i], r.b[j / 2][j % 2 * 2], r.b[j / 2][j % 2 * 2 + 1]);
    }

    /* Index that place `at` of 8-block `block` has in the warp tile. */
    DEVICE static int index_of(bool permutes, int block, int at)
    {
        return permutes ? block / 4 * 32 + at * 4 + block % 4 : block * 8 + at;
    }

    DEVICE static int slab_row(int slab, int row)
    {
        return index_of(permutes_rows, slab * 2 + row / 8, row % 8);
    }

    DEVICE void smem_from_accum(u32 s_slab, int slab) const
    {
        int g = lane >> 2, t = lane & 3;

#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int low = 0; low < 2; low++) {
                int row = low * 8 + g, col = index_of(permutes_cols, j, t * 2);
                const scalar *r = accum[slab][j] + low * 2;

                if constexpr (permutes_cols) {
                    smem_from_accum_1(s_slab, row, col, r[0]);
                    smem_from_accum_1(s_slab, row, index_of(true, j, t * 2 + 1), r[1]);
                } else {
                    smem_from_accum_2(s_slab, row, col, r[0], r[1]);
                }
            }
    }
};

template <int M, int N>
struct warp_tile<cfg::unit_mma_16, M, N> : warp_tile_mma<cfg::unit_mma_16, M, N> {
    using warp_tile_mma<cfg::unit_mma_16, M, N>::warp_tile_mma;
};

template <int M, int N>
struct warp_tile<cfg::unit_mma_8, M, N> : warp_tile_mma<cfg::unit_mma_8, M, N> {
    using warp_tile_mma<cfg::unit_mma_8, M, N>::warp_tile_mma;
};
