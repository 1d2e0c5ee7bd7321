/*
 * One product of 16-bit fragments, m16n8k16, of the input's type: D += A * B.
 */
#pragma once

#include "base/config.cuh"
#include "ptx/mma_sync.cuh"

DEVICE void accum_from_product_16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    if constexpr (cfg::input == cfg::bf16)
        mma_m16n8k16_f32_bf16(d, a, b0, b1, d);
    else
        mma_m16n8k16_f32_f16(d, a, b0, b1, d);
}
