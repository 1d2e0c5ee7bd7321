/*
 * The two products of OpenBLAS that the CPU worker uses, found at run time, and a slow substitute
 * of our own for machines without the library.
 *
 * Both have cblas's row-major calling form. Sizes and leading dimensions are C ints there: the
 * caller cuts larger products into blocks.
 *
 * Owner: backend_cpu, by value. Thread: the worker's; the library has threads of its own, as many
 * as OPENBLAS_NUM_THREADS says or one per CPU this process may run on.
 */
#pragma once

#include "../core/std.h"

enum {
    BLAS_ROW_MAJOR = 101,
    BLAS_PLAIN = 111,
    BLAS_TRANSPOSED = 112,
};

/* C = alpha * op(A) @ op(B) + beta * C, as cblas_sgemm and cblas_dgemm. */
typedef void (*blas_sgemm_fn)(int order,
                              int trans_a,
                              int trans_b,
                              int m,
                              int n,
                              int k,
                              float alpha,
                              const float *a,
                              int lda,
                              const float *b,
                              int ldb,
                              float beta,
                              float *c,
                              int ldc);
typedef void (*blas_dgemm_fn)(int order,
                              int trans_a,
                              int trans_b,
                              int m,
                              int n,
                              int k,
                              double alpha,
                              const double *a,
                              int lda,
                              const double *b,
                              int ldb,
                              double beta,
                              double *c,
                              int ldc);

struct blas {
    void *library;       /* NULL: our own loop serves */
    blas_sgemm_fn sgemm; /* NULL without a library: everything goes through dgemm */
    blas_dgemm_fn dgemm; /* never NULL after blas_init() */
    unsigned threads;
    char description[64];
};

#define BLAS_NULL ((struct blas){0})

/* Loads `library`, of $GEMMD_BLAS (NULL: OpenBLAS under its usual names). Never fails: without a
 * library that has what is needed, our own loop serves, and `description` says so. */
void blas_init(struct blas *blas, const char *library);
void blas_deinit(struct blas *blas);
