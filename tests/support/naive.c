/*
 * See naive.h.
 */
#include "naive.h"

void naive_normalize(struct problem *problem, bool column_major, void *at[OPERAND_COUNT])
{
    void *a = at[OPERAND_A];

    if (column_major) {
        problem_from_column_major(problem);
        at[OPERAND_A] = at[OPERAND_B];
        at[OPERAND_B] = a;
    }
    problem_fill_defaults(problem);
}

static size_t
place(const struct problem *p, enum operand_role role, int64_t i, int64_t r, int64_t c)
{
    return (size_t)(i * p->operand[role].stride + r * p->operand[role].ld + c);
}

static double element(const struct problem *p, void *const at[], int64_t i, int64_t r, int64_t c)
{
    double sum = 0;

    for (int64_t k = 0; k < p->k && problem_reads(p, OPERAND_A); k++) {
        size_t a = p->trans_a ? place(p, OPERAND_A, i, k, r) : place(p, OPERAND_A, i, r, k);
        size_t b = p->trans_b ? place(p, OPERAND_B, i, c, k) : place(p, OPERAND_B, i, k, c);

        sum += dtype_load(p->input, at[OPERAND_A], a) * dtype_load(p->input, at[OPERAND_B], b);
    }
    sum *= p->alpha;
    if (problem_reads(p, OPERAND_C))
        sum += p->beta * dtype_load(p->output, at[OPERAND_C], place(p, OPERAND_C, i, r, c));
    if (problem_reads(p, OPERAND_BIAS))
        sum += dtype_load(p->output, at[OPERAND_BIAS],
                          place(p, OPERAND_BIAS, i, 0, p->bias == BIAS_PER_ROW ? r : c));
    return activation_apply(p->activation, sum);
}

void naive_product(const struct problem *p, void *const at[OPERAND_COUNT])
{
    for (int64_t i = 0; i < p->batch; i++) {
        for (int64_t r = 0; r < p->m; r++) {
            for (int64_t c = 0; c < p->n; c++)
                dtype_store(p->output, at[OPERAND_D], place(p, OPERAND_D, i, r, c),
                            element(p, at, i, r, c));
        }
    }
}
