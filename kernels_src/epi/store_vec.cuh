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
    int rows, cols;
};

typedef number<cfg::output> out;

template <typename BITS> DEVICE BITS ld_global_bits(u64 g_address)
{
    if constexpr (sizeof(BITS) == 2)
        return ld_global_u16(g_address);
    else if constexpr (sizeof(BITS) == 4)
        return ld_global_u32(g_address);
    else
        return ld_global_u64(g_address);
}

DEVICE void st_global_bits(u64 g_address, u16 bits)
{
    st_global_u16(g_address, bits);
}

DEVICE void st_global_bits(u64 g_address, u32 bits)
{
    st_global_u32(g_address, bits);
}

DEVICE void st_global_bits(u64 g_address, u64 bits)
{
    st_global_u64(g_address, bits);
}

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
    return g_base + (u64)((row * ld + col) * cfg::output_size);
}

DEVICE void
gmem_from_slab_element(const window &to, const epilogue &op, int row, int col, scalar r_accum)
{
    scalar r_c = 0;

    if (op.reads_c)
        r_c = out::from_bits(ld_global_bits<out::bits>(element_address(to.g_c, to.ldc, row, col)));
    st_global_bits(element_address(to.g_d, to.ldd, row, col), out::to_bits(op.apply(r_accum, r_c)));
}

constexpr int out_chunk = 16 / cfg::output_size;

/* Elements of 16 bytes, as the memory has them. */
union out_chunk_bits {
    u32 words[4];
    out::bits elements[out_chunk];
};

DEVICE void gmem_from_slab_chunk(
    const window &to, const epilogue &op, int row, int col, const scalar (&r_accum)[out_chunk])
{
    out_chunk_bits r;

    if (op.reads_c)
        ld_global_v4_u32(r.words, element_address(to.g_c, to.ldc, row, col));
#pragma unroll
    for (int e = 0; e < out_chunk; e++) {
        scalar r_c = op.reads_c ? out::from_bits(r.elements[e]) : (scalar)0;

        r.elements[e] = out::to_bits(op.apply(r_accum[e], r_c));
    }
    st_global_v4_u32(element_address(to.g_d, to.ldd, row, col), r.words);
}

/* Rows start on 16 bytes: whole chunks, and single elements where the matrix ends inside one. */
template <typename WARP>
DEVICE void
gmem_from_slab_chunks(const window &to, const epilogue &op, u32 s_slab, int slab, int lane)
{
    constexpr int row_chunks = cfg::warp_n / out_chunk;

#pragma unroll 1
    for (int i = lane; i < smem::slab_rows * row_chunks; i += 32) {
        int slab_row = i / row_chunks, col = i % row_chunks * out_chunk;
        int row = WARP::slab_row(slab, slab_row);
        scalar r_accum[out_chunk];

        if (row >= to.rows || col >= to.cols)
            continue;
        regs_from_slab(r_accum, slab_address(s_slab, slab_row, col));
        if (col + out_chunk <= to.cols) {
            gmem_from_slab_chunk(to, op, row, col, r_accum);
            continue;
        }
#pragma unroll
        for (int e = 0; e < out_chunk; e++)
            if (col + e < to.cols)
                gmem_from_slab_element(to, op, row, col + e, r_accum[e]);
    }
}

template <typename WARP>
DEVICE void
gmem_from_slab_elements(const window &to, const epilogue &op, u32 s_slab, int slab, int lane)
{
#pragma unroll 1
    for (int i = lane; i < smem::slab_rows * cfg::warp_n; i += 32) {
        int slab_row = i / cfg::warp_n, col = i % cfg::warp_n;
        int row = WARP::slab_row(slab, slab_row);
        scalar r_accum[1];

        if (row >= to.rows || col >= to.cols)
            continue;
        regs_from_slab(r_accum, slab_address(s_slab, slab_row, col));
        gmem_from_slab_element(to, op, row, col, r_accum[0]);
    }
}

template <typename WARP>
DEVICE void
gmem_from_accum(const window &to, const epilogue &op, const WARP &warp, u32 s_slab, int lane)
{
#pragma unroll
    for (int slab = 0; slab < WARP::slabs; slab++) {
        warp.smem_from_accum(s_slab, slab);
        bar_warp_sync(0xffffffffu);
        if constexpr (cfg::copies_elements)
            gmem_from_slab_elements<WARP>(to, op, s_slab, slab, lane);
        else
            gmem_from_slab_chunks<WARP>(to, op, s_slab, slab, lane);
        bar_warp_sync(0xffffffffu); /* before the next slab overwrites this one */
    }
}
