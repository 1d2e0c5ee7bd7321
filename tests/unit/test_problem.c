#include "../../daemon/core/problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct problem some(int64_t m, int64_t n, int64_t k, int64_t batch)
{
    struct problem problem = {
        .input = DTYPE_FP32,
        .output = DTYPE_FP32,
        .m = m,
        .n = n,
        .k = k,
        .batch = batch,
        .alpha = 1,
        .beta = 1,
    };

    problem_leave_layouts(&problem);
    return problem;
}

static struct problem some_filled(int64_t m, int64_t n, int64_t k, int64_t batch)
{
    struct problem problem = some(m, n, k, batch);

    problem_fill_defaults(&problem);
    return problem;
}

static void assert_accepts(const struct problem *problem)
{
    struct fault fault = FAULT_NONE;

    cr_assert_eq(problem_check(problem, false, &fault), STATUS_OK, "%s: %s", fault.argument,
                 fault.message);
}

/* The fault names the argument and both the given and the allowed value. */
static void assert_refuses(const struct problem *problem,
                           bool column_major,
                           const char *argument,
                           const char *given,
                           const char *allowed)
{
    struct fault fault = FAULT_NONE;

    cr_assert_neq(problem_check(problem, column_major, &fault), STATUS_OK, "%s accepted", argument);
    cr_assert_str_eq(fault.argument, argument, "%s: %s", fault.argument, fault.message);
    cr_assert(strstr(fault.message, given), "no '%s' in: %s", given, fault.message);
    cr_assert(strstr(fault.message, allowed), "no '%s' in: %s", allowed, fault.message);
}

Test(problem, fills_defaults_from_the_stored_shape)
{
    struct problem problem = some(3, 5, 7, 2);

    problem.trans_b = true;
    problem.operand[OPERAND_C].ld = 9;
    problem_fill_defaults(&problem);
    cr_assert_eq(problem.operand[OPERAND_A].ld, 7);
    cr_assert_eq(problem.operand[OPERAND_A].stride, 21);
    cr_assert_eq(problem.operand[OPERAND_B].ld, 7);
    cr_assert_eq(problem.operand[OPERAND_B].stride, 35);
    cr_assert_eq(problem.operand[OPERAND_C].stride, 27);
    cr_assert_eq(problem.operand[OPERAND_D].ld, 5);
}

Test(problem, accepts_unfilled_and_filled_alike)
{
    struct problem unfilled = some(3, 5, 7, 2), filled = some_filled(3, 5, 7, 2);

    assert_accepts(&unfilled);
    assert_accepts(&filled);
}

Test(problem, refuses_negative_sizes)
{
    const char *const names[] = {"m", "n", "k", "batch"};

    for (int i = 0; i < 4; i++) {
        int64_t size[4] = {2, 2, 2, 2};
        struct problem problem;

        size[i] = -1;
        problem = some(size[0], size[1], size[2], size[3]);
        assert_refuses(&problem, false, names[i], "-1", "not be negative");
        size[i] = INT64_MIN;
        problem = some(size[0], size[1], size[2], size[3]);
        assert_refuses(&problem, false, names[i], "-9223372036854775808", "not be negative");
    }
}

Test(problem, refuses_short_leading_dimensions_for_every_transposition)
{
    for (int flags = 0; flags < 4; flags++) {
        for (int i = 0; i < OPERAND_COUNT; i++) {
            struct problem problem = some(11, 12, 13, 1);
            char argument[16], given[16], allowed[32];
            int64_t least;

            problem.trans_a = flags & 1;
            problem.trans_b = flags & 2;
            problem.bias = flags & 1 ? BIAS_PER_ROW : BIAS_PER_COLUMN;
            least = problem_columns(&problem, (enum operand_role)i);
            problem.operand[i].ld = least;
            assert_accepts(&problem);

            problem.operand[i].ld = least - 1;
            snprintf(argument, sizeof(argument), "%s.ld", operand_name((enum operand_role)i));
            snprintf(given, sizeof(given), "is %d", (int)least - 1);
            snprintf(allowed, sizeof(allowed), "at least %d", (int)least);
            assert_refuses(&problem, false, argument, given, allowed);
        }
    }
}

