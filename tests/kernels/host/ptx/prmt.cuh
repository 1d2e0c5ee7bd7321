#pragma once

#include "ptx/target.cuh"

inline u32 prmt(u32 a, u32 b, u32 selector)
{
    u64 bytes = a | (u64)b << 32;
    u32 d = 0;

    for (int i = 0; i < 4; i++)
        d |= (u32)(bytes >> (selector >> i * 4 & 7) * 8 & 0xff) << i * 8;
    return d;
}
