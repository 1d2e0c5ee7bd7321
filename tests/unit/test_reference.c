#include "../../client/reference.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ELEMENTS_MAX 65536

static unsigned char memory[OPERAND_COUNT][ELEMENTS_MAX * 8];

static struct problem make(enum dtype input, enum dtype output, int64_t m, int64_t n, int64_t k)
{
    struct problem problem = {
        .input = input,
        .output = output,
        .m = m,
        .n = n,
        .k = k,
        .batch = 1,
        .alpha = 1,
        .beta = 0,
    };

    problem_leave_layouts(&problem);
    return problem;
}

static void fill(enum dtype dtype, void *base, uint32_t seed)
{
    for (size_t i = 0; i < ELEMENTS_MAX; i++) {
        seed = seed * 1664525 + 1013904223;
        dtype_store(dtype, base, i,
                    dtype == DTYPE_INT8 ? (int)(seed >> 24) - 128
                                        : (double)(seed >> 8) / (1 << 23) - 1);
    }
}

static double
at(const struct problem *problem, enum operand_role role, int64_t l, int64_t i, int64_t j)
{
    enum dtype dtype = role <= OPERAND_B ? problem->input : problem->output;
    const struct problem_operand *o = &problem->operand[role];

    return dtype_load(dtype, memory[role], (size_t)(l * o->stride + i * o->ld + j));
}

/* The definition, element by element, written where the checker will look. */
static void compute(const struct problem *problem)
{
    for (int64_t l = 0; l < problem->batch; l++) {
        for (int64_t i = 0; i < problem->m; i++) {
            for (int64_t j = 0; j < problem->n; j++) {
                const struct problem_operand *o = &problem->operand[OPERAND_D];
                double sum = 0;

                for (int64_t p = 0; p < problem->k && problem->alpha != 0; p++)
                    sum += (problem->trans_a ? at(problem, OPERAND_A, l, p, i)
                                             : at(problem, OPERAND_A, l, i, p)) *
                           (problem->trans_b ? at(problem, OPERAND_B, l, j, p)
                                             : at(problem, OPERAND_B, l, p, j));
                sum *= problem->alpha;
                if (problem->beta != 0)
                    sum += problem->beta * at(problem, OPERAND_C, l, i, j);
                dtype_store(problem->output, memory[OPERAND_D],
                            (size_t)(l * o->stride + i * o->ld + j), sum);
            }
        }
    }
}

static struct reference_report check(const struct problem *problem, uint64_t budget)
{
    struct reference_operands operands = {memory[OPERAND_A], memory[OPERAND_B], memory[OPERAND_C],
                                          memory[OPERAND_BIAS], memory[OPERAND_D]};
    struct reference_report report;

    cr_assert_eq(reference_check(problem, &operands, budget, &report), 0);
    return report;
}

static void prepare(struct problem *problem)
{
    struct fault fault;

    problem_fill_defaults(problem);
    cr_assert_eq(problem_check(problem, false, &fault), STATUS_OK, "%s", fault.message);
    fill(problem->input, memory[OPERAND_A], 1);
    fill(problem->input, memory[OPERAND_B], 2);
    fill(problem->output, memory[OPERAND_C], 3);
    memset(memory[OPERAND_D], 0xff, sizeof(memory[OPERAND_D]));
}

static const enum dtype pairs[][2] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

Test(reference, accepts_the_definition_for_every_type_and_transposition)
{
    for (size_t i = 0; i < ARRAY_SIZE(pairs) * 4; i++) {
        struct problem problem = make(pairs[i / 4][0], pairs[i / 4][1], 70, 9, 67);
        struct reference_report report;

        problem.trans_a = i & 1;
        problem.trans_b = i & 2;
        problem.alpha = 3;
        problem.beta = -2;
        problem.batch = 2;
        problem.operand[OPERAND_A].stride = 0;
        problem.operand[OPERAND_D].ld = 11;
        prepare(&problem);
        compute(&problem);
        report = check(&problem, REFERENCE_ALL);
        cr_assert_eq(report.checked, 70 * 9 * 2);
        cr_assert(reference_is_right(&report), "%s %s: %g", dtype_name(problem.input),
                  dtype_name(problem.output), report.worst_ratio);
    }
}

