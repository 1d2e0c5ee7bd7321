/*
 * The words of CUDA C++ that kernels_src/ uses, for a C++ compiler of the host. Included before
 * everything else; machine.h says what runs the threads.
 */
#pragma once

#include "machine.h"

#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (machine::now().thread)
#define blockIdx  (machine::now().cta)
#define gridDim   (machine::now().grid)

template <typename TO, typename FROM> inline TO bits_cast(FROM from)
{
    TO to;

    static_assert(sizeof to == sizeof from, "bits are bits");
    memcpy(&to, &from, sizeof to);
    return to;
}

inline float __uint_as_float(unsigned int bits)
{
    return bits_cast<float>(bits);
}

inline unsigned int __float_as_uint(float value)
{
    return bits_cast<unsigned int>(value);
}

inline double __longlong_as_double(long long bits)
{
    return bits_cast<double>(bits);
}

inline long long __double_as_longlong(double value)
{
    return bits_cast<long long>(value);
}
