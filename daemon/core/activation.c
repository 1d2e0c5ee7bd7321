#include "activation.h"

#include <math.h>
#include <string.h>

#define SQRT_1_2        0.70710678118654752440
#define SQRT_8_OVER_PI  1.59576912160573071176 /* 2 sqrt(2 / pi) */
#define GELU_TANH_CUBIC 0.044715

struct activation_facts {
    const char *name;
    double slope; /* the largest magnitude of the derivative, rounded up */
    /* Of the function as kernels compute it, in units of u |x|. fp32: 0.5 for the polynomial, 4 for
     * ex2 (2^-22), 2 for 1 + ex2 and its reciprocal, 1 for the last product, and 2 for the
     * exponent's rounding, whose effect is largest where it is small. fp64 has less. */
    double own;
};

static const struct activation_facts facts[ACTIVATION_COUNT] = {
    [ACTIVATION_NONE] = {"none", 1, 0},     [ACTIVATION_RELU] = {"relu", 1, 0},
    [ACTIVATION_GELU] = {"gelu", 1.13, 10}, [ACTIVATION_GELU_TANH] = {"gelu_tanh", 1.13, 10},
    [ACTIVATION_SILU] = {"silu", 1.1, 10},
};

static const struct activation_facts *facts_of(enum activation activation)
{
    return &facts[(unsigned)activation < ACTIVATION_COUNT ? activation : ACTIVATION_NONE];
}

const char *activation_name(enum activation activation)
{
    return facts_of(activation)->name;
}

bool activation_from_name(const char *name, size_t length, enum activation *ret_activation)
{
    for (int i = 0; i < ACTIVATION_COUNT; i++) {
        if (strlen(facts[i].name) == length && memcmp(facts[i].name, name, length) == 0) {
            *ret_activation = (enum activation)i;
            return true;
        }
    }
    return false;
}

bool activation_is_valid(enum activation activation, enum dtype output)
{
    if ((unsigned)activation >= ACTIVATION_COUNT)
        return false;
    return output != DTYPE_INT32 || activation <= ACTIVATION_RELU;
}

double activation_apply(enum activation activation, double x)
{
    switch (activation) {
    case ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case ACTIVATION_GELU:
        return 0.5 * x * erfc(-x * SQRT_1_2);
    case ACTIVATION_GELU_TANH:
        return x / (1 + exp(-SQRT_8_OVER_PI * (x + GELU_TANH_CUBIC * x * x * x)));
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

double activation_error(enum activation activation, double x, double error, double unit_roundoff)
{
    const struct activation_facts *of = facts_of(activation);

    return of->slope * error + of->own * unit_roundoff * fabs(x);
}
