/*
 * Two ways to a product.
 *
 * In place: fp32 and fp64 operands that cblas can read where they lie. D = beta * C is written
 * first and the product is added to it, so that no library's idea of beta = 0 matters. Bias and
 * activation, where there are any, go over D afterwards.
 *
 * Packed: everything else (16-bit types, int8, rows further apart than an int, addresses that are
 * no multiple of the element, scalars outside float's range). Blocks of A and B are converted into
 * scratch memory, multiplied into a third block over all of K, and that block is scaled, added and
 * rounded into D once. The work type is float, or double for fp64, for int8, and when there is no
 * library.
 *
 * int8 is exact: a product is at most 2^14, so a sum of 2^39 of them is an integer below 2^53.
 */
#include "cpu_gemm.h"

#include "../core/problem.h"
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK         1024      /* m, n and k of a packed block: 8 MiB of doubles */
#define IN_PLACE_STEP (1 << 30) /* m, n and k of one call in place: fits an int */

enum {
    SCRATCH_A,
    SCRATCH_B,
    SCRATCH_SUM,
};

/* A matrix as stored: `base` is the first element of the batch item. */
struct matrix {
    char *base;
    int64_t ld;
    enum dtype dtype;
    bool is_transposed;
};

struct product {
    struct matrix a, b, c, d;
    int64_t m, n, k;
    double alpha, beta;
    enum bias bias_kind;
    struct matrix bias; /* one row */
    enum activation activation;
    bool reads_product; /* alpha and k are not 0 */
    bool sums_doubles;  /* the work type of the packed way */
};

/* A part of the product: rows and columns of D, and how much of K. */
struct block {
    int64_t row, rows;
    int64_t column, columns;
    int64_t depth, depths;
};

/* A part of op(X). */
struct area {
    int64_t row, rows;
    int64_t column, columns;
};

void cpu_gemm_init(struct cpu_gemm *gemm, const struct blas *blas)
{
    *gemm = (struct cpu_gemm){.blas = blas};
}

void cpu_gemm_deinit(struct cpu_gemm *gemm)
{
    for (size_t i = 0; i < ARRAY_SIZE(gemm->scratch); i++)
        freep(&gemm->scratch[i]);
    *gemm = CPU_GEMM_NULL;
}

static char *element(const struct matrix *matrix, int64_t row, int64_t column)
{
    const int64_t stored_row = matrix->is_transposed ? column : row;
    const int64_t stored_column = matrix->is_transposed ? row : column;
    const uint64_t index = (uint64_t)stored_row * (uint64_t)matrix->ld + (uint64_t)stored_column;

    return matrix->base + index * dtype_size(matrix->dtype);
}

static int trans_of(const struct matrix *matrix)
{
    return matrix->is_transposed ? BLAS_TRANSPOSED : BLAS_PLAIN;
}

/* --- bias and activation --------------------------------------------------------------------- */

static bool has_epilogue(const struct product *p)
{
    return p->bias_kind != BIAS_NONE || p->activation != ACTIVATION_NONE;
}

static double bias_of(const struct product *p, int64_t row, int64_t column)
{
    if (p->bias_kind == BIAS_NONE)
        return 0;
    return dtype_load(p->bias.dtype, p->bias.base,
                      (size_t)(p->bias_kind == BIAS_PER_ROW ? row : column));
}

/* --- in place -------------------------------------------------------------------------------- */

static bool matrix_suits_blas(const struct matrix *matrix)
{
    return matrix->ld <= INT_MAX && (uintptr_t)matrix->base % dtype_size(matrix->dtype) == 0;
}

/* alpha becomes a float there: outside float's range it would turn into Inf, 0 or a subnormal. */
static bool scalar_suits_blas(double value, enum dtype dtype)
{
    return dtype == DTYPE_FP64 ||
           (fabs(value) >= (double)FLT_MIN && fabs(value) <= (double)FLT_MAX);
}

static bool product_suits_blas(const struct product *p, const struct blas *blas)
{
    if (p->d.dtype != p->a.dtype || !(p->a.dtype == DTYPE_FP64 || p->a.dtype == DTYPE_FP32))
        return false;

    return (blas->sgemm || p->a.dtype == DTYPE_FP64) && matrix_suits_blas(&p->a) &&
           matrix_suits_blas(&p->b) && matrix_suits_blas(&p->d) &&
           scalar_suits_blas(p->alpha, p->a.dtype);
}

