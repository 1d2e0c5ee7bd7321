#include "repack.h"

#define ELEMENT           2 /* bytes, of all inputs of kernels that take copies */
#define ROW_ALIGNMENT     (16 / ELEMENT)
#define LINE              (128 / ELEMENT) /* what tensor copies read fastest: rows start on lines */
#define OPERAND_ALIGNMENT 256             /* bytes */

static int64_t round_up(int64_t value, int64_t to)
{
    return (value + to - 1) / to * to;
}

static bool starts_on_chunks(const struct gemmd_repack_operand *operand)
{
    return operand->source % (ROW_ALIGNMENT * ELEMENT) == 0 &&
           (operand->rows <= 1 || operand->ld % ROW_ALIGNMENT == 0) &&
           (operand->items <= 1 || operand->stride % ROW_ALIGNMENT == 0);
}

static struct gemmd_repack_operand operand_of(const struct gemmd_job *job, int operand)
{
    bool is_a = operand == 0;
    bool is_transposed = job->flags & (is_a ? GEMMD_JOB_TRANS_A : GEMMD_JOB_TRANS_B);
    int64_t stride = is_a ? job->stride_a : job->stride_b;
    /* A is M x K, B is K x N; transposed ones lie the other way round. */
    int64_t first = is_a ? job->m : job->k, second = is_a ? job->k : job->n;

    return (struct gemmd_repack_operand){
        .source = is_a ? job->a : job->b,
        .rows = is_transposed ? second : first,
        .columns = is_transposed ? first : second,
        .items = stride != 0 ? job->batch : 1,
        .ld = is_a ? job->lda : job->ldb,
        .stride = stride,
    };
}

/* Short rows are not blown up to lines. */
static void lay_out(struct gemmd_repack_operand *operand, uint64_t *size)
{
    operand->to_ld = round_up(operand->columns, operand->columns >= LINE ? LINE : ROW_ALIGNMENT);
    operand->to_stride = operand->rows * operand->to_ld;
    operand->destination = *size;
    *size += (uint64_t)round_up(operand->to_stride * operand->items * ELEMENT, OPERAND_ALIGNMENT);
}

uint64_t repack_plan(const struct gemmd_job *job, struct gemmd_repack *ret_repack)
{
    uint64_t size = 0;

    *ret_repack = (struct gemmd_repack){0};
    if (job->k == 0 || job->alpha == 0)
        return 0;
    for (int i = 0; i < GEMMD_REPACK_OPERANDS; i++) {
        struct gemmd_repack_operand operand = operand_of(job, i);

        if (starts_on_chunks(&operand))
            continue;
        lay_out(&operand, &size);
        ret_repack->operand[i] = operand;
    }
    return size;
}

static void rewrite(struct gemmd_repack_operand *operand,
                    uint64_t base,
                    gemmd_u64 *address,
                    gemmd_i64 *ld,
                    gemmd_i64 *stride)
{
    if (operand->rows == 0)
        return;
    operand->destination += base;
    *address = operand->destination;
    *ld = operand->to_ld;
    if (*stride != 0)
        *stride = operand->to_stride;
}

void repack_place(struct gemmd_repack *repack, uint64_t base, struct gemmd_job *job)
{
    rewrite(&repack->operand[0], base, &job->a, &job->lda, &job->stride_a);
    rewrite(&repack->operand[1], base, &job->b, &job->ldb, &job->stride_b);
}

uint64_t repack_turns(const struct gemmd_repack *repack)
{
    uint64_t turns = 0;

    for (int i = 0; i < GEMMD_REPACK_OPERANDS; i++) {
        const struct gemmd_repack_operand *o = &repack->operand[i];
        int64_t chunks = o->rows * (round_up(o->columns, ROW_ALIGNMENT) / ROW_ALIGNMENT) * o->items;

        turns += (uint64_t)(round_up(chunks, GEMMD_REPACK_CHUNKS) / GEMMD_REPACK_CHUNKS);
    }
    return turns;
}
