#include "access.h"

#include "../core/dtype.h"

static void add(struct accesses *accesses, uint64_t address, uint64_t bytes, bool is_write)
{
    if (bytes == 0)
        return;
    assert(accesses->count < ACCESSES_MAX);
    accesses->of[accesses->count++] =
        (struct access){.begin = address, .end = address + bytes, .is_write = is_write};
}

struct matrix {
    uint64_t address;
    int64_t rows, columns, ld, stride;
    uint32_t dtype;
};

static void
add_matrix(struct accesses *accesses, const struct matrix *m, int64_t batch, bool is_write)
{
    int64_t elements = (batch - 1) * m->stride + (m->rows - 1) * m->ld + m->columns;

    /* What a job does not read has no address. */
    if (m->address == 0 || m->rows == 0 || m->columns == 0)
        return;
    add(accesses, m->address, (uint64_t)elements * dtype_size((enum dtype)m->dtype), is_write);
}

static int64_t bias_length(const struct gemmd_job *job)
{
    if (job->flags & GEMMD_JOB_BIAS_PER_ROW)
        return job->m;
    return job->flags & GEMMD_JOB_BIAS_PER_COLUMN ? job->n : 0;
}

static void add_product(struct accesses *accesses, const struct gemmd_job *job)
{
    bool trans_a = job->flags & GEMMD_JOB_TRANS_A, trans_b = job->flags & GEMMD_JOB_TRANS_B;
    const struct matrix a = {.address = job->a,
                             .rows = trans_a ? job->k : job->m,
                             .columns = trans_a ? job->m : job->k,
                             .ld = job->lda,
                             .stride = job->stride_a,
                             .dtype = job->input};
    const struct matrix b = {.address = job->b,
                             .rows = trans_b ? job->n : job->k,
                             .columns = trans_b ? job->k : job->n,
                             .ld = job->ldb,
                             .stride = job->stride_b,
                             .dtype = job->input};
    struct matrix out = {.address = job->d,
                         .rows = job->m,
                         .columns = job->n,
                         .ld = job->ldd,
                         .stride = job->stride_d,
                         .dtype = job->output};

    const struct matrix bias = {.address = job->bias,
                                .rows = job->m && job->n ? 1 : 0,
                                .columns = bias_length(job),
                                .stride = job->stride_bias,
                                .dtype = job->output};

    if (job->batch == 0)
        return;
    add_matrix(accesses, &bias, job->batch, false);
    add_matrix(accesses, &a, job->batch, false);
    add_matrix(accesses, &b, job->batch, false);
    add_matrix(accesses, &out, job->batch, true);
    out.address = job->c;
    out.ld = job->ldc;
    out.stride = job->stride_c;
    add_matrix(accesses, &out, job->batch, false);
}

void accesses_of(const struct gemmd_command *command, struct accesses *ret_accesses)
{
    const struct gemmd_copy *copy = &command->body.copy;

    *ret_accesses = (struct accesses){.job = command->job};
    switch (command->kind) {
    case GEMMD_COMMAND_GEMM:
        add_product(ret_accesses, &command->body.gemm);
        break;
    case GEMMD_COMMAND_COPY:
        add(ret_accesses, copy->source, copy->size, false);
        add(ret_accesses, copy->destination, copy->size, true);
        break;
    default: /* a fill; what is no command at all touches nothing */
        add(ret_accesses, copy->destination, copy->size, true);
    }
}

static bool access_conflicts(const struct access *a, const struct access *b)
{
    return (a->is_write || b->is_write) && a->begin < b->end && b->begin < a->end;
}

bool accesses_conflict(const struct accesses *a, const struct accesses *b)
{
    if (a->job == b->job)
        return false;
    for (size_t i = 0; i < a->count; i++)
        for (size_t j = 0; j < b->count; j++)
            if (access_conflicts(&a->of[i], &b->of[j]))
                return true;
    return false;
}
