/*
 * Functions of the special function unit. Subnormals count as zeros, on both sides.
 */
#pragma once

#include "ptx/target.cuh"

/* 2^a within 2^-22 of it; 0 and Inf beyond the range. */
DEVICE float ex2_approx_ftz_f32(float a)
{
    float d;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}

/* 1 / a within 1 ulp. */
DEVICE float rcp_approx_ftz_f32(float a)
{
    float d;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}
