/*
 * Elements of C, D and the bias between global memory and registers, one at a time.
 */
#pragma once

#include "base/number.cuh"
#include "ptx/global.cuh"

typedef number<cfg::output> out;

DEVICE u64 element_address(u64 g_base, i64 index)
{
    return g_base + (u64)(index * cfg::output_size);
}

DEVICE scalar reg_from_gmem(u64 g_element)
{
    if constexpr (cfg::output_size == 2)
        return out::from_bits(ld_global_u16(g_element));
    else if constexpr (cfg::output_size == 4)
        return out::from_bits(ld_global_u32(g_element));
    else
        return out::from_bits(ld_global_u64(g_element));
}

DEVICE void gmem_from_reg(u64 g_element, scalar r)
{
    if constexpr (cfg::output_size == 2)
        st_global_u16(g_element, out::to_bits(r));
    else if constexpr (cfg::output_size == 4)
        st_global_u32(g_element, out::to_bits(r));
    else
        st_global_u64(g_element, out::to_bits(r));
}