Test(problem, holds_the_leading_dimension_rule_when_nothing_is_read)
{
    struct problem problem = some(4, 5, 0, 1);

    problem.operand[OPERAND_A].ld = 1;
    assert_accepts(&problem);
    problem.operand[OPERAND_A].ld = 0;
    assert_refuses(&problem, false, "a.ld", "is 0", "at least 1");

    problem = some(4, 5, 0, 1);
    problem.operand[OPERAND_B].ld = 4;
    assert_refuses(&problem, false, "b.ld", "is 4", "at least 5");

    problem = some(4, 5, 6, 1);
    problem.alpha = problem.beta = 0;
    problem.operand[OPERAND_C].ld = -5;
    assert_refuses(&problem, false, "c.ld", "is -5", "at least 5");
}

Test(problem, names_what_a_column_major_client_gave)
{
    struct problem problem = some(4, 5, 6, 1);
    struct fault fault = FAULT_NONE;

    problem.operand[OPERAND_A].ld = 4;
    problem.operand[OPERAND_B].ld = 6;
    problem.operand[OPERAND_D].ld = 4;
    cr_assert_eq(problem_check(&problem, true, &fault), STATUS_OK, "%s", fault.message);
    problem.operand[OPERAND_A].ld = 3;
    assert_refuses(&problem, true, "a.ld", "is 3", "at least 4 (a stored column");
    problem.operand[OPERAND_A].ld = 4;
    problem.operand[OPERAND_B].ld = 5;
    assert_refuses(&problem, true, "b.ld", "is 5", "at least 6");
}

Test(problem, column_major_is_the_transposed_row_major)
{
    struct problem problem = some(4, 5, 6, 1);

    problem.trans_a = true;
    problem.operand[OPERAND_A].ld = 77;
    problem_from_column_major(&problem);
    cr_assert_eq(problem.m, 5);
    cr_assert_eq(problem.n, 4);
    cr_assert_not(problem.trans_a);
    cr_assert(problem.trans_b);
    cr_assert_eq(problem.operand[OPERAND_B].ld, 77);
    problem_fill_defaults(&problem);
    cr_assert_eq(problem.operand[OPERAND_A].ld, 6); /* B, k x n by columns: a column is k long */
}

Test(problem, allows_stride_zero_for_inputs_only)
{
    struct problem problem = some(4, 5, 6, 3);

    problem.operand[OPERAND_A].stride = 0;
    problem.operand[OPERAND_B].stride = 0;
    problem.operand[OPERAND_C].stride = 0;
    assert_accepts(&problem);
    problem.operand[OPERAND_D].stride = 0;
    assert_refuses(&problem, false, "d.stride", "is 0", "at least 20");
    problem.batch = 1;
    assert_accepts(&problem);
}

Test(problem, refuses_negative_strides)
{
    for (int i = 0; i < OPERAND_COUNT; i++) {
        struct problem problem = some(4, 5, 6, 1);
        char argument[16];

        problem.bias = BIAS_PER_ROW;
        problem.operand[i].stride = -1;
        snprintf(argument, sizeof(argument), "%s.stride", operand_name((enum operand_role)i));
        assert_refuses(&problem, false, argument, "is -1", "not be negative");
    }
}

/* Against a count of every element that two items write. */
Test(problem, accepts_no_overlapping_results)
{
    int accepted_side_by_side = 0;

    for (int m = 1; m <= 3; m++) {
        for (int ld = 2; ld <= 9; ld++) {
            for (int stride = 0; stride <= 30; stride++) {
                struct problem problem = some(m, 2, 1, 3);
                struct fault fault = FAULT_NONE;
                int hits[128] = {0}, most = 0;

                problem.operand[OPERAND_D] = (struct problem_operand){ld, stride};
                for (int i = 0; i < 3 * m * 2; i++) {
                    int *hit = &hits[i / (2 * m) * stride + i / 2 % m * ld + i % 2];

                    ++*hit;
                    most = MAX(most, *hit);
                }
                if (problem_check(&problem, false, &fault) != STATUS_OK)
                    continue;
                cr_assert_eq(most, 1, "m=%d ld=%d stride=%d", m, ld, stride);
                accepted_side_by_side += stride < (m - 1) * ld + 2;
            }
        }
    }
    cr_assert_gt(accepted_side_by_side, 0);
}

Test(problem, ignores_the_stride_of_empty_results)
{
    struct problem problem = some(0, 5, 6, 3);

    assert_accepts(&problem); /* its default stride is 0 */
    problem = some(4, 5, 6, 0);
    problem.operand[OPERAND_D].stride = 0;
    assert_accepts(&problem);
}

