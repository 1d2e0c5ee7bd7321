/*
 * CONFIG_COPY_ELEMENT: rows start anywhere, so elements are loaded one by one and packed into
 * chunks in registers. The registers are filled for the next K tile before the current one is
 * multiplied, and stored after.
 */
#pragma once

#include "load/operand.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"

template <typename TILE> struct chunk_registers {
    u32 r[operand<TILE>::chunks][4];
};

DEVICE void regs_from_gmem_chunk(u32 (&r_chunk)[4], u64 g_source, int elements)
{
#pragma unroll
    for (int w = 0; w < 4; w++)
        r_chunk[w] = 0;
#pragma unroll
    for (int e = 0; e < chunk_elements; e++) {
        u64 g_element = g_source + e * cfg::input_size;

        if (e >= elements)
            continue;
        if constexpr (cfg::input_size == 1) {
            r_chunk[e / 4] |= (u32)ld_global_u8(g_element) << e % 4 * 8;
        } else if constexpr (cfg::input_size == 2) {
            r_chunk[e / 2] |= (u32)ld_global_u16(g_element) << e % 2 * 16;
        } else if constexpr (cfg::input_size == 4) {
            r_chunk[e] = ld_global_u32(g_element);
        } else {
            u64 bits = ld_global_u64(g_element);

            r_chunk[e * 2] = (u32)bits;
            r_chunk[e * 2 + 1] = (u32)(bits >> 32);
        }
    }
}

template <typename TILE>
DEVICE void regs_from_gmem(chunk_registers<TILE> &to, operand<TILE> &from, int k_left)
{
#pragma unroll
    for (int i = 0; i < operand<TILE>::chunks; i++)
        regs_from_gmem_chunk(to.r[i], from.source(i), from.elements(i, k_left));
    from.advance();
}

template <typename TILE>
DEVICE void
smem_from_regs(u32 s_tile, const chunk_registers<TILE> &from, const operand<TILE> &place)
{
#pragma unroll
    for (int i = 0; i < operand<TILE>::chunks; i++)
        st_shared_v4_u32(s_tile + place.destination(i), from.r[i]);
}
