/*
 * The activation functions. NaN stays NaN; -Inf gives NaN where the function is x times a factor
 * that goes to 0 there, as everywhere else.
 *
 * In fp32 all but relu are one formula, x times the logistic function of an odd polynomial of x:
 *
 *   silu       x s(x)
 *   gelu_tanh  x s(2 sqrt(2 / pi) (x + 0.044715 x^3))       1 + tanh(y) is 2 s(2 y)
 *   gelu       x s(log(Phi(x) / Phi(-x))), Phi the normal distribution: the logarithm is odd and
 *              smooth, and 7 terms leave an error of 2^-25 |x|
 *
 * So which of them it is, is a matter of coefficients: an epilogue that is unrolled over all
 * accumulators of a thread holds the code once for all three, a dozen instructions an element,
 * where erff() and expf() by name would be several times that. Rounding, ex2 and rcp add less than
 * 4 units of 2^-24 |x|: core/activation.h has the sum in the bound.
 */
#pragma once

#include "base/number.cuh"
#include "ptx/approx.cuh"

/* Numbers of enum activation, daemon/core/activation.h. */
enum activation_kind : u32 {
    activation_none,
    activation_relu,
    activation_gelu,
    activation_gelu_tanh,
    activation_silu,
};

template <typename T> struct activation;

template <> struct activation<float> {
    static constexpr int terms = 7;
    static constexpr float t_max =
        1e4f; /* beyond it the factor is 0 or 1, and t^6 still a number */

    u32 kind;
    float coefficient[terms]; /* of x^1, x^3, ...; times -log2(e), as ex2 wants it */

    DEVICE explicit activation(u32 in_kind) : kind(in_kind)
    {
        bool is_gelu = kind == activation_gelu, is_tanh = kind == activation_gelu_tanh;

        coefficient[0] = is_gelu ? -2.3022094f : is_tanh ? -2.3022082f : -1.4426950f;
        coefficient[1] = is_gelu ? -0.10483512f : is_tanh ? -0.10294324f : 0;
        coefficient[2] = is_gelu ? 9.4049217e-5f : 0;
        coefficient[3] = is_gelu ? 1.5957994e-4f : 0;
        coefficient[4] = is_gelu ? -1.1439834e-5f : 0;
        coefficient[5] = is_gelu ? 3.8163131e-7f : 0;
        coefficient[6] = is_gelu ? -5.0672372e-9f : 0;
    }

    DEVICE float gated(float x) const
    {
        float t = x * x, power = coefficient[terms - 1];

        t = t < t_max ? t : t_max;
#pragma unroll
        for (int i = terms - 2; i >= 0; i--)
            power = power * t + coefficient[i];
        return x * rcp_approx_ftz_f32(1 + ex2_approx_ftz_f32(power * x));
    }

    template <int N> DEVICE void apply(float (&x)[N]) const
    {
        if (kind == activation_none)
            return;
        if (kind == activation_relu) {
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = x[i] < 0 ? 0 : x[i];
            return;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = gated(x[i]);
    }
};

/* fp64 epilogues are loops: the compiler's functions, to an ulp or two. */
template <> struct activation<double> {
    u32 kind;

    DEVICE explicit activation(u32 in_kind) : kind(in_kind)
    {
    }

    DEVICE double value(double x) const
    {
        switch (kind) {
        case activation_relu:
            return x < 0 ? 0 : x;
        case activation_gelu:
            return 0.5 * x * erfc(x * -0.70710678118654752440);
        case activation_gelu_tanh:
            return x / (1 + exp(x * (-1.5957691216057307117 - 0.071354816272600243 * x * x)));
        case activation_silu:
            return x / (1 + exp(-x));
        default:
            return x;
        }
    }

    template <int N> DEVICE void apply(double (&x)[N]) const
    {
#pragma unroll 1
        for (int i = 0; i < N; i++)
            x[i] = value(x[i]);
    }
};

/* Integers, modulo 2^32: of what the bits are as a signed number. */
template <> struct activation<u32> {
    u32 kind;

    DEVICE explicit activation(u32 in_kind) : kind(in_kind)
    {
    }

    template <int N> DEVICE void apply(u32 (&x)[N]) const
    {
        if (kind == activation_none)
            return;
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = (int)x[i] < 0 ? 0 : x[i];
    }
};