Test(reference, finds_one_wrong_element_anywhere)
{
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        struct problem problem = make(pairs[i][0], pairs[i][1], 66, 65, 20);
        struct reference_report report;
        double value;

        prepare(&problem);
        compute(&problem);
        value = dtype_load(problem.output, memory[OPERAND_D], 65 * 65 + 64);
        dtype_store(problem.output, memory[OPERAND_D], 65 * 65 + 64,
                    problem.input == DTYPE_INT8 ? value + 1 : value + 0.25);
        report = check(&problem, REFERENCE_ALL);
        cr_assert_not(reference_is_right(&report), "%s", dtype_name(problem.input));
        cr_assert_eq(report.row, 65);
        cr_assert_eq(report.column, 64);
    }
}

/* Every mistake of layout gives a wrong answer: the checker must not make the same one. */
Test(reference, refuses_the_product_of_another_layout)
{
    for (int mistake = 0; mistake < 4; mistake++) {
        struct problem problem = make(DTYPE_FP32, DTYPE_FP32, 16, 16, 16), wrong;
        struct reference_report report;

        problem.operand[OPERAND_A].ld = 17;
        prepare(&problem);
        wrong = problem;
        wrong.trans_a ^= mistake == 0;
        wrong.trans_b ^= mistake == 1;
        wrong.operand[OPERAND_A].ld -= mistake == 2;
        wrong.alpha += mistake == 3;
        compute(&wrong);
        report = check(&problem, REFERENCE_ALL);
        cr_assert_not(reference_is_right(&report), "mistake %d", mistake);
    }
}

Test(reference, wants_elements_that_were_never_written)
{
    struct problem problem = make(DTYPE_BF16, DTYPE_FP32, 3, 3, 0);
    struct reference_report report;

    prepare(&problem);
    report = check(&problem, REFERENCE_ALL);
    cr_assert_eq(report.worst_ratio, INFINITY);
    compute(&problem);
    report = check(&problem, REFERENCE_ALL);
    cr_assert_eq(report.worst_ratio, 0);
}

Test(reference, reads_nothing_that_blas_does_not_read)
{
    struct problem problem = make(DTYPE_FP32, DTYPE_FP32, 3, 3, 5);
    struct reference_operands operands = {.d = memory[OPERAND_D]};
    struct reference_report report;

    problem.alpha = 0;
    prepare(&problem);
    compute(&problem);
    cr_assert_eq(reference_check(&problem, &operands, REFERENCE_ALL, &report), 0);
    cr_assert(reference_is_right(&report));

    problem.m = 0;
    operands.d = NULL;
    cr_assert_eq(reference_check(&problem, &operands, REFERENCE_ALL, &report), 0);
    cr_assert(reference_is_right(&report));
    cr_assert_eq(report.elements, 0);
}

Test(reference, wants_nan_and_inf_exactly_where_they_belong)
{
    struct problem problem = make(DTYPE_FP32, DTYPE_FP32, 4, 4, 4);
    struct reference_report report;

    prepare(&problem);
    dtype_store(DTYPE_FP32, memory[OPERAND_A], 4 * 2 + 1, NAN);
    dtype_store(DTYPE_FP32, memory[OPERAND_A], 4 * 3 + 1, INFINITY);
    compute(&problem);
    report = check(&problem, REFERENCE_ALL);
    cr_assert_eq(report.checked, 16);
    cr_assert(reference_is_right(&report));

    dtype_store(DTYPE_FP32, memory[OPERAND_D], 4 * 2 + 3, 1); /* silently finite */
    report = check(&problem, REFERENCE_ALL);
    cr_assert_eq(report.worst_ratio, INFINITY);
    cr_assert_eq(report.row, 2);

    compute(&problem);
    dtype_store(DTYPE_FP32, memory[OPERAND_D], 0, NAN); /* leaked */
    report = check(&problem, REFERENCE_ALL);
    cr_assert_eq(report.worst_ratio, INFINITY);
    cr_assert_eq(report.row, 0);
}