static void
add_block_in_place(const struct product *p, const struct blas *blas, const struct block *at)
{
    const void *a = element(&p->a, at->row, at->depth);
    const void *b = element(&p->b, at->depth, at->column);
    void *d = element(&p->d, at->row, at->column);
    const int m = (int)at->rows, n = (int)at->columns, k = (int)at->depths;

    if (p->a.dtype == DTYPE_FP64)
        blas->dgemm(BLAS_ROW_MAJOR, trans_of(&p->a), trans_of(&p->b), m, n, k, p->alpha, a,
                    (int)p->a.ld, b, (int)p->b.ld, 1, d, (int)p->d.ld);
    else
        blas->sgemm(BLAS_ROW_MAJOR, trans_of(&p->a), trans_of(&p->b), m, n, k, (float)p->alpha, a,
                    (int)p->a.ld, b, (int)p->b.ld, 1, d, (int)p->d.ld);
}

static void add_in_place(const struct product *p, const struct blas *blas)
{
    struct block at;

    for (at.row = 0; at.row < p->m; at.row += IN_PLACE_STEP) {
        at.rows = MIN(IN_PLACE_STEP, p->m - at.row);
        for (at.column = 0; at.column < p->n; at.column += IN_PLACE_STEP) {
            at.columns = MIN(IN_PLACE_STEP, p->n - at.column);
            for (at.depth = 0; at.depth < p->k; at.depth += IN_PLACE_STEP) {
                at.depths = MIN(IN_PLACE_STEP, p->k - at.depth);
                add_block_in_place(p, blas, &at);
            }
        }
    }
}

/* D is of the type of the sums here: nothing was rounded yet. */
static void finish_in_place(const struct product *p)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            char *d = element(&p->d, i, j);

            dtype_store(
                p->d.dtype, d, 0,
                activation_apply(p->activation, dtype_load(p->d.dtype, d, 0) + bias_of(p, i, j)));
        }
    }
}

/* --- packed ---------------------------------------------------------------------------------- */

static void floats_from_row(float *out, const char *row, int64_t count, enum dtype dtype)
{
    uint16_t bits;

    switch (dtype) {
    case DTYPE_FP32:
        memcpy(out, row, (size_t)count * sizeof(float));
        break;
    case DTYPE_BF16:
        for (int64_t i = 0; i < count; i++) {
            memcpy(&bits, row + 2 * i, sizeof(bits));
            out[i] = float_from_bf16(bits);
        }
        break;
    case DTYPE_FP16:
        for (int64_t i = 0; i < count; i++) {
            memcpy(&bits, row + 2 * i, sizeof(bits));
            out[i] = float_from_fp16(bits);
        }
        break;
    default:
        assert(!"a type that has no float work type");
    }
}

static void doubles_from_row(double *out, const char *row, int64_t count, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FP64:
        memcpy(out, row, (size_t)count * sizeof(double));
        break;
    case DTYPE_INT8:
        for (int64_t i = 0; i < count; i++)
            out[i] = ((const int8_t *)row)[i];
        break;
    default:
        for (int64_t i = 0; i < count; i++)
            out[i] = dtype_load(dtype, row, (size_t)i);
    }
}

/* Keeps the orientation of storage, so that rows are read in order; cblas transposes. */
static void pack(void *out, const struct matrix *matrix, const struct area *at, bool is_double)
{
    const int64_t rows = matrix->is_transposed ? at->columns : at->rows;
    const int64_t columns = matrix->is_transposed ? at->rows : at->columns;
    const char *row = element(matrix, at->row, at->column);
    const size_t step = (size_t)matrix->ld * dtype_size(matrix->dtype);

    for (int64_t i = 0; i < rows; i++) {
        if (is_double)
            doubles_from_row((double *)out + i * columns, row, columns, matrix->dtype);
        else
            floats_from_row((float *)out + i * columns, row, columns, matrix->dtype);
        row += step;
    }
}

static void
add_block_packed(const struct cpu_gemm *gemm, const struct product *p, const struct block *at)
{
    const struct area area_a = {at->row, at->rows, at->depth, at->depths};
    const struct area area_b = {at->depth, at->depths, at->column, at->columns};
    const int m = (int)at->rows, n = (int)at->columns, k = (int)at->depths;
    const int lda = p->a.is_transposed ? m : k, ldb = p->b.is_transposed ? k : n;
    void *a = gemm->scratch[SCRATCH_A], *b = gemm->scratch[SCRATCH_B];
    void *sums = gemm->scratch[SCRATCH_SUM];

    pack(a, &p->a, &area_a, p->sums_doubles);
    pack(b, &p->b, &area_b, p->sums_doubles);
    if (p->sums_doubles)
        gemm->blas->dgemm(BLAS_ROW_MAJOR, trans_of(&p->a), trans_of(&p->b), m, n, k, 1, a, lda, b,
                          ldb, 1, sums, n);
    else
        gemm->blas->sgemm(BLAS_ROW_MAJOR, trans_of(&p->a), trans_of(&p->b), m, n, k, 1, a, lda, b,
                          ldb, 1, sums, n);
}

