#pragma once

#include "ptx/target.cuh"

inline u32 shf_r_wrap(u32 a, u32 b, u32 c)
{
    return (u32)((a | (u64)b << 32) >> (c & 31));
}
