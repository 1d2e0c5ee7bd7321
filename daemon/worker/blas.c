#include "blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define STRIP 256 /* columns summed at once: their sums stay in the first-level cache */

struct plain_operand {
    const double *base;
    ptrdiff_t row, column; /* distance from one to the next, in elements */
};

static struct plain_operand plain_operand(const double *base, int trans, int ld)
{
    return trans == BLAS_TRANSPOSED ? (struct plain_operand){base, 1, ld}
                                    : (struct plain_operand){base, ld, 1};
}

/* sums[j] = row i of A times column j of B, for `width` columns. No product is left out: 0 * Inf is
 * NaN. */
static void plain_strip(
    const struct plain_operand *a, const struct plain_operand *b, int k, int width, double *sums)
{
    memset(sums, 0, (size_t)width * sizeof(*sums));
    for (int l = 0; l < k; l++) {
        const double factor = a->base[l * a->column];
        const double *row = b->base + l * b->row;

        for (int j = 0; j < width; j++)
            sums[j] += factor * row[j * b->column];
    }
}

static void plain_dgemm(int order,
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
                        int ldc)
{
    struct plain_operand left = plain_operand(a, trans_a, lda);
    double sums[STRIP];

    assert(order == BLAS_ROW_MAJOR);
    for (int i = 0; i < m; i++) {
        struct plain_operand right = plain_operand(b, trans_b, ldb);

        for (int j0 = 0; j0 < n; j0 += STRIP) {
            const int width = MIN(STRIP, n - j0);
            double *out = c + (ptrdiff_t)i * ldc + j0;

            plain_strip(&left, &right, k, width, sums);
            for (int j = 0; j < width; j++)
                out[j] = alpha * sums[j] + (beta == 0 ? 0 : beta * out[j]);
            right.base += STRIP * right.column;
        }
        left.base += left.row;
    }
}

static void *library_open(const char *library)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    void *handle = NULL;

    if (library)
        return dlopen(library, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < ARRAY_SIZE(names) && !handle; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

/* dlsym() gives an object pointer; POSIX promises that it can be read as a function's. */
static bool symbol_find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);

    if (!symbol)
        return false;
    memcpy(ret_function, &symbol, sizeof(symbol));
    return true;
}

/* "OpenBLAS 0.3.21 (Zen)": the configuration's first two words and the kernels in use. */
static void library_describe(struct blas *blas)
{
    char *(*get_config)(void);
    char *(*get_core)(void);
    int (*get_threads)(void);
    const char *config = "OpenBLAS";
    const char *core = "unknown core";
    size_t length;

    if (symbol_find(blas->library, "openblas_get_config", &get_config))
        config = get_config();
    if (symbol_find(blas->library, "openblas_get_corename", &get_core))
        core = get_core();
    if (symbol_find(blas->library, "openblas_get_num_threads", &get_threads))
        blas->threads = (unsigned)MAX(1, get_threads());

    length = strcspn(config, " ");
    if (config[length])
        length += 1 + strcspn(config + length + 1, " ");
    (void)snprintf(blas->description, sizeof(blas->description), "%.*s (%s)", (int)MIN(length, 32),
                   config, core);
}

void blas_init(struct blas *blas, const char *library)
{
    *blas = (struct blas){.threads = 1};

    blas->library = library_open(library);
    if (blas->library && symbol_find(blas->library, "cblas_sgemm", &blas->sgemm) &&
        symbol_find(blas->library, "cblas_dgemm", &blas->dgemm)) {
        library_describe(blas);
        return;
    }

    blas_deinit(blas);
    *blas = (struct blas){.threads = 1, .dgemm = plain_dgemm};
    (void)snprintf(blas->description, sizeof(blas->description), "%s: plain loops, slow",
                   library ? "GEMMD_BLAS names no usable BLAS" : "no OpenBLAS found");
}

/* The library stays mapped: its threads may not have left its code when dlclose() returns. */
void blas_deinit(struct blas *blas)
{
    *blas = BLAS_NULL;
}
