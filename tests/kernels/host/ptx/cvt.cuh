#pragma once

#include "ptx/target.cuh"

extern "C" {
#include "../../../../daemon/core/dtype.h"
}

inline u32 cvt_rn_bf16x2_f32(float upper, float lower)
{
    return (u32)bf16_from_float(upper) << 16 | bf16_from_float(lower);
}

inline u32 cvt_rn_f16x2_f32(float upper, float lower)
{
    return (u32)fp16_from_float(upper) << 16 | fp16_from_float(lower);
}

inline float cvt_f32_f16(u16 a)
{
    return float_from_fp16(a);
}