Test(reference, lets_fp16_overflow_where_the_answer_is_too_large)
{
    struct problem problem = make(DTYPE_FP16, DTYPE_FP16, 1, 1, 2);
    struct reference_report report;

    prepare(&problem);
    for (size_t i = 0; i < 2; i++) {
        dtype_store(DTYPE_FP16, memory[OPERAND_A], i, 200);
        dtype_store(DTYPE_FP16, memory[OPERAND_B], i, 200);
    }
    compute(&problem);
    cr_assert(isinf(dtype_load(DTYPE_FP16, memory[OPERAND_D], 0)));
    report = check(&problem, REFERENCE_ALL);
    cr_assert(reference_is_right(&report));
    dtype_store(DTYPE_FP16, memory[OPERAND_D], 0, -INFINITY);
    report = check(&problem, REFERENCE_ALL);
    cr_assert_not(reference_is_right(&report));
}

Test(reference, wraps_integers_like_int32)
{
    struct problem problem = make(DTYPE_INT8, DTYPE_INT32, 1, 1, 1);
    int32_t *d = (int32_t *)memory[OPERAND_D], *c = (int32_t *)memory[OPERAND_C];
    struct reference_report report;

    problem.alpha = INT32_MIN;
    problem.beta = INT32_MAX;
    prepare(&problem);
    memory[OPERAND_A][0] = memory[OPERAND_B][0] = (unsigned char)-127;
    *c = INT32_MAX;
    /* -2^31 * 16129 = -2^31 and (2^31 - 1)^2 = 1, modulo 2^32 */
    *d = (int32_t)0x80000001;
    report = check(&problem, REFERENCE_ALL);
    cr_assert(reference_is_right(&report), "expected %g", report.expected);
}

Test(reference, judges_fp64_beyond_fp64)
{
    struct problem problem = make(DTYPE_FP64, DTYPE_FP64, 8, 8, 3000);
    struct reference_report report;

    problem.alpha = 1.0 / 3;
    prepare(&problem);
    compute(&problem);
    report = check(&problem, REFERENCE_ALL);
    cr_assert(reference_is_right(&report));
    cr_assert_gt(report.worst_ratio, 0); /* a double reference would err just as the result does */
}

Test(reference, samples_large_results_with_both_ends)
{
    struct problem problem = make(DTYPE_FP32, DTYPE_FP32, 200, 300, 100);
    struct reference_report report;

    prepare(&problem);
    compute(&problem);
    report = check(&problem, 100000);
    cr_assert_eq(report.elements, 60000);
    cr_assert_gt(report.checked, 500);
    cr_assert_lt(report.checked, 1100);
    cr_assert(reference_is_right(&report));
    dtype_store(DTYPE_FP32, memory[OPERAND_D], 59999, 1e6);
    report = check(&problem, 100000);
    cr_assert_not(reference_is_right(&report));
}

Test(reference, finds_bytes_written_outside_of_the_result)
{
    struct problem problem = make(DTYPE_BF16, DTYPE_BF16, 3, 5, 2);
    const size_t size = 400;

    problem.batch = 2;
    problem.operand[OPERAND_D] = (struct problem_operand){7, 30};
    prepare(&problem);
    reference_poison(memory[OPERAND_D], size);
    compute(&problem);
    cr_assert_eq(reference_find_spill(&problem, memory[OPERAND_D], size), -1);
    for (size_t i = 0; i < size; i++) {
        int64_t element = (int64_t)i / 2, in_item = element % 30;
        bool is_inside = element < 60 && in_item / 7 < 3 && in_item % 7 < 5;
        unsigned char old = memory[OPERAND_D][i];

        memory[OPERAND_D][i] = 0;
        cr_assert_eq(reference_find_spill(&problem, memory[OPERAND_D], size),
                     is_inside ? -1 : (int64_t)i);
        memory[OPERAND_D][i] = old;
    }
}

Test(reference, describes_both_outcomes)
{
    struct reference_report report = {.elements = 12, .checked = 12, .worst_ratio = 0.5};
    char text[200];

    reference_describe(&report, text, sizeof(text));
    cr_assert_str_eq(text, "all 12 elements within the error bound, worst 0.500 of it");
    report.checked = 6;
    reference_describe(&report, text, sizeof(text));
    cr_assert(strstr(text, "6 of 12 elements checked"));
    report.worst_ratio = INFINITY;
    report.row = 7;
    reference_describe(&report, text, sizeof(text));
    cr_assert(strstr(text, "row 7"), "%s", text);
}
