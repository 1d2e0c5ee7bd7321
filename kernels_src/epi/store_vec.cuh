/*
 * The way out: accumulators to a slab of shared memory, and from there in whole rows to D, so that
 * stores (and loads of C) are wide and coalesced whatever the fragment layout is. A warp uses its
 * own slab, so lanes of one warp are all that must meet.
 *
 * D may be C: each element of C is read by the lane that then writes it.
 */
#pragma once

#include "epi/ops.cuh"
#include "mma/warp_tile.cuh"
#include "ptx/global.cuh"
#include "ptx/sync.cuh"

/* Where the warp tile lies in D and C, and how much of it exists. */
struct window {
    u64 g_c, g_d; /* its first element; g_c is read only when the epilogue says so */
    i64 ldc, ldd;
    i64 row, col; /* of that element in D */
    int rows, cols;
};

template <int COUNT> union accumulator_bits {
    scalar values[COUNT];
    u32 words[COUNT * sizeof(scalar) / 4];
    u32 quads[(COUNT * sizeof(scalar) + 15) / 16][4];
};

/* COUNT accumulators of one slab row, 16 bytes or one of them at a time. */
template <int COUNT> DEVICE void regs_from_slab(scalar (&r)[COUNT], u32 s_address)
{
    if constexpr (COUNT == 1 && sizeof(scalar) == 8) {
        r[0] = ld_shared_f64(s_address);
    } else if constexpr (COUNT == 1) {
        accumulator_bits<1> bits;

        bits.words[0] = ld_shared_u32(s_address);
        r[0] = bits.values[0];
    } else {
        accumulator_bits<COUNT> bits;

#pragma unroll
        for (int i = 0; i < COUNT * (int)sizeof(scalar) / 16; i++)
            ld_shared_v4_u32(bits.quads[i], s_address + i * 16);
#pragma unroll
        for (int e = 0; e < COUNT; e++)
            r[e] = bits.values[e];
    }
}

DEVICE u64 element_address(u64 g_base, i64 ld, int row, int col)
{
    return element_address(g_base, row * ld + col);
}

DEVICE void
gmem_from_slab_element(const window &to, const epilogue &op, int row, int col, scalar r_accum)
{
    scalar r[1] = {r_accum}, r_c[1] = {0};

    if (op.reads_c)
        r_c[0] = reg_from_gmem(element_address(to.g_c, to.ldc, row, col));
    op.apply(r, r_c, to.row + row, to.col + col);
    gmem_from_reg(element_address(to.g_d, to.ldd, row, col), r[0]);
}

constexpr int out_chunk = 16 / cfg::output_size;
constexpr int part = cfg::copies_elements ? 1 : out_chunk; /* what a lane takes at once */

/* Elements of 16 bytes, as the memory has them. */
union out_chunk_bits {
    u32 words[4];
    out::bits elements[out_chunk];
};

DEVICE void gmem_from_slab_chunk(
    const window &to, const epilogue &op, int row, int col, scalar (&r_accum)[out_chunk])
{
    out_chunk_bits r;
    scalar r_c[out_chunk] = {};

    if (op.reads_c) {
        ld_global_v4_u32(r.words, element_address(to.g_c, to.ldc, row, col));
#pragma unroll
        for (int e = 0; e < out_chunk; e++)
            r_c[e] = out::from_bits(r.elements[e]);
    }
    op.apply(r_accum, r_c, to.row + row, to.col + col);
#pragma unroll
    for (int e = 0; e < out_chunk; e++)
        r.elements[e] = out::to_bits(r_accum[e]);
    st_global_v4_u32(element_address(to.g_d, to.ldd, row, col), r.words);
}

/* One row of a slab from `col` on: a chunk, or single elements where rows start anywhere or the
 * matrix ends inside the chunk. */
DEVICE void
gmem_from_slab_part(const window &to, const epilogue &op, u32 s_slab_row, int row, int col)
{
    if (!cfg::copies_elements && col + part <= to.cols) {
        scalar r_accum[out_chunk];

        regs_from_slab(r_accum, s_slab_row + col * cfg::accumulator_size);
        gmem_from_slab_chunk(to, op, row, col, r_accum);
    } else {
        int end = min_of(col + part, to.cols);

#pragma unroll 1
        for (; col < end; col++) {
            scalar r_accum[1];

            regs_from_slab(r_accum, s_slab_row + col * cfg::accumulator_size);
            gmem_from_slab_element(to, op, row, col, r_accum[0]);
        }
    }
}

template <typename WARP>
DEVICE void gmem_from_slab(const window &to, const epilogue &op, u32 s_slab, int slab, int lane)
{
    constexpr int row_parts = cfg::warp_n / part;

#pragma unroll 1
    for (int i = 0; i < smem::slab_rows * row_parts / 32; i++) {
        int slab_row = (i * 32 + lane) / row_parts, col = (i * 32 + lane) % row_parts * part;
        int row = WARP::slab_row(slab, slab_row);

        if (row < to.rows && col < to.cols)
            gmem_from_slab_part(to, op, slab_address(s_slab, slab_row, 0), row, col);
    }
}

template <typename WARP>
DEVICE void
gmem_from_accum(const window &to, const epilogue &op, const WARP &warp, u32 s_slab, int lane)
{
#pragma unroll 1
    for (int slab = 0; slab < WARP::slabs; slab++) {
        /* Accumulators are registers and cannot be indexed: each slab has its own way to shared
         * memory, but all have the long way from there in common. */
#pragma unroll
        for (int i = 0; i < WARP::slabs; i++)
            if (i == slab)
                warp.smem_from_accum(s_slab, i);
        bar_warp_sync(0xffffffffu);
        gmem_from_slab<WARP>(to, op, s_slab, slab, lane);
        bar_warp_sync(0xffffffffu); /* before the next slab overwrites this one */
    }
}