/* beta * C of one element; C is not touched when beta is 0. */
static double scaled_c(const struct product *p, int64_t row, int64_t column)
{
    return p->beta == 0 ? 0 : p->beta * dtype_load(p->c.dtype, element(&p->c, row, column), 0);
}

/* All of it modulo 2^32, where a product of doubles would lose the low bits. */
static uint32_t integer_result(const struct product *p, double sum, double c, double bias)
{
    const uint32_t alpha = (uint32_t)(int64_t)p->alpha, beta = (uint32_t)(int64_t)p->beta;
    const uint32_t result =
        alpha * (uint32_t)(int64_t)sum + beta * (uint32_t)(int64_t)c + (uint32_t)(int64_t)bias;

    return p->activation == ACTIVATION_RELU && (int32_t)result < 0 ? 0 : result;
}

static void store_integer(const struct product *p, int64_t row, int64_t column, double sum)
{
    const double c = p->beta == 0 ? 0 : dtype_load(p->c.dtype, element(&p->c, row, column), 0);
    const uint32_t result = integer_result(p, sum, c, bias_of(p, row, column));

    memcpy(element(&p->d, row, column), &result, sizeof(result));
}

/* One element of D, where `product` is alpha times the sum. */
static void store_element(const struct product *p, int64_t row, int64_t column, double product)
{
    const double before = product + scaled_c(p, row, column) + bias_of(p, row, column);

    dtype_store(p->d.dtype, element(&p->d, row, column), 0,
                activation_apply(p->activation, before));
}

/* D = act(alpha * sum + beta * C + bias) for one block. Each element of C is read before that of D
 * is written, so D may be C. */
static void finish_block(const struct product *p, const struct block *at, const void *sums)
{
    for (int64_t i = 0; i < at->rows; i++) {
        for (int64_t j = 0; j < at->columns; j++) {
            const int64_t row = at->row + i, column = at->column + j;
            const size_t index = (size_t)(i * at->columns + j);
            const double sum = p->sums_doubles ? ((const double *)sums)[index]
                                               : (double)((const float *)sums)[index];

            if (p->a.dtype == DTYPE_INT8)
                store_integer(p, row, column, sum);
            else
                store_element(p, row, column, p->alpha * sum);
        }
    }
}

static bool scratch_reserve(struct cpu_gemm *gemm, int which, int64_t rows, int64_t columns)
{
    const size_t size = (size_t)rows * (size_t)columns * sizeof(double);

    if (gemm->scratch_size[which] >= size)
        return true;

    freep(&gemm->scratch[which]);
    gemm->scratch[which] = malloc(size);
    gemm->scratch_size[which] = gemm->scratch[which] ? size : 0;
    return gemm->scratch[which] != NULL;
}

static void multiply_block(struct cpu_gemm *gemm, const struct product *p, struct block *at)
{
    const size_t sums = (size_t)(at->rows * at->columns);

    memset(gemm->scratch[SCRATCH_SUM], 0, sums * sizeof(double));
    for (at->depth = 0; at->depth < p->k; at->depth += BLOCK) {
        at->depths = MIN(BLOCK, p->k - at->depth);
        add_block_packed(gemm, p, at);
    }
    finish_block(p, at, gemm->scratch[SCRATCH_SUM]);
}

static enum status multiply_packed(struct cpu_gemm *gemm, const struct product *p)
{
    const int64_t m = MIN(BLOCK, p->m), n = MIN(BLOCK, p->n), k = MIN(BLOCK, p->k);
    struct block at;

    if (!scratch_reserve(gemm, SCRATCH_A, m, k) || !scratch_reserve(gemm, SCRATCH_B, k, n) ||
        !scratch_reserve(gemm, SCRATCH_SUM, m, n))
        return STATUS_OUT_OF_MEMORY;

    for (at.row = 0; at.row < p->m; at.row += BLOCK) {
        at.rows = MIN(BLOCK, p->m - at.row);
        for (at.column = 0; at.column < p->n; at.column += BLOCK) {
            at.columns = MIN(BLOCK, p->n - at.column);
            multiply_block(gemm, p, &at);
        }
    }
    return STATUS_OK;
}

