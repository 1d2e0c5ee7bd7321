/*
 * Conversions between fp32 and the 16-bit types; nearest even. The packed forms take the upper
 * half first, as the ISA does.
 */
#pragma once

#include "ptx/target.cuh"

DEVICE u32 cvt_rn_bf16x2_f32(float upper, float lower)
{
    u32 d;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(upper), "f"(lower));
    return d;
}

DEVICE u32 cvt_rn_f16x2_f32(float upper, float lower)
{
    u32 d;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(upper), "f"(lower));
    return d;
}

DEVICE float cvt_f32_f16(u16 a)
{
    float d;

    asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(a));
    return d;
}
