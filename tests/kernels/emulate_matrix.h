/*
 * Operands of emulated kernels: random values, in memory that ends at a page that cannot be
 * touched.
 */
#pragma once

#include "../../daemon/core/dtype.h"
#include "../../daemon/core/std.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define POISON 0xff /* NaN in every floating type; -1 in integers */

struct matrix {
    enum dtype dtype;
    int64_t rows, cols, ld, stride, batch;
    size_t bytes;
    char *data; /* NULL when the product may not touch it */
    void *map;
    size_t map_size;
};

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

static double random_value(enum dtype dtype)
{
    double unit = (double)random_next() / (double)(1u << 30) - 1; /* [-1, 1) */

    if (dtype == DTYPE_INT8)
        return floor(unit * 128);
    if (dtype == DTYPE_INT32)
        return floor(unit * 0x1p31);
    return unit;
}

static size_t at(const struct matrix *matrix, int64_t item, int64_t row, int64_t col)
{
    return (size_t)(item * matrix->stride + row * matrix->ld + col);
}

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* The data ends at a guard page, but for what `alignment` of its start takes. */
static void matrix_allocate(struct matrix *matrix, size_t alignment)
{
    size_t body;

    matrix->bytes = (at(matrix, matrix->batch - 1, matrix->rows - 1, matrix->cols - 1) + 1) *
                    dtype_size(matrix->dtype);
    body = page_up(matrix->bytes + alignment);
    matrix->map_size = body + 8192;
    matrix->map =
        mmap(NULL, matrix->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(matrix->map != MAP_FAILED);
    mprotect(matrix->map, 4096, PROT_NONE);
    mprotect((char *)matrix->map + 4096 + body, 4096, PROT_NONE);
    matrix->data = (char *)matrix->map + 4096 + (body - matrix->bytes) / alignment * alignment;
    memset(matrix->data, POISON, matrix->bytes);
}

/* Memory that is there where it is touched: zeros, for matrices larger than the machine's. */
static void matrix_reserve(struct matrix *matrix)
{
    matrix->bytes = (at(matrix, matrix->batch - 1, matrix->rows - 1, matrix->cols - 1) + 1) *
                    dtype_size(matrix->dtype);
    matrix->map_size = page_up(matrix->bytes);
    matrix->map = mmap(NULL, matrix->map_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(matrix->map != MAP_FAILED);
    matrix->data = matrix->map;
}

static void matrix_fill_columns(struct matrix *matrix, int64_t columns)
{
    for (int64_t b = 0; b < matrix->batch; b++)
        for (int64_t i = 0; i < matrix->rows; i++)
            for (int64_t j = 0; j < columns; j++)
                dtype_store(matrix->dtype, matrix->data, at(matrix, b, i, j),
                            random_value(matrix->dtype));
}

static void matrix_fill(struct matrix *matrix)
{
    matrix_fill_columns(matrix, matrix->cols);
}

static void
matrix_set(const struct matrix *matrix, bool is_transposed, int64_t row, int64_t col, double value)
{
    dtype_store(matrix->dtype, matrix->data,
                is_transposed ? at(matrix, 0, col, row) : at(matrix, 0, row, col), value);
}

static void matrix_free(struct matrix *matrix)
{
    if (matrix->map)
        munmap(matrix->map, matrix->map_size);
}
