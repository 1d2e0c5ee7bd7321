/*
 * CONFIG_COPY_V16: every row starts on 16 bytes, so chunks go from global to shared memory by
 * cp.async. src_size cuts the chunk where the matrix ends and fills it with zeros.
 */
#pragma once

#include "load/operand.cuh"
#include "ptx/cp_async.cuh"

template <typename TILE> DEVICE void smem_from_gmem(u32 s_tile, operand<TILE> &from, int k_left)
{
#pragma unroll
    for (int i = 0; i < operand<TILE>::chunks; i++)
        cp_async_cg_16(s_tile + from.destination(i), from.source(i),
                       (u32)(from.elements(i, k_left) * cfg::input_size));
    from.advance();
}
