#include "../../daemon/core/dtype.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* A 16-bit format from its definition, as an oracle that shares nothing with the code. */
struct format {
    enum dtype dtype;
    int fraction_bits, bias;
};

static const struct format formats[] = {
    {DTYPE_BF16, 7, 127},
    {DTYPE_FP16, 10, 15},
};

static uint16_t infinity_of(const struct format *f)
{
    return 0x7fff >> f->fraction_bits << f->fraction_bits;
}

static double value_by_definition(const struct format *f, uint16_t bits)
{
    int exponent = (bits & 0x7fff) >> f->fraction_bits;
    int fraction = bits & ((1 << f->fraction_bits) - 1);
    double magnitude;

    if ((bits & 0x7fff) >= infinity_of(f))
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, 1 - f->bias - f->fraction_bits);
    else
        magnitude =
            ldexp(fraction + (1 << f->fraction_bits), exponent - f->bias - f->fraction_bits);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static uint16_t stored(enum dtype dtype, double value)
{
    uint16_t bits = 0xdead;

    dtype_store(dtype, &bits, 0, value);
    return bits;
}

static uint16_t from_float(const struct format *f, float value)
{
    return f->dtype == DTYPE_BF16 ? bf16_from_float(value) : fp16_from_float(value);
}

static float to_float(const struct format *f, uint16_t bits)
{
    return f->dtype == DTYPE_BF16 ? float_from_bf16(bits) : float_from_fp16(bits);
}

Test(dtype, reads_every_16_bit_pattern_as_its_format_defines)
{
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            double expected = value_by_definition(&formats[i], (uint16_t)bits);
            double got = to_float(&formats[i], (uint16_t)bits);

            if (isnan(expected))
                cr_assert(isnan(got), "%s %04x", dtype_name(formats[i].dtype), bits);
            else
                cr_assert(got == expected && !signbit(got) == !signbit(expected), "%s %04x: %a",
                          dtype_name(formats[i].dtype), bits, got);
        }
    }
}

Test(dtype, writes_back_every_16_bit_pattern_it_read)
{
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            float value = to_float(&formats[i], (uint16_t)bits);
            uint16_t back = from_float(&formats[i], value);

            if (isnan(value))
                cr_assert(isnan(to_float(&formats[i], back)) && (back & 0x8000) == (bits & 0x8000));
            else
                cr_assert_eq(back, bits);
        }
    }
}

/* Between each number and the next: the middle goes to the even one, its neighbours to their side.
 * Doubles next to the middle would fall on it if they were first rounded to float. */
Test(dtype, rounds_to_nearest_even_from_float_and_from_double)
{
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        const struct format *f = &formats[i];

        for (uint16_t low = 0; low < infinity_of(f); low++) {
            uint16_t high = low + 1, even = low & 1 ? high : low;
            double a = value_by_definition(f, low);
            double b = high == infinity_of(f) ? 2 * a - value_by_definition(f, low - 1)
                                              : value_by_definition(f, high);
            double middle = a + (b - a) / 2;

            cr_assert_eq(stored(f->dtype, middle), even, "%04x", low);
            cr_assert_eq(stored(f->dtype, -middle), even | 0x8000, "%04x", low);
            cr_assert_eq(stored(f->dtype, nextafter(middle, a)), low, "%04x", low);
            cr_assert_eq(stored(f->dtype, nextafter(middle, 2 * b)), high, "%04x", low);
            cr_assert_eq(from_float(f, (float)middle), (float)middle == middle ? even : low);
            cr_assert_eq(from_float(f, nextafterf((float)middle, (float)a)), low);
            cr_assert_eq(from_float(f, nextafterf((float)middle, INFINITY)), high);
        }
    }
}

Test(dtype, overflows_to_infinity_and_keeps_nan)
{
    cr_assert_eq(fp16_from_float(65519.0f), 0x7bff);
    cr_assert_eq(fp16_from_float(65520.0f), 0x7c00);
    cr_assert_eq(fp16_from_float(-INFINITY), 0xfc00);
    cr_assert_eq(stored(DTYPE_BF16, DBL_MAX), 0x7f80);
    cr_assert_eq(stored(DTYPE_BF16, -DBL_MAX), 0xff80);
    cr_assert_eq(stored(DTYPE_FP16, DBL_MIN), 0);

    /* NaNs whose payload lies in the bits that are cut. */
    for (uint32_t payload = 1; payload < 1u << 16; payload <<= 1) {
        uint32_t bits = 0x7f800000 | payload;
        float nan;

        memcpy(&nan, &bits, sizeof(nan));
        cr_assert(isnan(float_from_bf16(bf16_from_float(nan))));
        cr_assert(isnan(float_from_fp16(fp16_from_float(nan))));
    }
}

