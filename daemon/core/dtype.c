/*
 * Element types: names, sizes, conversions, error bound.
 *
 * The 16-bit formats are handled as bit patterns, so that host and tests do not depend on compiler
 * support for them. Elements are read and written with memcpy: operands may lie at any address.
 */
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct dtype_facts {
    const char *name;
    size_t size;
    /* Of a floating type: half the distance from 1 to the next number, and the smallest subnormal.
     * 0 for integers, whose results are exact. */
    double unit_roundoff, smallest;
};

static const struct dtype_facts facts[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", 0, 0, 0},
    [DTYPE_BF16] = {"bf16", 2, 0x1p-8, 0x1p-133},
    [DTYPE_FP16] = {"fp16", 2, 0x1p-11, 0x1p-24},
    [DTYPE_FP32] = {"fp32", 4, 0x1p-24, 0x1p-149},
    [DTYPE_FP64] = {"fp64", 8, 0x1p-53, 0x1p-1074},
    [DTYPE_INT8] = {"int8", 1, 0, 0},
    [DTYPE_INT32] = {"int32", 4, 0, 0},
};

/* Numbers arrive from the wire: anything outside the table reads as DTYPE_NONE. */
static const struct dtype_facts *facts_of(enum dtype dtype)
{
    return &facts[(unsigned)dtype < DTYPE_COUNT ? dtype : DTYPE_NONE];
}

const char *dtype_name(enum dtype dtype)
{
    return facts_of(dtype)->name;
}

bool dtype_from_name(const char *name, size_t length, enum dtype *ret_dtype)
{
    for (int i = DTYPE_NONE + 1; i < DTYPE_COUNT; i++) {
        if (strlen(facts[i].name) == length && memcmp(facts[i].name, name, length) == 0) {
            *ret_dtype = (enum dtype)i;
            return true;
        }
    }
    return false;
}

size_t dtype_size(enum dtype dtype)
{
    return facts_of(dtype)->size;
}

enum dtype dtype_default_output(enum dtype input)
{
    return input == DTYPE_INT8 ? DTYPE_INT32 : input;
}

bool dtype_pair_is_valid(enum dtype input, enum dtype output)
{
    switch (input) {
    case DTYPE_BF16:
    case DTYPE_FP16:
        return output == input || output == DTYPE_FP32;
    case DTYPE_FP32:
    case DTYPE_FP64:
        return output == input;
    case DTYPE_INT8:
        return output == DTYPE_INT32;
    default:
        return false;
    }
}

static uint32_t bits_from_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

