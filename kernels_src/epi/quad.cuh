/*
 * From a fragment's pairs to chunks of 16 bytes: a lane has two neighbours of a row, the four lanes
 * of a quad eight.
 */
#pragma once

#include "base/config.cuh"
#include "ptx/cvt.cuh"
#include "ptx/warp.cuh"

/* Two neighbouring elements of 16 bits, the left one low. */
DEVICE u32 pack_pair(float left, float right)
{
    if constexpr (cfg::output == cfg::bf16)
        return cvt_rn_bf16x2_f32(right, left);
    else
        return cvt_rn_f16x2_f32(right, left);
}

/* Word i of lane q of a quad becomes word q of its lane i. */
DEVICE void quad_transpose(u32 (&r)[4], u32 lane)
{
    bool is_odd = lane & 1, is_high = lane & 2;

#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        u32 taken = shfl_sync_bfly(is_odd ? r[i] : r[i + 1], 1);

        r[i] = is_odd ? taken : r[i];
        r[i + 1] = is_odd ? r[i + 1] : taken;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 taken = shfl_sync_bfly(is_high ? r[i] : r[i + 2], 2);

        r[i] = is_high ? taken : r[i];
        r[i + 2] = is_high ? r[i + 2] : taken;
    }
}
