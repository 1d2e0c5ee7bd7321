/*
 * Registers from one warpgroup to another. All warps of the group execute it; the sum over a CTA
 * must stay what the launch gave, or the increase waits for ever.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

template <int COUNT> DEVICE void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> DEVICE void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
