/*
 * The smallest whole program: one product of plain memory. Build it against an installed gemmd:
 *
 *   cc matmul.c $(pkg-config --cflags --libs gemmd) -o matmul
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <gemmd.h>

#define N 256

int main(void)
{
    gemmd *daemon;
    gemmd_error error;
    gemmd_product product = GEMMD_PRODUCT_INIT; /* D = 1.0 * A @ B, row-major */
    gemmd_result result = {.size = sizeof(result)};
    float *a = calloc(N * N, sizeof(*a)), *b = calloc(N * N, sizeof(*b));
    float *d = calloc(N * N, sizeof(*d));

    if (!a || !b || !d)
        errx(1, "out of memory");
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i % 7);
        b[i] = i / N == i % N ? 2.0f : 0.0f; /* twice the identity */
    }
    if (gemmd_connect(NULL, &daemon, &error) != GEMMD_OK)
        errx(1, "%s", error.message);

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = N;
    product.a.data = a;
    product.b.data = b;
    product.d.data = d;
    if (gemmd_gemm(daemon, &product, &result) != GEMMD_OK)
        errx(1, "%s", gemmd_last_error(daemon)->message);
    printf("d[0][5] = %g, expected %g (%s)\n", d[5], 2.0 * a[5], result.configuration);

    gemmd_close(daemon);
    free(a);
    free(b);
    free(d);
    return 0;
}
