/*
 * The reference product by blocks: 64 x 64 elements of D at a time, gathered from the sampled rows
 * and columns, operands widened to double (exact for every type) into two panels that fit the
 * caches. Sums run over k in order.
 */
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK          64
#define SAMPLE_BATCHES 8 /* of a batch that is not checked whole */

struct sample {
    int64_t *index; /* owned, ascending */
    int64_t count;
};

struct workspace {
    struct sample rows, columns, batches;
    double a[BLOCK][BLOCK], b[BLOCK][BLOCK]; /* rows x k, k x columns */
    double sum[BLOCK][BLOCK], magnitude[BLOCK][BLOCK];
    long double extended[BLOCK][BLOCK]; /* the sum, for fp64 */
};

static void workspace_freep(struct workspace **workspace)
{
    if (!*workspace)
        return;
    free((*workspace)->rows.index);
    free((*workspace)->columns.index);
    free((*workspace)->batches.index);
    free(*workspace);
}

/* A fixed hash in place of a generator: a sample does not depend on what ran before. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
    return x ^ x >> 32;
}

/* One index out of each of `count` equal parts; even spacing would always meet the same place of a
 * tile. */
static int sample_init(struct sample *sample, int64_t total, int64_t count)
{
    sample->index = malloc((size_t)MAX(count, 1) * sizeof(*sample->index));
    if (!sample->index)
        return -ENOMEM;
    sample->count = count;
    for (int64_t i = 0; i < count; i++) {
        int64_t low = (int64_t)((double)total * (double)i / (double)count);
        int64_t high = (int64_t)((double)total * (double)(i + 1) / (double)count);

        low = count == total ? i : low + (int64_t)(mix((uint64_t)i) % (uint64_t)MAX(high - low, 1));
        sample->index[i] = MIN(low, total - 1);
    }
    if (count > 1) {
        sample->index[0] = 0;
        sample->index[count - 1] = total - 1;
    }
    return 0;
}

/* How many rows, columns and batch items keep the work under the budget. */
static int
choose_sample(const struct problem *problem, uint64_t budget, struct workspace *workspace)
{
    double k = (double)MAX(problem->k, 1), m = (double)problem->m, n = (double)problem->n;
    double rows = m, columns = n, batches = (double)problem->batch;
    int r;

    if (m * n * k * batches > (double)budget) {
        double each;

        batches = MIN(batches, SAMPLE_BATCHES);
        each = (double)budget / (k * batches);
        rows = MIN(m, MAX(2, MAX(sqrt(each), each / n)));
        columns = MIN(n, MAX(2, each / rows));
    }
    r = sample_init(&workspace->rows, problem->m, (int64_t)rows);
    if (r == 0)
        r = sample_init(&workspace->columns, problem->n, (int64_t)columns);
    if (r == 0)
        r = sample_init(&workspace->batches, problem->batch, (int64_t)batches);
    return r;
}

/* One block of D and the operands it comes from. */
struct block {
    const struct problem *problem;
    const struct reference_operands *operands;
    int64_t batch;
    const int64_t *row, *column; /* indices into D */
    int rows, columns;
};

static size_t element_at(const struct block *block, enum operand_role role, int64_t i, int64_t j)
{
    const struct problem_operand *operand = &block->problem->operand[role];

    return (size_t)(block->batch * operand->stride + i * operand->ld + j);
}

static void pack_a(const struct block *block, int64_t first, int depth, double a[BLOCK][BLOCK])
{
    const struct problem *problem = block->problem;

    for (int i = 0; i < block->rows; i++) {
        for (int p = 0; p < depth; p++) {
            int64_t row = problem->trans_a ? first + p : block->row[i];
            int64_t column = problem->trans_a ? block->row[i] : first + p;

            a[i][p] = dtype_load(problem->input, block->operands->a,
                                 element_at(block, OPERAND_A, row, column));
        }
    }
}

static void pack_b(const struct block *block, int64_t first, int depth, double b[BLOCK][BLOCK])
{
    const struct problem *problem = block->problem;

    for (int p = 0; p < depth; p++) {
        for (int j = 0; j < block->columns; j++) {
            int64_t row = problem->trans_b ? block->column[j] : first + p;
            int64_t column = problem->trans_b ? first + p : block->column[j];

            b[p][j] = dtype_load(problem->input, block->operands->b,
                                 element_at(block, OPERAND_B, row, column));
        }
    }
}

