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

static struct matrix input_a(const struct gemmd_job *job)
{
    bool is_transposed = job->flags & GEMMD_JOB_TRANS_A;

    return (struct matrix){.address = job->a,
                           .rows = is_transposed ? job->k : job->m,
                           .columns = is_transposed ? job->m : job->k,
                           .ld = job->lda,
                           .stride = job->stride_a,
                           .dtype = job->input};
}

static struct matrix input_b(const struct gemmd_job *job)
{
    bool is_transposed = job->flags & GEMMD_JOB_TRANS_B;

    return (struct matrix){.address = job->b,
                           .rows = is_transposed ? job->n : job->k,
                           .columns = is_transposed ? job->k : job->n,
                           .ld = job->ldb,
                           .stride = job->stride_b,
                           .dtype = job->input};
}

static struct matrix output(const struct gemmd_job *job)
{
    return (struct matrix){.address = job->d,
                           .rows = job->m,
                           .columns = job->n,
                           .ld = job->ldd,
                           .stride = job->stride_d,
                           .dtype = job->output};
}

static void add_product(struct accesses *accesses, const struct gemmd_job *job)
{
    const struct matrix a = input_a(job), b = input_b(job), d = output(job);
    const struct matrix bias = {.address = job->bias,
                                .rows = job->m && job->n ? 1 : 0,
                                .columns = bias_length(job),
                                .stride = job->stride_bias,
                                .dtype = job->output};
    struct matrix c = d;

    c.address = job->c;
    c.ld = job->ldc;
    c.stride = job->stride_c;
    if (job->batch == 0)
        return;
    add_matrix(accesses, &bias, job->batch, false);
    add_matrix(accesses, &a, job->batch, false);
    add_matrix(accesses, &b, job->batch, false);
    add_matrix(accesses, &d, job->batch, true);
    add_matrix(accesses, &c, job->batch, false);
}

struct access access_of_output(const struct gemmd_job *job)
{
    struct accesses written = {.count = 0};
    const struct matrix d = output(job);

    if (job->batch != 0)
        add_matrix(&written, &d, job->batch, true);
    return written.of[0];
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

static bool access_overlaps(const struct access *a, const struct access *b)
{
    return a->begin < b->end && b->begin < a->end;
}

static bool access_conflicts(const struct access *a, const struct access *b)
{
    return (a->is_write || b->is_write) && access_overlaps(a, b);
}

bool access_touches_inputs(const struct access *access, const struct gemmd_job *job)
{
    const struct matrix a = input_a(job), b = input_b(job);
    struct accesses read = {.count = 0};
    bool touches = false;

    if (job->batch != 0) {
        add_matrix(&read, &a, job->batch, false);
        add_matrix(&read, &b, job->batch, false);
    }
    for (size_t i = 0; i < read.count; i++)
        touches |= access_overlaps(access, &read.of[i]);
    return touches;
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
