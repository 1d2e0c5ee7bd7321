#include "../../daemon/core/activation.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(activation, has_the_values_that_the_formulas_say)
{
    static const struct {
        enum activation activation;
        double x, value;
    } cases[] = {
        {ACTIVATION_NONE, -2, -2},
        {ACTIVATION_RELU, -2, 0},
        {ACTIVATION_RELU, 2, 2},
        {ACTIVATION_RELU, -INFINITY, 0},
        {ACTIVATION_GELU, 1, 0.84134474606854294859},
        {ACTIVATION_GELU, -3, -0.0040496940948902765},
        {ACTIVATION_GELU, 0, 0},
        {ACTIVATION_GELU_TANH, 1, 0.84119199060827670},
        {ACTIVATION_GELU_TANH, -3, -0.0036373920817729943},
        {ACTIVATION_SILU, 1, 0.73105857863000487925},
        {ACTIVATION_SILU, -20, -4.122307236380407e-08},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double got = activation_apply(cases[i].activation, cases[i].x);

        cr_expect_leq(fabs(got - cases[i].value), 1e-14 * fabs(cases[i].value), "%s(%g) is %.17g",
                      activation_name(cases[i].activation), cases[i].x, got);
    }
}

Test(activation, keeps_nan_and_large_numbers)
{
    for (int i = 0; i < ACTIVATION_COUNT; i++) {
        enum activation activation = (enum activation)i;

        cr_expect(isnan(activation_apply(activation, NAN)), "%s", activation_name(activation));
        cr_expect_eq(activation_apply(activation, 1e300), 1e300);
        cr_expect_eq(activation_apply(activation, INFINITY), INFINITY);
        if (activation != ACTIVATION_NONE)
            cr_expect_eq(activation_apply(activation, -1e300), 0);
    }
}

/* The slope in the bound is the steepest there is, found by differences. */
Test(activation, is_never_steeper_than_its_bound)
{
    for (int i = 0; i < ACTIVATION_COUNT; i++) {
        enum activation activation = (enum activation)i;
        double allowed = activation_error(activation, 0, 1, 0), steepest = 0;

        for (double x = -8; x < 8; x += 1.0 / 1024) {
            double rise =
                activation_apply(activation, x + 1.0 / 1024) - activation_apply(activation, x);

            steepest = fmax(steepest, fabs(rise) * 1024);
        }
        cr_expect_leq(steepest, allowed, "%s: %g", activation_name(activation), steepest);
        cr_expect_geq(steepest, 0.99 * allowed, "%s: %g", activation_name(activation), steepest);
    }
}

Test(activation, is_found_by_its_name_only)
{
    for (int i = 0; i < ACTIVATION_COUNT; i++) {
        const char *name = activation_name((enum activation)i);
        enum activation found;

        cr_assert(activation_from_name(name, strlen(name), &found));
        cr_expect_eq(found, i);
        cr_expect_not(activation_from_name(name, strlen(name) - 1, &found) &&
                      strncmp(name, "gelu_", 5) != 0);
    }
}

Test(activation, of_integers_is_none_or_relu)
{
    for (int i = 0; i < ACTIVATION_COUNT; i++) {
        cr_expect(activation_is_valid((enum activation)i, DTYPE_BF16));
        cr_expect_eq(activation_is_valid((enum activation)i, DTYPE_INT32), i <= ACTIVATION_RELU);
    }
    cr_expect_not(activation_is_valid(ACTIVATION_COUNT, DTYPE_FP32));
}
