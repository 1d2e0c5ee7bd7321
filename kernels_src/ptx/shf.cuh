/*
 * shf: a funnel shift, 32 bits out of the 64 of two registers.
 */
#pragma once

#include "ptx/target.cuh"

/* Low word of b:a shifted right by c modulo 32. */
DEVICE u32 shf_r_wrap(u32 a, u32 b, u32 c)
{
    u32 d;

    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
