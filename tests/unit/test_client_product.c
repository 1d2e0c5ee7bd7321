/*
 * libgemmd: products of plain memory and buffers, against a local product in double.
 */
#include <stdlib.h>
#include <string.h>

#include "client_fixture.h"

/* --- one product in every guise -------------------------------------------------------------- */

#define CANARY 0x5a

/* What varies. `pad` elements lie behind each row, `gap` behind each item. */
struct variant {
    gemmd_dtype dtype;
    gemmd_order order;
    bool trans_a, trans_b;
    int64_t m, n, k, batch, pad, gap;
};

struct stored {
    int64_t rows, columns, ld, stride, count; /* as rows of memory */
    void *data;
};

/* A matrix of `rows` x `columns` in the caller's eyes. */
static struct stored store(const struct variant *v, enum dtype dtype, int64_t rows, int64_t columns)
{
    bool is_column_major = v->order == GEMMD_COLUMN_MAJOR;
    struct stored s = {.rows = is_column_major ? columns : rows,
                       .columns = is_column_major ? rows : columns};

    s.ld = s.columns + v->pad;
    s.stride = s.rows * s.ld + v->gap;
    s.count = s.stride * v->batch;
    s.data = malloc((size_t)s.count * dtype_size(dtype));
    memset(s.data, CANARY, (size_t)s.count * dtype_size(dtype));
    for (int64_t i = 0; i < v->batch; i++) {
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.columns; c++)
                dtype_store(dtype, s.data, (size_t)(i * s.stride + r * s.ld + c), rand() % 7 - 3);
        }
    }
    return s;
}

static double at(const struct variant *v,
                 enum dtype dtype,
                 const struct stored *s,
                 bool transposed,
                 int64_t item,
                 int64_t row,
                 int64_t column)
{
    bool swaps = transposed != (v->order == GEMMD_COLUMN_MAJOR);
    int64_t r = swaps ? column : row, c = swaps ? row : column;

    return dtype_load(dtype, s->data, (size_t)(item * s->stride + r * s->ld + c));
}

static gemmd_operand operand(const struct stored *s)
{
    return (gemmd_operand){.data = s->data, .ld = s->ld, .stride = s->stride};
}

/* Small integers: exact in every type, so results are compared for equality. */
static void expect_product(const struct variant *v)
{
    enum dtype input = (enum dtype)v->dtype, output = dtype_default_output(input);
    struct stored a = v->trans_a ? store(v, input, v->k, v->m) : store(v, input, v->m, v->k);
    struct stored b = v->trans_b ? store(v, input, v->n, v->k) : store(v, input, v->k, v->n);
    struct stored c = store(v, output, v->m, v->n), d = store(v, output, v->m, v->n);
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = v->dtype;
    product.order = v->order;
    product.trans_a = v->trans_a;
    product.trans_b = v->trans_b;
    product.m = v->m, product.n = v->n, product.k = v->k, product.batch = v->batch;
    product.alpha = 2, product.beta = -1;
    product.a = operand(&a), product.b = operand(&b);
    product.c = operand(&c), product.d = operand(&d);
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    for (int64_t i = 0; i < v->batch; i++) {
        for (int64_t r = 0; r < v->m; r++) {
            for (int64_t n = 0; n < v->n; n++) {
                double sum = 0;

                for (int64_t k = 0; k < v->k; k++)
                    sum += at(v, input, &a, v->trans_a, i, r, k) *
                           at(v, input, &b, v->trans_b, i, k, n);
                sum = 2 * sum - at(v, output, &c, false, i, r, n);
                cr_assert_eq(at(v, output, &d, false, i, r, n), sum);
            }
        }
    }
    for (int64_t e = 0; e < d.count; e++) {
        int64_t in_item = e % d.stride, row = in_item / d.ld, column = in_item % d.ld;
        const unsigned char *bytes = (unsigned char *)d.data + (size_t)e * dtype_size(output);

        for (size_t byte = 0; byte < dtype_size(output); byte++) {
            if (row >= d.rows || column >= d.columns)
                cr_assert_eq(bytes[byte], CANARY, "between rows and items nothing is written");
        }
    }
    free(a.data), free(b.data), free(c.data), free(d.data);
}

static void expect_all_layouts(struct variant v)
{
    for (int bits = 0; bits < 8; bits++) {
        v.order = bits & 1 ? GEMMD_COLUMN_MAJOR : GEMMD_ROW_MAJOR;
        v.trans_a = bits & 2;
        v.trans_b = bits & 4;
        expect_product(&v);
    }
}

