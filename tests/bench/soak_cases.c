#include "soak.h"

/* Products of few and of many tiles, rows aligned and not, K shorter than a pipeline. */
static const int64_t sizes[][3] = {
    {64, 64, 64}, {128, 96, 80}, {33, 65, 129},  {1, 256, 192}, {256, 8, 64},
    {17, 19, 23}, {160, 4, 1},   {200, 136, 72}, {96, 96, 20},  {7, 250, 33},
};

static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32, DTYPE_FP64, DTYPE_INT8};

static bool finish(struct soak_case *one)
{
    struct fault fault;

    if (problem_check(&one->problem, false, &fault) != STATUS_OK)
        return false;
    problem_fill_defaults(&one->problem);
    return true;
}

static struct problem product(enum dtype input, int64_t m, int64_t n, int64_t k)
{
    struct problem problem = {.input = input,
                              .output = dtype_default_output(input),
                              .m = m,
                              .n = n,
                              .k = k,
                              .batch = 1,
                              .alpha = 1};

    for (int i = 0; i < OPERAND_COUNT; i++) {
        problem.operand[i].ld = PROBLEM_DEFAULT;
        problem.operand[i].stride = PROBLEM_DEFAULT;
    }
    return problem;
}

size_t soak_cases(bool has_large, struct soak_case ret_cases[SOAK_CASES_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(types); i++) {
        const int64_t *size = sizes[i % ARRAY_SIZE(sizes)];
        struct soak_case *one = &ret_cases[count];

        *one = (struct soak_case){
            .problem = product(types[i / ARRAY_SIZE(sizes)], size[0], size[1], size[2]),
            .place = (enum soak_place)(i % 3),
            .is_in_place = i % 4 == 1,
        };
        one->problem.trans_a = i % 2 == 1;
        one->problem.trans_b = i / 2 % 2 == 1;
        one->problem.batch = i % 7 == 3 ? 3 : 1;
        one->problem.beta = one->is_in_place ? 1 : 0;
        count += finish(one);
    }
    if (has_large) {
        ret_cases[count] = (struct soak_case){.problem = product(DTYPE_BF16, 3000, 2904, 3104),
                                              .place = SOAK_DEVICE};
        count += finish(&ret_cases[count]);
    }
    return count;
}

size_t soak_operand_bytes(const struct soak_case *one, enum operand_role role)
{
    return (size_t)problem_span(&one->problem, role);
}
