/*
 * Activation functions: names, what they are, and what they do to errors.
 *
 * Numbers are ABI (kernels_src/abi/job.h), names are wire format (proto/protocol.md).
 */
#pragma once

#include "dtype.h"
#include "std.h"

enum activation {
    ACTIVATION_NONE = 0,
    ACTIVATION_RELU = 1,      /* max(x, 0) */
    ACTIVATION_GELU = 2,      /* x (1 + erf(x / sqrt 2)) / 2 */
    ACTIVATION_GELU_TANH = 3, /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    ACTIVATION_SILU = 4,      /* x / (1 + exp(-x)) */
    ACTIVATION_COUNT,
};

const char *activation_name(enum activation activation); /* "none", "relu", "gelu", ... */
bool activation_from_name(const char *name, size_t length, enum activation *ret_activation);
/* Integers have none and relu, of the number that their 32 bits are. */
bool activation_is_valid(enum activation activation, enum dtype output);

/* In double, to an ulp or two. NaN stays NaN; relu(-Inf) is 0, gelu(-Inf) and silu(-Inf) are NaN,
 * as the formulas say. */
double activation_apply(enum activation activation, double x);

/*
 * How far act(x + e) computed may be from act(x) for any |e| <= `error`: the function's steepest
 * slope times the error, and the function's own error, a few units of `unit_roundoff` (of the type
 * it is computed in) of x. `error` itself when there is no function.
 */
double activation_error(enum activation activation, double x, double error, double unit_roundoff);