uint16_t bf16_from_float(float value)
{
    uint32_t bits = bits_from_float(value);

    /* A payload in the low half only would be cut to Inf: set the quiet bit. */
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    /* Half an ulp, less one bit when the last kept bit is even; the carry runs up to Inf. */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float float_from_bf16(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t fp16_from_float(float value)
{
    uint32_t bits = bits_from_float(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    /* 65520 lies half-way between the largest number and the next power of two, and ties to it. */
    if (magnitude >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    /* Below 2^-14: adding 0.5 makes the FPU round at 2^-24, the distance of the subnormals. */
    if (magnitude < 0x38800000) {
        float shifted = float_from_bits(magnitude) + 0.5f;

        return (uint16_t)(sign | (bits_from_float(shifted) - 0x3f000000));
    }
    magnitude -= 112u << 23; /* exponent bias 127 to 15 */
    return (uint16_t)(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

float float_from_fp16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f;
    uint32_t fraction = bits & 0x3ff;

    if (exponent == 0x1f)
        return float_from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;

        return sign ? -magnitude : magnitude;
    }
    return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

double dtype_load(enum dtype dtype, const void *base, size_t index)
{
    const unsigned char *p = (const unsigned char *)base + index * dtype_size(dtype);

    switch (dtype) {
#define LOAD(type, convert)                                                                        \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, p, sizeof(value));                                                          \
        return (double)convert(value);                                                             \
    }
    case DTYPE_BF16:
        LOAD(uint16_t, float_from_bf16)
    case DTYPE_FP16:
        LOAD(uint16_t, float_from_fp16)
    case DTYPE_FP32:
        LOAD(float, )
    case DTYPE_FP64:
        LOAD(double, )
    case DTYPE_INT8:
        LOAD(int8_t, )
    case DTYPE_INT32:
        LOAD(int32_t, )
#undef LOAD
    default:
        return 0;
    }
}

/*
 * Rounds to float "to odd": an inexact result gets an odd last bit. Rounding it once more to a
 * format at least two bits shorter then equals rounding the double directly; nearest-even twice
 * would not (Boldo and Melquiond, When double rounding is odd).
 */
static float float_to_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits = bits_from_float(nearest);

    if (isnan(value) || (double)nearest == value || bits & 1)
        return nearest;
    return float_from_bits(fabs((double)nearest) > fabs(value) ? bits - 1 : bits + 1);
}

/* Nearest even, then modulo 2^32: what an int32 accumulator would hold. NaN and Inf give 0. */
static uint32_t wrapped_from_double(double value)
{
    double whole = fmod(rint(value), 0x1p32);

    return isfinite(whole) ? (uint32_t)(int64_t)whole : 0;
}

void dtype_store(enum dtype dtype, void *base, size_t index, double value)
{
    unsigned char *p = (unsigned char *)base + index * dtype_size(dtype);

    switch (dtype) {
#define STORE(type, expression)                                                                    \
    {                                                                                              \
        type stored = (expression);                                                                \
        memcpy(p, &stored, sizeof(stored));                                                        \
        break;                                                                                     \
    }
    case DTYPE_BF16:
        STORE(uint16_t, bf16_from_float(float_to_odd(value)))
    case DTYPE_FP16:
        STORE(uint16_t, fp16_from_float(float_to_odd(value)))
    case DTYPE_FP32:
        STORE(float, (float)value)
    case DTYPE_FP64:
        STORE(double, value)
    case DTYPE_INT8:
        STORE(uint8_t, (uint8_t)wrapped_from_double(value))
    case DTYPE_INT32:
        STORE(uint32_t, wrapped_from_double(value))
#undef STORE
    default:
        break;
    }
}

/*
 * The constant c, counted for the worst path there is.
 *
 * Accumulation. A chain of fp32 or fp64 FMAs in any order or blocking errs by at most K u |A||B|
 * (Higham, section 3.1). Tensor cores multiply exactly, align the products of one step (k' of them,
 * 8 or more) and the accumulator to the largest and cut them off there, then cut the sum: 2u per
 * addend rather than u (Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores,
 * PeerJ CS 2021). That is 2 (k' + 2) u per step, 2.5 K u in all.
 *
 * Epilogue, once per element: alpha and beta rounded to the accumulator type, two products, one
 * sum: 3u on alpha AB and 3u on beta C. A bias is one sum more, u on all three; it counts as part
 * of beta C.
 *
 * 4 K covers both for every K >= 1 (at K = 1 a tensor core's product is exact and a FMA's errs by
 * u; alpha, C and a bias together, all of them inexact, could add up to 5). The bound grows with K
 * and true errors hardly do, so it is sharp for small K only: a product secretly made in tf32 (up
 * to 2^-10 |A||B|) shows below K = 100 or so, which is why every test of accuracy has small K among
 * its shapes.
 */
#define BOUND_CONSTANT 4.0

double dtype_accumulator_roundoff(enum dtype input)
{
    if (input == DTYPE_INT8)
        return 0;
    return input == DTYPE_FP64 ? facts[DTYPE_FP64].unit_roundoff : facts[DTYPE_FP32].unit_roundoff;
}

double dtype_accumulated_error(enum dtype input, int64_t k, double abs_alpha_ab, double abs_beta_c)
{
    double u = BOUND_CONSTANT * dtype_accumulator_roundoff(input);

    return u * (double)k * abs_alpha_ab + u * abs_beta_c;
}

double dtype_rounding_error(enum dtype output, double value)
{
    const struct dtype_facts *out = facts_of(output);

    return out->unit_roundoff * fabs(value) + out->smallest;
}

double dtype_error_bound(enum dtype input,
                         enum dtype output,
                         int64_t k,
                         double reference,
                         double abs_alpha_ab,
                         double abs_beta_c)
{
    return dtype_rounding_error(output, reference) +
           dtype_accumulated_error(input, k, abs_alpha_ab, abs_beta_c);
}
