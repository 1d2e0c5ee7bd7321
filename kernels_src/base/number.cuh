/*
 * Element types as bits: what the epilogue computes in, and how outputs are packed.
 *
 * `scalar` is the type of accumulators, alpha and beta: float, double, or u32 for integers, since
 * unsigned arithmetic is modulo 2^32 by definition.
 */
#pragma once

#include "base/config.cuh"
#include "ptx/cvt.cuh"

template <int INPUT> struct scalar_of {
    typedef float type;
};

template <> struct scalar_of<cfg::fp64> {
    typedef double type;
};

template <> struct scalar_of<cfg::int8> {
    typedef u32 type;
};

typedef scalar_of<cfg::input>::type scalar;

/* alpha and beta arrive as doubles; for integer products they hold integers. */
DEVICE scalar scalar_from_double(double value)
{
    if constexpr (cfg::input == cfg::int8)
        return (u32)(i64)value;
    else
        return (scalar)value;
}

/* One output element from and to its bits. */
template <int DTYPE> struct number;

template <> struct number<cfg::bf16> {
    typedef u16 bits;

    DEVICE static float from_bits(u16 r_bits)
    {
        return __uint_as_float((u32)r_bits << 16);
    }

    DEVICE static u16 to_bits(float value)
    {
        return (u16)cvt_rn_bf16x2_f32(0, value);
    }
};

template <> struct number<cfg::fp16> {
    typedef u16 bits;

    DEVICE static float from_bits(u16 r_bits)
    {
        return cvt_f32_f16(r_bits);
    }

    DEVICE static u16 to_bits(float value)
    {
        return (u16)cvt_rn_f16x2_f32(0, value);
    }
};

template <> struct number<cfg::fp32> {
    typedef u32 bits;

    DEVICE static float from_bits(u32 r_bits)
    {
        return __uint_as_float(r_bits);
    }

    DEVICE static u32 to_bits(float value)
    {
        return __float_as_uint(value);
    }
};

template <> struct number<cfg::fp64> {
    typedef u64 bits;

    DEVICE static double from_bits(u64 r_bits)
    {
        return __longlong_as_double((i64)r_bits);
    }

    DEVICE static u64 to_bits(double value)
    {
        return (u64)__double_as_longlong(value);
    }
};

template <> struct number<cfg::int32> {
    typedef u32 bits;

    DEVICE static u32 from_bits(u32 r_bits)
    {
        return r_bits;
    }

    DEVICE static u32 to_bits(u32 value)
    {
        return value;
    }
};