/* All of the block's width, whatever is in use: a fixed count lets the compiler vectorise. */
static void accumulate(struct workspace *w, int rows, int depth)
{
    for (int i = 0; i < rows; i++) {
        for (int p = 0; p < depth; p++) {
            for (int j = 0; j < BLOCK; j++) {
                double product = w->a[i][p] * w->b[p][j];

                w->sum[i][j] += product;
                w->magnitude[i][j] += fabs(product);
            }
        }
    }
}

static void accumulate_extended(struct workspace *w, int rows, int columns, int depth)
{
    for (int i = 0; i < rows; i++) {
        for (int p = 0; p < depth; p++) {
            for (int j = 0; j < columns; j++)
                w->extended[i][j] += (long double)w->a[i][p] * w->b[p][j];
        }
    }
}

static void multiply(struct workspace *w, const struct block *block)
{
    const struct problem *problem = block->problem;

    memset(w->sum, 0, sizeof(w->sum));
    memset(w->magnitude, 0, sizeof(w->magnitude));
    memset(w->extended, 0, sizeof(w->extended));
    if (!problem_reads(problem, OPERAND_A))
        return;
    for (int64_t first = 0; first < problem->k; first += BLOCK) {
        int depth = (int)MIN(BLOCK, problem->k - first);

        pack_a(block, first, depth, w->a);
        pack_b(block, first, depth, w->b);
        accumulate(w, block->rows, depth);
        if (problem->input == DTYPE_FP64)
            accumulate_extended(w, block->rows, block->columns, depth);
    }
}

/* int8: the sum of products is exact in a double up to K = 2^39, the rest is modulo 2^32. */
static long double
integer_epilogue(const struct problem *problem, double sum, double c, double bias)
{
    uint64_t value = (uint64_t)(int64_t)problem->alpha * (uint64_t)(int64_t)sum +
                     (uint64_t)(int64_t)problem->beta * (uint64_t)(int64_t)c +
                     (uint64_t)(int64_t)bias;

    return (int32_t)(uint32_t)value;
}

static long double epilogue(const struct problem *problem, long double sum, double c, double bias)
{
    long double value = problem->alpha != 0 ? (long double)problem->alpha * sum : 0;

    if (problem->beta != 0)
        value += (long double)problem->beta * c;
    return value + bias;
}

/* The functions are known in double only: of fp64 results that is a unit or two, in the bound. */
static long double activated(const struct problem *problem, long double before)
{
    if (problem->activation == ACTIVATION_NONE)
        return before;
    return activation_apply(problem->activation, (double)before);
}

static double bias_at(const struct block *block, int64_t row, int64_t column)
{
    const struct problem *problem = block->problem;

    if (!problem_reads(problem, OPERAND_BIAS))
        return 0;
    return dtype_load(
        problem->output, block->operands->bias,
        element_at(block, OPERAND_BIAS, 0, problem->bias == BIAS_PER_ROW ? row : column));
}

/* A finite reference may round to Inf in the output type. */
static bool overflows_alike(enum dtype output, long double expected, double bound, double got)
{
    unsigned char memory[8];

    if (!isinf(got) || signbit(got) != signbit(expected))
        return false;
    dtype_store(output, memory, 0, (double)expected + copysign(bound, (double)expected));
    return dtype_load(output, memory, 0) == got;
}

static double judge(enum dtype output, long double expected, double bound, double got)
{
    double error;

    if (isnan(expected))
        return isnan(got) ? 0 : INFINITY;
    if (isinf(expected))
        return (long double)got == expected ? 0 : INFINITY;
    if (overflows_alike(output, expected, bound, got))
        return 0;
    error = (double)fabsl((long double)got - expected);
    if (error == 0)
        return 0;
    return bound > 0 && isfinite(error) ? error / bound : INFINITY;
}

static void judge_element(const struct workspace *w,
                          const struct block *block,
                          int i,
                          int j,
                          struct reference_report *report)
{
    const struct problem *problem = block->problem;
    int64_t row = block->row[i], column = block->column[j];
    double c = 0, bias = bias_at(block, row, column), got, bound, ratio;
    long double before, expected;