Test(problem, refuses_spans_that_leave_64_bits)
{
    const int64_t big = INT64_MAX;
    struct problem problem;

    problem = some(1ll << 40, 1ll << 40, 1, 1);
    problem.beta = 0;
    assert_refuses(&problem, false, "d", "d covers", "at most");
    problem = some(2, 1, big, 1);
    assert_refuses(&problem, false, "a", "a covers", "at most");
    problem = some(1, 3, big / 8, 1);
    assert_refuses(&problem, false, "b", "b covers", "at most");
    problem = some(2, 2, 2, 1);
    problem.operand[OPERAND_C].ld = big;
    assert_refuses(&problem, false, "c", "c covers", "at most");
    problem = some(2, 2, 2, big);
    assert_refuses(&problem, false, "a", "a covers", "at most");
    problem = some(2, 2, 2, 3);
    problem.operand[OPERAND_B].stride = big;
    assert_refuses(&problem, false, "b", "b covers", "at most");

    /* the last one that fits: 2^61 - 1 elements of 4 bytes */
    problem = some(1, 1, big / 4, 1);
    problem.operand[OPERAND_B].stride = 0;
    assert_accepts(&problem);
    problem.k++;
    assert_refuses(&problem, false, "a", "a covers", "at most");
}

Test(problem, ignores_the_size_of_what_is_not_touched)
{
    struct problem problem = some(INT64_MAX, 0, INT64_MAX, INT64_MAX);

    assert_accepts(&problem);
    problem = some(1, 1, INT64_MAX, 1);
    problem.alpha = 0;
    assert_accepts(&problem);
    problem_fill_defaults(&problem);
    cr_assert_eq(problem_span(&problem, OPERAND_A), 0);
}

Test(problem, refuses_types_that_do_not_exist)
{
    struct problem problem = some(1, 1, 1, 1);

    problem.input = DTYPE_INT32;
    assert_refuses(&problem, false, "dtype", "int32", "bf16");
    problem.input = (enum dtype)1000;
    assert_refuses(&problem, false, "dtype", "none", "bf16");
    problem.input = DTYPE_BF16;
    problem.output = DTYPE_FP16;
    assert_refuses(&problem, false, "dtype_out", "fp16", "allowed: bf16, fp32");
    problem.input = DTYPE_INT8;
    problem.output = DTYPE_NONE;
    assert_refuses(&problem, false, "dtype_out", "none", "allowed: int32");
}

Test(problem, wants_integer_scalars_for_int8)
{
    const double bad[] = {0.5, 2147483648.0, -2147483649.0, NAN, INFINITY, -INFINITY};
    struct problem problem = some(1, 1, 1, 1);

    problem.input = DTYPE_INT8;
    problem.output = DTYPE_INT32;
    problem.alpha = INT32_MIN;
    problem.beta = INT32_MAX;
    assert_accepts(&problem);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        problem.alpha = bad[i];
        problem.beta = 0;
        assert_refuses(&problem, false, "alpha", "alpha is", "integer");
        problem.alpha = 0;
        problem.beta = bad[i];
        assert_refuses(&problem, false, "beta", "beta is", "integer");
    }
}

Test(problem, takes_any_scalar_for_floating_types)
{
    struct problem problem = some(1, 1, 1, 1);

    problem.alpha = NAN;
    problem.beta = -INFINITY;
    assert_accepts(&problem);
    cr_assert(problem_reads(&problem, OPERAND_A));
    problem.beta = NAN;
    cr_assert(problem_reads(&problem, OPERAND_C));
}

Test(problem, reads_by_the_blas_rules)
{
    struct problem problem = some_filled(2, 3, 4, 1);

    cr_assert(problem_reads(&problem, OPERAND_A));
    cr_assert(problem_reads(&problem, OPERAND_C));
    cr_assert_not(problem_reads(&problem, OPERAND_D));
    problem.beta = -0.0;
    cr_assert_not(problem_reads(&problem, OPERAND_C));
    problem.alpha = 0;
    cr_assert_not(problem_reads(&problem, OPERAND_A));
    problem.alpha = 1;
    problem.k = 0;
    cr_assert_not(problem_reads(&problem, OPERAND_B));
    cr_assert_not(problem_is_empty(&problem));
    problem.n = 0;
    problem.beta = 1;
    cr_assert(problem_is_empty(&problem));
    cr_assert_not(problem_reads(&problem, OPERAND_C));
    cr_assert_eq(problem_span(&problem, OPERAND_D), 0);
}