Test(client_product, multiplies_every_type_and_layout_in_messages)
{
    connect_to(NULL);
    for (int dtype = GEMMD_BF16; dtype <= GEMMD_INT8; dtype++)
        expect_all_layouts((struct variant){
            .dtype = (gemmd_dtype)dtype, .m = 5, .n = 3, .k = 7, .batch = 2, .pad = 2, .gap = 3});
    cr_assert_eq(atomic_load(&fake.requests[METHOD_BUFFER_CREATE]), 0);
    disconnect();
}

Test(client_product, multiplies_every_layout_through_staging)
{
    /* The fake takes no more than 8 KiB in a message, so this need not be large. */
    connect_to(&(struct fake_options){.length_max = 8192});
    expect_all_layouts((struct variant){
        .dtype = GEMMD_FP32, .m = 33, .n = 30, .k = 41, .batch = 2, .pad = 3, .gap = 5});
    cr_assert_eq(atomic_load(&fake.requests[METHOD_BUFFER_CREATE]), 1, "one block, kept");
    cr_assert_leq(atomic_load(&fake.largest_frame), 8192);
    disconnect();
}

Test(client_product, leaves_wide_gaps_at_home)
{
    connect_to(NULL);
    expect_all_layouts((struct variant){
        .dtype = GEMMD_FP16, .m = 9, .n = 8, .k = 7, .batch = 3, .pad = 5000, .gap = 70000});
    cr_assert_lt(atomic_load(&fake.largest_frame), 8192);
    cr_assert_eq(atomic_load(&fake.requests[METHOD_BUFFER_CREATE]), 0);
    disconnect();
}

Test(client_product, sends_one_item_for_a_stride_of_zero)
{
    float a[64 * 64], b[64 * 64], d[3 * 64 * 64];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int i = 0; i < 64 * 64; i++)
        a[i] = (float)(i % 5), b[i] = i / 64 == i % 64;
    connect_to(NULL);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 64;
    product.batch = 3;
    product.a.data = a, product.a.stride = 0;
    product.b.data = b, product.b.stride = 0;
    product.d.data = d;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_arr_eq(d + i * 64 * 64, a, sizeof(a));
    cr_assert_lt(atomic_load(&fake.largest_frame), 3 * sizeof(a));
    disconnect();
}

Test(client_product, keeps_to_its_columns_when_items_share_rows)
{
    /* Three heads of 4 columns in rows of 16: A, B and D all side by side. */
    float a[8 * 16], b[4 * 16], d[8 * 16];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int i = 0; i < 8 * 16; i++)
        a[i] = (float)i, d[i] = -1;
    for (int i = 0; i < 4 * 16; i++)
        b[i] = i / 16 == i % 4;
    connect_to(NULL);
    product.input = GEMMD_FP32;
    product.m = 8, product.n = 4, product.k = 4, product.batch = 3;
    product.a = (gemmd_operand){.data = a, .ld = 16, .stride = 4};
    product.b = (gemmd_operand){.data = b, .ld = 16, .stride = 4};
    product.d = (gemmd_operand){.data = d, .ld = 16, .stride = 4};
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    for (int i = 0; i < 8 * 16; i++)
        cr_assert_eq(d[i], i % 16 < 12 ? a[i] : -1);
    disconnect();
}

Test(client_product, sends_what_windows_of_one_array_share_once)
{
    /* 20,000 windows of 64 elements, one apart: 80 KiB of memory, 5 MiB if each were copied. */
    const int64_t batch = 20000;
    float *a = calloc((size_t)batch + 64, sizeof(float)), b[64], *d = calloc((size_t)batch, 4);
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int64_t i = 0; i < batch + 64; i++)
        a[i] = (float)(i % 3);
    for (int i = 0; i < 64; i++)
        b[i] = i == 63;
    connect_to(NULL);
    product.input = GEMMD_FP32;
    product.m = product.n = 1, product.k = 64, product.batch = batch;
    product.a = (gemmd_operand){.data = a, .ld = 64, .stride = 1};
    product.b = (gemmd_operand){.data = b, .ld = 1, .stride = 0};
    product.d = (gemmd_operand){.data = d, .ld = 1, .stride = 1};
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    for (int64_t i = 0; i < batch; i++)
        cr_assert_eq(d[i], a[i + 63]);
    cr_assert_lt(atomic_load(&fake.largest_frame), 100000);
    free(a), free(d);
    disconnect();
}

