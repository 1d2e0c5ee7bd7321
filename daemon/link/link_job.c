#include "link_job.h"

static const struct problem_operand untouched = {0};

static const struct problem_operand *layout(const struct problem *problem, enum operand_role role)
{
    bool is_touched = role == OPERAND_D || problem_reads(problem, role);

    return is_touched ? &problem->operand[role] : &untouched;
}

static uint64_t
place(const struct problem *problem, const uint64_t address[OPERAND_COUNT], enum operand_role role)
{
    return role == OPERAND_D || problem_reads(problem, role) ? address[role] : 0;
}

static uint32_t flags_of(const struct problem *problem)
{
    static const uint32_t bias[BIAS_COUNT] = {
        [BIAS_PER_ROW] = GEMMD_JOB_BIAS_PER_ROW,
        [BIAS_PER_COLUMN] = GEMMD_JOB_BIAS_PER_COLUMN,
    };

    return bias[problem->bias] | (problem->trans_a ? GEMMD_JOB_TRANS_A : 0u) |
           (problem->trans_b ? GEMMD_JOB_TRANS_B : 0u);
}

void link_job_describe(const struct problem *problem,
                       const uint64_t address[OPERAND_COUNT],
                       struct gemmd_job *ret_job)
{
    const struct problem *p = problem;

    *ret_job = (struct gemmd_job){
        .a = place(p, address, OPERAND_A),
        .b = place(p, address, OPERAND_B),
        .c = place(p, address, OPERAND_C),
        .d = address[OPERAND_D],
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .batch = p->batch,
        .lda = layout(p, OPERAND_A)->ld,
        .ldb = layout(p, OPERAND_B)->ld,
        .ldc = layout(p, OPERAND_C)->ld,
        .ldd = layout(p, OPERAND_D)->ld,
        .stride_a = layout(p, OPERAND_A)->stride,
        .stride_b = layout(p, OPERAND_B)->stride,
        .stride_c = layout(p, OPERAND_C)->stride,
        .stride_d = layout(p, OPERAND_D)->stride,
        .alpha = p->alpha,
        .beta = p->beta,
        .input = p->input,
        .output = p->output,
        .flags = flags_of(p),
        .activation = p->activation,
        .bias = place(p, address, OPERAND_BIAS),
        .stride_bias = layout(p, OPERAND_BIAS)->stride,
    };
}
