/*
 * prmt: four bytes picked out of eight. Nibble i of the selector names the source of byte i: 0-3
 * of a, 4-7 of b.
 */
#pragma once

#include "ptx/target.cuh"

DEVICE u32 prmt(u32 a, u32 b, u32 selector)
{
    u32 d;

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}