    if (problem_reads(problem, OPERAND_C))
        c = dtype_load(problem->output, block->operands->c,
                       element_at(block, OPERAND_C, row, column));
    got =
        dtype_load(problem->output, block->operands->d, element_at(block, OPERAND_D, row, column));
    if (problem->input == DTYPE_INT8)
        before = integer_epilogue(problem, w->sum[i][j], c, bias);
    else
        before = epilogue(problem, problem->input == DTYPE_FP64 ? w->extended[i][j] : w->sum[i][j],
                          c, bias);
    expected = activated(problem, before);
    bound = problem_error_bound(problem, (double)before, fabs(problem->alpha) * w->magnitude[i][j],
                                fabs(problem->beta * c) + fabs(bias));
    ratio = judge(problem->output, expected, bound, got);
    report->checked++;
    if (ratio <= report->worst_ratio && report->checked > 1)
        return;
    report->worst_ratio = ratio;
    report->batch = block->batch;
    report->row = row;
    report->column = column;
    report->expected = (double)expected;
    report->got = got;
    report->bound = bound;
}

static void
check_block(struct workspace *w, const struct block *block, struct reference_report *report)
{
    multiply(w, block);
    for (int i = 0; i < block->rows; i++) {
        for (int j = 0; j < block->columns; j++)
            judge_element(w, block, i, j, report);
    }
}

int reference_check(const struct problem *problem,
                    const struct reference_operands *operands,
                    uint64_t max_multiplications,
                    struct reference_report *ret_report)
{
    struct reference_report report = {0};
    cleanup(workspace_freep) struct workspace *w = NULL;

    if (!problem_is_empty(problem)) {
        w = calloc(1, sizeof(*w));
        if (!w || choose_sample(problem, max_multiplications, w) < 0)
            return -ENOMEM;
        report.elements = (uint64_t)problem->m * (uint64_t)problem->n * (uint64_t)problem->batch;
        for (int64_t l = 0; l < w->batches.count; l++) {
            for (int64_t i = 0; i < w->rows.count; i += BLOCK) {
                for (int64_t j = 0; j < w->columns.count; j += BLOCK) {
                    struct block block = {
                        .problem = problem,
                        .operands = operands,
                        .batch = w->batches.index[l],
                        .row = w->rows.index + i,
                        .column = w->columns.index + j,
                        .rows = (int)MIN(BLOCK, w->rows.count - i),
                        .columns = (int)MIN(BLOCK, w->columns.count - j),
                    };

                    check_block(w, &block, &report);
                }
            }
        }
    }
    *ret_report = report;
    return 0;
}

bool reference_is_right(const struct reference_report *report)
{
    return report->worst_ratio <= 1;
}

void reference_describe(const struct reference_report *report, char *ret_text, size_t size)
{
    if (!reference_is_right(report))
        (void)snprintf(ret_text, size,
                       "wrong at batch %" PRId64 ", row %" PRId64 ", column %" PRId64
                       ": expected %.9g within %.3g, got %.9g",
                       report->batch, report->row, report->column, report->expected, report->bound,
                       report->got);
    else if (report->checked == report->elements)
        (void)snprintf(ret_text, size,
                       "all %" PRIu64 " elements within the error bound, worst %.3f of it",
                       report->elements, report->worst_ratio);
    else
        (void)snprintf(ret_text, size,
                       "%" PRIu64 " of %" PRIu64
                       " elements checked, all within the error bound, worst %.3f of it",
                       report->checked, report->elements, report->worst_ratio);
}

#define POISON 0xff

void reference_poison(void *d, size_t size)
{
    memset(d, POISON, size);
}

int64_t reference_find_spill(const struct problem *problem, const void *d, size_t size)
{
    const struct problem_operand *operand = &problem->operand[OPERAND_D];
    size_t element = dtype_size(problem->output), row_bytes = (size_t)problem->n * element;
    cleanup(freep) unsigned char *belongs = calloc(size + 1, 1);

    if (!belongs)
        return -2;
    for (int64_t l = 0; l < problem->batch && !problem_is_empty(problem); l++) {
        for (int64_t i = 0; i < problem->m; i++)
            memset(belongs + (size_t)(l * operand->stride + i * operand->ld) * element, 1,
                   row_bytes);
    }
    for (size_t i = 0; i < size; i++) {
        if (!belongs[i] && ((const unsigned char *)d)[i] != POISON)
            return (int64_t)i;
    }
    return -1;
}