Test(problem, spans_first_to_last_byte)
{
    struct problem problem = some(2, 3, 4, 5);

    problem.operand[OPERAND_A] = (struct problem_operand){10, 100};
    problem.operand[OPERAND_B] = (struct problem_operand){3, 0};
    problem_fill_defaults(&problem);
    cr_assert_eq(problem_span(&problem, OPERAND_A), (4 * 100 + 10 + 4) * 4);
    cr_assert_eq(problem_span(&problem, OPERAND_B), 12 * 4);
    cr_assert_eq(problem_span(&problem, OPERAND_D), 5 * 6 * 4);
    cr_assert_eq(problem_flop(&problem), 2.0 * 2 * 3 * 4 * 5);
}

Test(problem, has_a_bias_of_one_value_for_each_row_or_column)
{
    struct problem problem = some(3, 5, 7, 2);

    cr_expect_eq(problem_span(&problem, OPERAND_BIAS), 0, "there is none");
    problem.bias = BIAS_PER_COLUMN;
    problem_fill_defaults(&problem);
    assert_accepts(&problem);
    cr_expect_eq(problem_span(&problem, OPERAND_BIAS), 2 * 5 * 4);
    cr_expect(problem_reads(&problem, OPERAND_BIAS));
    problem.alpha = problem.beta = 0;
    cr_expect(problem_reads(&problem, OPERAND_BIAS), "whatever the scalars are");
    problem.m = 0;
    cr_expect_not(problem_reads(&problem, OPERAND_BIAS));

    problem = some(3, 5, 7, 2);
    problem.bias = BIAS_PER_ROW;
    problem.operand[OPERAND_BIAS].stride = 0;
    problem_fill_defaults(&problem);
    assert_accepts(&problem);
    cr_expect_eq(problem_span(&problem, OPERAND_BIAS), 3 * 4);
}

Test(problem, of_column_major_order_has_its_bias_on_the_other_axis)
{
    struct problem problem = some(3, 5, 7, 1);

    problem.bias = BIAS_PER_ROW;
    problem_from_column_major(&problem);
    cr_expect_eq(problem.bias, BIAS_PER_COLUMN);
    cr_expect_eq(problem_columns(&problem, OPERAND_BIAS), 3);
    problem_from_column_major(&problem);
    cr_expect_eq(problem.bias, BIAS_PER_ROW);
}

Test(problem, refuses_a_bias_or_an_activation_that_does_not_exist)
{
    struct problem problem = some(2, 2, 2, 1);

    problem.bias = (enum bias)3;
    assert_refuses(&problem, false, "bias", "is 3", "2 per column");
    problem.bias = BIAS_NONE;
    problem.activation = (enum activation) - 1;
    assert_refuses(&problem, false, "activation", "is -1", "silu");
    problem.input = DTYPE_INT8;
    problem.output = DTYPE_INT32;
    problem.activation = ACTIVATION_RELU;
    problem.bias = BIAS_PER_ROW;
    assert_accepts(&problem);
    problem.activation = ACTIVATION_GELU;
    assert_refuses(&problem, false, "activation", "gelu", "none, relu");
}

/* The functions' slopes and their own rounding; nothing, where there is nothing to round. */
Test(problem, bounds_the_error_of_an_activated_result)
{
    struct problem problem = some(2, 2, 8, 1);
    double plain = problem_error_bound(&problem, 3, 4, 1);

    cr_expect_eq(plain, dtype_error_bound(DTYPE_FP32, DTYPE_FP32, 8, 3, 4, 1));
    problem.activation = ACTIVATION_RELU;
    cr_expect_eq(problem_error_bound(&problem, 3, 4, 1), plain);
    cr_expect_lt(problem_error_bound(&problem, -3, 4, 1), plain);
    problem.activation = ACTIVATION_GELU;
    cr_expect_gt(problem_error_bound(&problem, 3, 4, 1), plain);
    cr_expect_lt(problem_error_bound(&problem, 3, 4, 1), 2 * plain);
    cr_expect_eq(problem_error_bound(&problem, -INFINITY, INFINITY, 1), 0);
}