/* --- several at once ------------------------------------------------------------------------- */

Test(client_product, gives_every_job_under_way_its_own_staging)
{
    enum { N = 48, JOBS = 6 };

    static float a[N * N], identity[N * N], d[JOBS][N * N];
    gemmd_job jobs[JOBS];

    connect_to(&(struct fake_options){.length_max = 8192, .hold = JOBS});
    for (int i = 0; i < N * N; i++)
        identity[i] = i / N == i % N;
    for (int round = 0; round < 2; round++) {
        for (int job = 0; job < JOBS; job++) {
            gemmd_product product = GEMMD_PRODUCT_INIT;

            for (int i = 0; i < N * N; i++)
                a[i] = (float)(round * 1000 + job * 100 + i % 97);
            product.input = GEMMD_FP32;
            product.m = product.n = product.k = N;
            product.a.data = a, product.b.data = identity, product.d.data = d[job];
            cr_assert_eq(gemmd_submit(connection, &product, &jobs[job]), GEMMD_OK);
            memset(a, 0x5a, sizeof(a)); /* it was read before submit returned */
        }
        for (int job = 0; job < JOBS; job++) {
            cr_assert_eq(gemmd_wait(connection, jobs[job], -1, NULL), GEMMD_OK);
            for (int i = 0; i < N * N; i++)
                cr_assert_eq(d[job][i], (float)(round * 1000 + job * 100 + i % 97));
        }
    }
    cr_assert_eq(atomic_load(&fake.requests[METHOD_BUFFER_CREATE]), JOBS, "blocks are used again");
    disconnect();
}

Test(client_product, takes_answers_in_while_it_sends)
{
    /* Each answer has 200 KiB and the fake writes it before it reads on: whoever only sends, or
     * only reads what it waits for, stands still for ever. */
    enum { N = 224, JOBS = 40 };

    static float a[N], b[N], d[JOBS][N * N];
    gemmd_job jobs[JOBS];

    for (int i = 0; i < N; i++)
        a[i] = 1, b[i] = (float)i;
    connect_to(NULL);
    for (int job = 0; job < JOBS; job++) {
        gemmd_product product = GEMMD_PRODUCT_INIT;

        product.input = GEMMD_FP32;
        product.m = product.n = N, product.k = 1;
        product.alpha = job;
        product.a.data = a, product.b.data = b, product.d.data = d[job];
        cr_assert_eq(gemmd_submit(connection, &product, &jobs[job]), GEMMD_OK);
    }
    for (int job = 0; job < JOBS; job++) {
        cr_assert_eq(gemmd_wait(connection, jobs[job], -1, NULL), GEMMD_OK);
        cr_assert_eq(d[job][N * N - 1], (float)(job * (N - 1)));
    }
    disconnect();
}

Test(client_product, writes_plain_memory_only_when_waited_for)
{
    float a = 2, b = 3, d = -1;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_job job;
    char *json;
    bool done;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = &a, product.b.data = &b, product.d.data = &d;
    connect_to(NULL);
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    cr_assert_eq(gemmd_status_json(connection, &json), GEMMD_OK);
    gemmd_free(json);
    cr_assert_eq(gemmd_poll(connection, job, &done), GEMMD_OK);
    cr_assert(done);
    cr_assert_eq(d, -1);
    cr_assert_eq(gemmd_wait(connection, job, 0, NULL), GEMMD_OK);
    cr_assert_eq(d, 6);
    disconnect();
}

/* --- BLAS rules and refusals ----------------------------------------------------------------- */

static float zeros[64];

static gemmd_product square(void)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 8;
    product.a.data = product.b.data = zeros;
    return product;
}

Test(client_product, needs_no_memory_that_is_not_read)
{
    float c[64], d[64];
    gemmd_product product = square();

    for (int i = 0; i < 64; i++)
        c[i] = (float)i;
    connect_to(NULL);
    product.d.data = d; /* C absent, beta = 0 */
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    product.alpha = 0, product.beta = 1;
    product.a.data = product.b.data = NULL;
    product.c.data = c;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_assert_arr_eq(d, c, sizeof(c));
    product.alpha = 1, product.k = 0, product.beta = 2;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_assert_eq(d[9], 18);
    disconnect();
}

