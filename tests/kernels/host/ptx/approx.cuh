#pragma once

#include "ptx/target.cuh"

#include <math.h>

inline float ex2_approx_ftz_f32(float a)
{
    return exp2f(a);
}

inline float rcp_approx_ftz_f32(float a)
{
    return 1 / a;
}
