/*
 * rate: one product on device buffers, its rate, and whether it is right.
 *
 *   rate [--socket PATH] [--dtype bf16|fp16|fp32|fp64] M N K
 *
 * Operands are random in [-1, 1]. The first product pays for the kernel (compiled or from the
 * cache), the following ones show the rate. SAMPLES elements of the result are computed again in
 * double precision and must lie within the bound of daemon/core/dtype.h.
 */
#include "../../daemon/core/dtype.h"
#include "../gemmd.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES     256
#define RUN_SECONDS 1.0
#define RUNS_MAX    200

struct rate {
    gemmd *connection;
    gemmd_buffer *a, *b, *d;
    int64_t m, n, k;
    enum dtype dtype;
    size_t element;
    uint64_t random;
};

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* xorshift64*, after Vigna, "An experimental exploration of Marsaglia's xorshift generators". */
static uint64_t random_next(struct rate *rate)
{
    rate->random ^= rate->random >> 12;
    rate->random ^= rate->random << 25;
    rate->random ^= rate->random >> 27;
    return rate->random * 0x2545f4914f6cdd1dull;
}

static int fail(const struct rate *rate, const char *what)
{
    const gemmd_error *error = gemmd_last_error(rate->connection);

    (void)fprintf(stderr, "rate: %s: %s: %s %s\n", what, gemmd_strerror(error->status),
                  error->argument, error->message);
    return 1;
}

/* A device buffer of rows x columns random elements, and the same values in host memory. */
static gemmd_buffer *
random_operand(struct rate *rate, int64_t rows, int64_t columns, void **ret_host)
{
    size_t count = (size_t)rows * (size_t)columns;
    void *host = malloc(MAX(count, 1) * rate->element);
    gemmd_buffer *buffer = NULL;

    if (host == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        dtype_store(rate->dtype, host, i, (double)(random_next(rate) >> 11) * 0x1p-52 - 1.0);
    if (gemmd_buffer_create(rate->connection, GEMMD_DEVICE, count * rate->element, NULL, 0,
                            &buffer) != GEMMD_OK ||
        gemmd_buffer_write(buffer, 0, host, count * rate->element) != GEMMD_OK) {
        free(host);
        return NULL;
    }
    *ret_host = host;
    return buffer;
}

static gemmd_status run(struct rate *rate, gemmd_result *ret_result)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = (gemmd_dtype)rate->dtype;
    product.m = rate->m;
    product.n = rate->n;
    product.k = rate->k;
    product.trans_b = true; /* as weights are stored: B[N,K] */
    product.a.buffer = rate->a;
    product.b.buffer = rate->b;
    product.d.buffer = rate->d;
    return gemmd_gemm(rate->connection, &product, ret_result);
}

/* How many of SAMPLES random elements lie outside the bound. */
static int count_wrong(struct rate *rate, const void *a, const void *b, const void *d)
{
    int wrong = 0;

    for (int i = 0; i < SAMPLES; i++) {
        size_t row = random_next(rate) % (uint64_t)rate->m;
        size_t column = random_next(rate) % (uint64_t)rate->n;
        double sum = 0, magnitude = 0, bound, got;

        for (size_t k = 0; k < (size_t)rate->k; k++) {
            double term = dtype_load(rate->dtype, a, row * (size_t)rate->k + k) *
                          dtype_load(rate->dtype, b, column * (size_t)rate->k + k);

            sum += term;
            magnitude += fabs(term);
        }
        got = dtype_load(rate->dtype, d, row * (size_t)rate->n + column);
        bound = dtype_error_bound(rate->dtype, rate->dtype, rate->k, sum, magnitude, 0);
        if (!(fabs(got - sum) <= bound))
            wrong++;
    }
    return wrong;
}

static int measure(struct rate *rate)
{
    double flop = 2.0 * (double)rate->m * (double)rate->n * (double)rate->k;
    gemmd_result result = {.size = sizeof(result)};
    double begin = now(), cold, best = INFINITY, device = INFINITY;
    int runs = 0;

    if (run(rate, &result) != GEMMD_OK)
        return fail(rate, "product");
    cold = now() - begin;
    printf("configuration   %s\n", result.configuration);
    printf("first product   %.3f ms, %.0f ms of it compiling\n", 1e3 * cold,
           1e3 * result.compile_seconds);
    for (double end = now() + RUN_SECONDS; runs < RUNS_MAX && (runs < 3 || now() < end); runs++) {
        begin = now();
        if (run(rate, &result) != GEMMD_OK)
            return fail(rate, "product");
        best = fmin(best, now() - begin);
        device = fmin(device, result.device_seconds);
    }
    printf("warm product    %.3f ms as the client sees it, %.3f ms in the worker (best of %d)\n",
           1e3 * best, 1e3 * device, runs);
    printf("rate            %.3f TFLOP/s\n", flop / best * 1e-12);
    return 0;
}

static int check(struct rate *rate, const void *a, const void *b)
{
    uint64_t bytes = (uint64_t)rate->m * (uint64_t)rate->n * rate->element;
    void *d = malloc(bytes);
    int wrong;

    if (d == NULL || gemmd_buffer_read(rate->d, 0, d, bytes) != GEMMD_OK) {
        free(d);
        return fail(rate, "reading the result");
    }
    wrong = count_wrong(rate, a, b, d);
    free(d);
    printf("checked         %d elements against fp64, %d outside the bound\n", SAMPLES, wrong);
    return wrong != 0;
}

static int usage(const char *program)
{
    (void)fprintf(stderr, "usage: %s [--socket PATH] [--dtype bf16|fp16|fp32|fp64] M N K\n",
                  program);
    return 2;
}

static bool parse(struct rate *rate, int argc, char **argv, const char **ret_socket)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'}, {"dtype", required_argument, NULL, 't'}, {0}};
    int64_t *sizes[] = {&rate->m, &rate->n, &rate->k};

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            *ret_socket = optarg;
        else if (c != 't' || !dtype_from_name(optarg, strlen(optarg), &rate->dtype))
            return false;
    }
    if (argc - optind != 3 || rate->dtype == DTYPE_INT8 || rate->dtype == DTYPE_INT32)
        return false;
    for (int i = 0; i < 3; i++) {
        char *end;

        *sizes[i] = strtoll(argv[optind + i], &end, 10);
        if (*end != 0 || *sizes[i] < 1 || *sizes[i] > 65536)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct rate rate = {.dtype = DTYPE_BF16, .random = 0x9e3779b97f4a7c15ull};
    const char *socket = NULL;
    gemmd_error error;
    void *a = NULL, *b = NULL;
    int status = 1;

    if (!parse(&rate, argc, argv, &socket))
        return usage(argv[0]);
    if (gemmd_connect(socket, &rate.connection, &error) != GEMMD_OK) {
        (void)fprintf(stderr, "rate: %s\n", error.message);
        return 3;
    }
    rate.element = dtype_size(rate.dtype);
    rate.a = random_operand(&rate, rate.m, rate.k, &a);
    rate.b = random_operand(&rate, rate.n, rate.k, &b);
    if (rate.a == NULL || rate.b == NULL ||
        gemmd_buffer_create(rate.connection, GEMMD_DEVICE,
                            (uint64_t)rate.m * (uint64_t)rate.n * rate.element, NULL, 0,
                            &rate.d) != GEMMD_OK)
        (void)fail(&rate, "operands");
    else
        status = measure(&rate) || check(&rate, a, b);
    free(a);
    free(b);
    gemmd_close(rate.connection);
    return status;
}