Test(client_product, touches_nothing_when_the_product_is_empty)
{
    connect_to(NULL);
    for (int i = 0; i < 3; i++) {
        gemmd_product product = square();

        product.a.data = product.b.data = NULL;
        *(i == 0 ? &product.m : i == 1 ? &product.n : &product.batch) = 0;
        cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK, "%s",
                     gemmd_last_error(connection)->message);
    }
    disconnect();
}

Test(client_product, may_write_over_its_own_c)
{
    float c[64], expected[64];
    gemmd_product product = square();

    for (int i = 0; i < 64; i++)
        c[i] = (float)i, expected[i] = 3.0f * (float)i;
    connect_to(NULL);
    product.beta = 3;
    product.c.data = product.d.data = c;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_assert_arr_eq(c, expected, sizeof(c));
    disconnect();
}

static void expect_refused(const gemmd_product *product, const char *argument, const char *text)
{
    const gemmd_error *error;
    gemmd_job job;

    cr_assert_eq(gemmd_submit(connection, product, &job), GEMMD_INVALID_ARGUMENT);
    error = gemmd_last_error(connection);
    cr_assert_str_eq(error->argument, argument);
    cr_assert(strstr(error->message, text), "%s", error->message);
}

Test(client_product, names_what_is_wrong_and_lives_on)
{
    float d[64];
    gemmd_product product;

    connect_to(NULL);
    product = square(), product.d.data = d, product.a.data = NULL;
    expect_refused(&product, "a", "256 bytes are read");
    product = square();
    expect_refused(&product, "d", "256 bytes are written");
    product = square(), product.d.data = d, product.beta = 1;
    expect_refused(&product, "c", "256 bytes are read");
    product = square(), product.d.data = d, product.b.ld = 7;
    expect_refused(&product, "b.ld", "at least 8");
    product = square(), product.d.data = d, product.m = -1;
    expect_refused(&product, "m", "-1");
    product = square(), product.d.data = d, product.size = 12;
    expect_refused(&product, "size", "12");
    product = square(), product.d.data = d, product.bias_kind = GEMMD_BIAS_PER_ROW;
    expect_refused(&product, "bias", "32 bytes are read");
    product = square(), product.d.data = d, product.bias.data = d;
    expect_refused(&product, "bias_kind", "GEMMD_BIAS_PER_COLUMN");
    product = square(), product.d.data = d, product.bias_kind = (gemmd_bias_kind)9;
    expect_refused(&product, "bias_kind", "is 9");
    product = square(), product.d.data = d, product.activation = (gemmd_activation)9;
    expect_refused(&product, "activation", "is 9");
    product = square(), product.d.data = d, product.order = (gemmd_order)5;
    expect_refused(&product, "order", "5");
    product = square(), product.d.data = d, product.input = (gemmd_dtype)77;
    expect_refused(&product, "input", "bf16");
    product = square(), product.d.data = d, product.k = INT64_MAX / 2;
    expect_refused(&product, "a", "bytes");
    cr_assert_eq(atomic_load(&fake.requests[METHOD_GEMM]), 0);
    product = square(), product.d.data = d;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    disconnect();
}

Test(client_product, refuses_a_result_of_the_wrong_length)
{
    float d[64];
    gemmd_product product = square();

    product.d.data = d;
    connect_to(&(struct fake_options){.misdeed = FAKE_CUTS_THE_RESULT});
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_PROTOCOL);
    disconnect();
}

Test(client_product, tells_what_ran)
{
    float d[64];
    gemmd_product product = square();
    gemmd_result results[2];

    product.d.data = d;
    connect_to(NULL);
    memset(results, CANARY, sizeof(results));
    results[0].size = sizeof(results[0]);
    cr_assert_eq(gemmd_gemm(connection, &product, results), GEMMD_OK);
    cr_assert_str_eq(results[0].configuration, "fake.fp64");
    cr_assert_eq(results[0].epoch, 7);
    cr_assert_float_eq(results[0].queued_seconds, 1.5e-6, 1e-15);
    cr_assert_float_eq(results[0].device_seconds, 2.5e-6, 1e-15);
    cr_assert_eq(results[0].compile_seconds, 0.25);
    cr_assert_eq(((unsigned char *)&results[1])[0], CANARY);
    results[0].size = 0;
    cr_assert_eq(gemmd_gemm(connection, &product, results), GEMMD_INVALID_ARGUMENT);
    disconnect();
}