/* --- one product ----------------------------------------------------------------------------- */

/* D without a product. */
static void write_without_product(const struct product *p)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            if (p->a.dtype == DTYPE_INT8)
                store_integer(p, i, j, 0);
            else
                store_element(p, i, j, 0);
        }
    }
}

/* D = beta * C, or zeros. */
static void write_scaled_c(const struct product *p)
{
    const size_t row_size = (size_t)p->n * dtype_size(p->d.dtype);

    for (int64_t i = 0; i < p->m; i++) {
        if (p->beta == 0)
            memset(element(&p->d, i, 0), 0, row_size);
        else if (p->a.dtype == DTYPE_INT8)
            for (int64_t j = 0; j < p->n; j++)
                store_integer(p, i, j, 0);
        else if (p->beta == 1)
            memmove(element(&p->d, i, 0), element(&p->c, i, 0), row_size);
        else
            for (int64_t j = 0; j < p->n; j++)
                dtype_store(p->d.dtype, element(&p->d, i, j), 0, scaled_c(p, i, j));
    }
}

static enum status product_run(struct cpu_gemm *gemm, const struct product *p)
{
    const bool in_place = product_suits_blas(p, gemm->blas);

    if (p->reads_product && !in_place)
        return multiply_packed(gemm, p);
    if (!p->reads_product && has_epilogue(p)) {
        write_without_product(p);
        return STATUS_OK;
    }

    write_scaled_c(p);
    if (p->reads_product)
        add_in_place(p, gemm->blas);
    if (has_epilogue(p))
        finish_in_place(p);
    return STATUS_OK;
}

/* Unsigned: what is not read may have any stride. */
static struct matrix
matrix_of(gemmd_u64 address, gemmd_i64 ld, uint64_t offset, enum dtype dtype, bool is_transposed)
{
    return (struct matrix){
        .base = (char *)(uintptr_t)(address + offset * dtype_size(dtype)),
        .ld = ld,
        .dtype = dtype,
        .is_transposed = is_transposed,
    };
}

static enum bias bias_kind_of(const struct gemmd_job *job)
{
    if (job->flags & GEMMD_JOB_BIAS_PER_ROW)
        return BIAS_PER_ROW;
    return job->flags & GEMMD_JOB_BIAS_PER_COLUMN ? BIAS_PER_COLUMN : BIAS_NONE;
}

static struct product product_of(const struct gemmd_job *job, int64_t item, const struct blas *blas)
{
    const enum dtype input = (enum dtype)job->input, output = (enum dtype)job->output;
    const bool trans_a = job->flags & GEMMD_JOB_TRANS_A, trans_b = job->flags & GEMMD_JOB_TRANS_B;

    return (struct product){
        .a = matrix_of(job->a, job->lda, (uint64_t)item * (uint64_t)job->stride_a, input, trans_a),
        .b = matrix_of(job->b, job->ldb, (uint64_t)item * (uint64_t)job->stride_b, input, trans_b),
        .c = matrix_of(job->c, job->ldc, (uint64_t)item * (uint64_t)job->stride_c, output, false),
        .d = matrix_of(job->d, job->ldd, (uint64_t)item * (uint64_t)job->stride_d, output, false),
        .bias_kind = bias_kind_of(job),
        .bias = matrix_of(job->bias, 0, (uint64_t)item * (uint64_t)job->stride_bias, output, false),
        .activation = (enum activation)job->activation,
        .m = job->m,
        .n = job->n,
        .k = job->k,
        .alpha = job->alpha,
        .beta = job->beta,
        .reads_product = job->k > 0 && job->alpha != 0,
        .sums_doubles = input == DTYPE_FP64 || input == DTYPE_INT8 || !blas->sgemm,
    };
}

enum status cpu_gemm_run(struct cpu_gemm *gemm, const struct gemmd_job *job)
{
    enum status status = STATUS_OK;

    if (!dtype_pair_is_valid((enum dtype)job->input, (enum dtype)job->output) ||
        !activation_is_valid((enum activation)job->activation, (enum dtype)job->output) ||
        job->tile_count != 0)
        return STATUS_UNSUPPORTED;
    if (job->m <= 0 || job->n <= 0)
        return STATUS_OK;

    for (int64_t item = 0; item < job->batch && status == STATUS_OK; item++) {
        const struct product product = product_of(job, item, gemm->blas);

        status = product_run(gemm, &product);
    }
    return status;
}
