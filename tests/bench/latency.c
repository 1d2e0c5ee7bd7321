/*
 * First light: a client that asks for one product, waits, and asks for the next. What the daemon
 * says of each (its wait for its turn, and from its start to its end in the worker) is no part of
 * what the socket and the two processes cost: the rest.
 */
#include <stdio.h>

#include "../../client/reference.h"
#include "client.h"

#include <stdlib.h>

#define OPTIONS "socket size count warmup"

struct setting {
    gemmd *connection;
    int64_t size;
    double warmup; /* seconds */
    size_t bytes;  /* of a matrix */
    gemmd_buffer *a, *b, *d;
    void *host_a, *host_b, *host_d;
    gemmd_product product;
};

static int make_buffers(struct setting *s)
{
    gemmd_buffer **buffers[] = {&s->a, &s->b, &s->d};
    for (size_t i = 0; i < ARRAY_SIZE(buffers); i++) {
        if (gemmd_buffer_create(s->connection, GEMMD_DEVICE, s->bytes, NULL, 0, buffers[i]))
            return bench_client_failed(s->connection, "creating a buffer");
    }
    bench_fill(DTYPE_BF16, s->host_a, s->bytes / 2, 1);
    bench_fill(DTYPE_BF16, s->host_b, s->bytes / 2, 2);
    if (gemmd_buffer_write(s->a, 0, s->host_a, s->bytes) ||
        gemmd_buffer_write(s->b, 0, s->host_b, s->bytes))
        return bench_client_failed(s->connection, "writing operands");
    s->product = bench_product(s->size);
    s->product.a.buffer = s->a;
    s->product.b.buffer = s->b;
    s->product.d.buffer = s->d;
    return 0;
}

static int check(struct setting *s)
{
    char text[256];
    gemmd_result result = {.size = sizeof(result)};
    struct reference_report report;
    struct problem problem = {.input = DTYPE_BF16,
                              .output = DTYPE_BF16,
                              .m = s->size,
                              .n = s->size,
                              .k = s->size,
                              .batch = 1,
                              .trans_b = true,
                              .alpha = 1};
    problem_leave_layouts(&problem);
    problem_fill_defaults(&problem);
    if (gemmd_gemm(s->connection, &s->product, &result) ||
        gemmd_buffer_read(s->d, 0, s->host_d, s->bytes))
        return bench_client_failed(s->connection, "the product");

    struct reference_operands operands = {.a = s->host_a, .b = s->host_b, .d = s->host_d};
    if (reference_check(&problem, &operands, REFERENCE_ONE_SECOND, &report) < 0)
        return 1;
    reference_describe(&report, text, sizeof(text));
    printf("# configuration %s; %s\n", result.configuration, text);
    return !reference_is_right(&report);
}

enum column { WHOLE, QUEUED, DEVICE, REST, COLUMNS };

static int measure(struct setting *s, struct samples samples[COLUMNS])
{
    gemmd_result result = {.size = sizeof(result)};
    double warm_until = bench_now() + s->warmup;
    while (bench_now() < warm_until) {
        if (gemmd_gemm(s->connection, &s->product, NULL))
            return bench_client_failed(s->connection, "the product");
    }
    for (size_t i = 0; i < samples[WHOLE].count; i++) {
        double start = bench_now();
        if (gemmd_gemm(s->connection, &s->product, &result))
            return bench_client_failed(s->connection, "the product");
        samples[WHOLE].values[i] = (bench_now() - start) * 1e6;
        samples[QUEUED].values[i] = result.queued_seconds * 1e6;
        samples[DEVICE].values[i] = result.device_seconds * 1e6;
        samples[REST].values[i] =
            samples[WHOLE].values[i] - samples[QUEUED].values[i] - samples[DEVICE].values[i];
    }
    return 0;
}

static void print(const struct setting *s, struct samples *samples)
{
    const char *separator = "latency-stages,";
    printf("measurement,size,count,p50_us,p90_us,p99_us,min_us,max_us\n");
    printf("latency,%lld,%zu,%.2f,%.2f,%.2f,%.2f,%.2f\n", (long long)s->size, samples->count,
           samples_percentile(samples, 50), samples_percentile(samples, 90),
           samples_percentile(samples, 99), samples_percentile(samples, 0),
           samples_percentile(samples, 100));
    printf("measurement,queued_us,in_worker_us,rest_us\n");
    for (int i = QUEUED; i < COLUMNS; i++, separator = ",")
        printf("%s%.2f", separator, samples_percentile(&samples[i], 50));
    printf("\n");
}

int bench_latency(int argc, char **argv)
{
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    struct setting s = {.size = (int64_t)bench_option_number(argc, argv, "--size", 256),
                        .warmup = bench_option_number(argc, argv, "--warmup", 1)};
    struct samples samples[COLUMNS];
    size_t count = (size_t)bench_option_number(argc, argv, "--count", 20000);
    gemmd_info info = {.size = sizeof(info)};
    gemmd_error error;
    s.bytes = (size_t)(s.size * s.size) * 2;
    s.host_a = malloc(s.bytes);
    s.host_b = malloc(s.bytes);
    s.host_d = malloc(s.bytes);
    double *values = calloc(COLUMNS * (count + 1), sizeof(double));
    bool has_memory = s.host_a && s.host_b && s.host_d && values;
    for (size_t i = 0; i < COLUMNS; i++)
        samples[i] = (struct samples){has_memory ? values + i * count : NULL, count};
    if (!has_memory || gemmd_connect(bench_option(argc, argv, "--socket", NULL), &s.connection,
                                     &error) != GEMMD_OK) {
        fprintf(stderr, "gemmd-bench: %s\n", has_memory ? error.message : "no memory");
        return 3;
    }

    int r = gemmd_get_info(s.connection, &info) ? bench_client_failed(s.connection, "hello") : 0;
    if (!r)
        bench_print_facts(info.device, info.device_kind);
    r = r ? r : make_buffers(&s);
    r = r ? r : check(&s);
    r = r ? r : measure(&s, samples);
    if (!r)
        print(&s, samples);
    gemmd_close(s.connection);
    free(s.host_a);
    free(s.host_b);
    free(s.host_d);
    free(values);
    return r;
}