Test(dtype, stores_integers_modulo_their_width)
{
    int32_t words[2] = {7, 7};
    int8_t bytes[2] = {7, 7};

    dtype_store(DTYPE_INT32, words, 1, 0x1p32 + 5);
    cr_assert_eq(words[1], 5);
    dtype_store(DTYPE_INT32, words, 1, 2147483648.0);
    cr_assert_eq(words[1], INT32_MIN);
    dtype_store(DTYPE_INT32, words, 1, -0x1p52 - 1);
    cr_assert_eq(words[1], -1);
    dtype_store(DTYPE_INT32, words, 1, INFINITY);
    cr_assert_eq(words[1], 0);
    dtype_store(DTYPE_INT8, bytes, 1, 200);
    cr_assert_eq(bytes[1], -56);
    cr_assert_eq(words[0], 7);
    cr_assert_eq(bytes[0], 7);
    cr_assert_eq(dtype_load(DTYPE_INT8, bytes, 1), -56);
}

Test(dtype, loads_and_stores_at_any_address)
{
    unsigned char memory[64];

    for (int i = 1; i < DTYPE_COUNT; i++) {
        enum dtype dtype = (enum dtype)i;

        memset(memory, 0xa5, sizeof(memory));
        dtype_store(dtype, memory + 1, 2, -3);
        cr_assert_eq(dtype_load(dtype, memory + 1, 2), -3, "%s", dtype_name(dtype));
        cr_assert_eq(memory[2 * dtype_size(dtype)], 0xa5);
        cr_assert_eq(memory[1 + 3 * dtype_size(dtype)], 0xa5);
    }
}

Test(dtype, finds_names_and_refuses_others)
{
    enum dtype dtype = DTYPE_NONE;

    for (int i = 1; i < DTYPE_COUNT; i++) {
        const char *name = dtype_name((enum dtype)i);

        cr_assert(dtype_from_name(name, strlen(name), &dtype));
        cr_assert_eq(dtype, i);
        cr_assert_not(dtype_from_name(name, strlen(name) - 1, &dtype));
    }
    cr_assert_not(dtype_from_name("none", 4, &dtype));
    cr_assert_not(dtype_from_name("", 0, &dtype));
    cr_assert_not(dtype_from_name("FP32", 4, &dtype));
    cr_assert_str_eq(dtype_name((enum dtype)99), "none");
    cr_assert_eq(dtype_size((enum dtype) - 1), 0);
}

Test(dtype, pairs_each_input_with_its_outputs)
{
    int pairs = 0;

    for (int in = -1; in <= DTYPE_COUNT; in++) {
        for (int out = -1; out <= DTYPE_COUNT; out++)
            pairs += dtype_pair_is_valid((enum dtype)in, (enum dtype)out);
    }
    cr_assert_eq(pairs, 7);
    for (int in = DTYPE_BF16; in <= DTYPE_INT8; in++)
        cr_assert(dtype_pair_is_valid((enum dtype)in, dtype_default_output((enum dtype)in)));
    cr_assert(dtype_pair_is_valid(DTYPE_FP16, DTYPE_FP32));
    cr_assert_not(dtype_pair_is_valid(DTYPE_INT8, DTYPE_INT8));
}

/* The unit roundoff is what rounding to the type really costs: reached half-way above 1. */
Test(dtype, bounds_the_rounding_of_each_output_type_tightly)
{
    static const enum dtype outputs[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32};

    for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
        double value = 1, rounded, ulp = 1, error, bound;
        unsigned char memory[8];

        for (dtype_store(outputs[i], memory, 0, 1 + ulp / 2); dtype_load(outputs[i], memory, 0) > 1;
             dtype_store(outputs[i], memory, 0, 1 + ulp / 2))
            ulp /= 2;
        value = 1 + ulp / 2;
        dtype_store(outputs[i], memory, 0, value);
        rounded = dtype_load(outputs[i], memory, 0);
        error = fabs(rounded - value);
        bound = dtype_error_bound(outputs[i], outputs[i], 1, value, 0, 0);
        cr_assert_leq(error, bound, "%s", dtype_name(outputs[i]));
        cr_assert_gt(error, bound * 0.4, "%s: bound %g, error %g", dtype_name(outputs[i]), bound,
                     error);
    }
}

Test(dtype, bound_grows_with_k_and_is_zero_for_integers)
{
    double one = dtype_error_bound(DTYPE_FP32, DTYPE_FP32, 1, 0, 1, 0);
    double many = dtype_error_bound(DTYPE_FP32, DTYPE_FP32, 1000, 0, 1, 0);

    cr_assert_float_eq(many / one, 1000, 1e-3);
    cr_assert_lt(dtype_error_bound(DTYPE_FP64, DTYPE_FP64, 1, 1, 1, 1), 1e-14);
    cr_assert_gt(dtype_error_bound(DTYPE_FP32, DTYPE_FP32, 0, 0, 0, 0), 0);
    cr_assert_eq(dtype_error_bound(DTYPE_INT8, DTYPE_INT32, 1000, 1e9, 1e9, 1e9), 0);
}

Test(dtype, bound_catches_tf32_behind_fp32_at_small_k)
{
    cr_assert_lt(dtype_error_bound(DTYPE_FP32, DTYPE_FP32, 20, 1, 1, 0), 0x1p-11);
}
