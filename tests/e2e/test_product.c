/*
 * Products through the whole system, judged against fp64: every type, layout and kind of memory,
 * the shapes that break GEMMs, the BLAS rules.
 */
#include "../support/daemon.h"
#include "../support/products.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(product, .init = start, .fini = stop, .timeout = 120);

static const struct {
    enum dtype input, output;
} types[] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

static struct product_case sized(int64_t m, int64_t n, int64_t k)
{
    return (struct product_case){
        .input = DTYPE_FP32, .m = m, .n = n, .k = k, .batch = 1, .alpha = 1};
}

Test(product, is_right_in_every_type_and_kind_of_memory)
{
    for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
        for (enum place place = PLACE_PLAIN; place < PLACE_COUNT; place++) {
            struct product_case p = sized(33, 17, 29);

            p.input = types[t].input;
            p.output = types[t].output;
            p.beta = 1;
            p.place = place;
            product_check(connection, &p);
        }
    }
}

Test(product, is_right_in_every_transposition_and_order)
{
    for (int bits = 0; bits < 8; bits++) {
        struct product_case p = sized(13, 21, 34);

        p.trans_a = bits & 1;
        p.trans_b = bits & 2;
        p.column_major = bits & 4;
        p.gap = 3;
        p.alpha = 2;
        p.beta = -1;
        p.place = bits % PLACE_COUNT;
        product_check(connection, &p);
    }
}

Test(product, is_right_in_awkward_shapes_and_alignments)
{
    static const int64_t shapes[][3] = {{1, 1, 1},    {1, 300, 7},  {300, 1, 64}, {7, 9, 1},
                                        {65, 63, 20}, {129, 2, 24}, {5, 5, 576},  {64, 64, 64}};

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct product_case p = sized(shapes[i][0], shapes[i][1], shapes[i][2]);

        p.input = types[i % ARRAY_SIZE(types)].input;
        p.gap = (int64_t)i % 3;
        p.shift = (int64_t)i % 2;
        p.place = PLACE_DEVICE;
        product_check(connection, &p);
    }
}

Test(product, is_right_in_batches)
{
    for (enum place place = PLACE_PLAIN; place < PLACE_COUNT; place++) {
        struct product_case p = sized(10, 12, 14);

        p.batch = 5;
        p.beta = 0.5;
        p.gap = 1;
        p.has_a_once = true;
        p.place = place;
        product_check(connection, &p);
    }
}

Test(product, scales_c_alone_when_k_or_alpha_is_zero)
{
    static const double betas[] = {0, 1, 2};

    for (size_t i = 0; i < ARRAY_SIZE(betas); i++) {
        struct product_case without_k = sized(9, 11, 0), without_alpha = sized(9, 11, 13);

        without_k.beta = betas[i];
        without_k.batch = 3;
        product_check(connection, &without_k);
        without_alpha.alpha = 0;
        without_alpha.beta = betas[i];
        without_alpha.place = PLACE_DEVICE;
        product_check(connection, &without_alpha);
    }
}

Test(product, takes_a_bias_on_either_axis_from_every_kind_of_memory)
{
    for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
        for (int bits = 0; bits < 2 * PLACE_COUNT; bits++) {
            struct product_case p = sized(33, 18, 29);

            p.input = types[t].input;
            p.output = types[t].output;
            p.bias = bits & 1 ? BIAS_PER_ROW : BIAS_PER_COLUMN;
            p.column_major = t & 1;
            p.batch = 2;
            p.has_bias_once = bits & 1;
            p.beta = bits & 2 ? 1 : 0;
            p.place = bits / 2;
            product_check(connection, &p);
        }
    }
}

Test(product, applies_every_activation_to_all_that_comes_before)
{
    for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
        for (enum activation a = ACTIVATION_RELU; a < ACTIVATION_COUNT; a++) {
            struct product_case p = sized(21, 40, a == ACTIVATION_SILU ? 0 : 13);

            p.input = types[t].input;
            p.output = types[t].output;
            p.activation = a;
            p.bias = a & 1 ? BIAS_PER_ROW : BIAS_NONE;
            p.beta = 1;
            p.alpha = 3;
            p.place = a % PLACE_COUNT;
            if (types[t].input != DTYPE_INT8 || a == ACTIVATION_RELU)
                product_check(connection, &p);
        }
    }
}

Test(product, travels_with_its_bias_through_staging_when_it_is_large)
{
    struct product_case p = sized(300, 500, 100);

    p.bias = BIAS_PER_COLUMN;
    p.activation = ACTIVATION_GELU;
    product_check(connection, &p);
}

/* A layer's bias that the job before it makes. */
Test(product, waits_for_the_job_that_writes_its_bias)
{
    enum { N = 64 };

    gemmd_buffer *bias = NULL, *d = NULL;
    gemmd_product first = GEMMD_PRODUCT_INIT, second = GEMMD_PRODUCT_INIT;
    float a[N], b[N], out[N];
    gemmd_job jobs[2];

    for (int i = 0; i < N; i++)
        a[i] = b[i] = (float)i;
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, sizeof(a), NULL, 0, &bias),
                 GEMMD_OK);
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, sizeof(a), NULL, 0, &d), GEMMD_OK);
    first.input = second.input = GEMMD_FP32;
    first.m = 1;
    first.n = N;
    first.k = 1;
    first.a.data = (float[]){2};
    first.b.data = b;
    first.d.buffer = bias;
    second = first;
    second.b.data = a;
    second.bias.buffer = bias;
    second.bias_kind = GEMMD_BIAS_PER_COLUMN;
    second.d.buffer = d;
    for (int round = 0; round < 20; round++) {
        *(float *)first.a.data = (float)round;
        cr_assert_eq(gemmd_submit(connection, &first, &jobs[0]), GEMMD_OK);
        *(float *)first.a.data = 1;
        cr_assert_eq(gemmd_submit(connection, &second, &jobs[1]), GEMMD_OK);
        cr_assert_eq(gemmd_wait(connection, jobs[1], -1, NULL), GEMMD_OK);
        cr_assert_eq(gemmd_wait(connection, jobs[0], -1, NULL), GEMMD_OK);
        cr_assert_eq(gemmd_buffer_read(d, 0, out, sizeof(out)), GEMMD_OK);
        cr_assert_eq(out[N - 1], (float)(round + 1) * (N - 1));
    }
    gemmd_buffer_free(bias);
    gemmd_buffer_free(d);
}

Test(product, travels_through_staging_when_it_is_large)
{
    struct product_case p = sized(700, 600, 50);

    product_check(connection, &p);
}

Test(product, succeeds_and_touches_nothing_when_it_is_empty)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.n = 5;
    product.k = 3;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    product.m = 4;
    product.n = 0;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
}

Test(product, never_reads_c_when_beta_is_zero)
{
    float a[4] = {1, 2, 3, 4}, b[4] = {1, 0, 0, 1}, d[4];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int i = 0; i < 4; i++)
        d[i] = NAN;
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 2;
    product.a.data = a;
    product.b.data = b;
    product.c.data = d;
    product.d.data = d;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(d[i], a[i]);
}

Test(product, names_configuration_and_times)
{
    float a = 2, b = 3, d = 0;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_result result = {.size = sizeof(result)};

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = &a;
    product.b.data = &b;
    product.d.data = &d;
    cr_assert_eq(gemmd_gemm(connection, &product, &result), GEMMD_OK);
    cr_expect_eq(d, 6);
    cr_expect_gt(strlen(result.configuration), 0);
    cr_expect_geq(result.device_seconds, 0);
    cr_expect_lt(result.queued_seconds + result.device_seconds, 10);
}

Test(product, keeps_the_order_of_jobs_that_depend_on_each_other)
{
    enum { STEPS = 100 };

    gemmd_buffer *x = NULL, *identity = NULL;
    gemmd_job jobs[STEPS];
    float value = 1, one = 1;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 4, NULL, 0, &x), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 4, NULL, 0, &identity), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(x, 0, &value, 4), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(identity, 0, &one, 4), GEMMD_OK);
    /* x = x + 1, a hundred times without waiting: C is D. */
    for (int i = 0; i < STEPS; i++) {
        gemmd_product product = GEMMD_PRODUCT_INIT;

        product.input = GEMMD_FP32;
        product.m = product.n = product.k = 1;
        product.beta = 1;
        product.a.buffer = identity;
        product.b.buffer = identity;
        product.c.buffer = x;
        product.d.buffer = x;
        cr_assert_eq(gemmd_submit(connection, &product, &jobs[i]), GEMMD_OK);
    }
    for (int i = 0; i < STEPS; i++)
        cr_assert_eq(gemmd_wait(connection, jobs[i], -1, NULL), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_read(x, 0, &value, 4), GEMMD_OK);
    cr_expect_eq(value, 1 + STEPS);
    gemmd_buffer_free(x);
    gemmd_buffer_free(identity);
}

Test(product, many_in_one_message_are_as_many_products)
{
    enum { MANY = GEMMD_SUBMIT_MANY_MAX };

    gemmd_product products[MANY];
    gemmd_job jobs[MANY];
    float a[MANY], b = 3, d[MANY];
    gemmd_buffer *sum = NULL;
    float zero = 0, total = 0;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 4, NULL, 0, &sum), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(sum, 0, &zero, 4), GEMMD_OK);
    for (int i = 0; i < MANY; i++) {
        a[i] = (float)i;
        products[i] = (gemmd_product)GEMMD_PRODUCT_INIT;
        products[i].input = GEMMD_FP32;
        products[i].m = products[i].n = products[i].k = 1;
        products[i].a.data = &a[i];
        products[i].b.data = &b;
        products[i].d.data = &d[i];
        if (i % 2) { /* and those add up in one place, in order */
            products[i].beta = 1;
            products[i].c.buffer = products[i].d.buffer = sum;
        }
    }
    products[4].a.ld = 0; /* wrong, and alone in that */
    cr_assert_eq(gemmd_submit_many(connection, products, MANY, jobs), GEMMD_INVALID_ARGUMENT);
    products[4].a.ld = GEMMD_DEFAULT;
    cr_assert_eq(gemmd_submit_many(connection, products, MANY, jobs), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    for (int i = MANY - 1; i >= 0; i--)
        cr_assert_eq(gemmd_wait(connection, jobs[i], -1, NULL), GEMMD_OK, "%d: %s", i,
                     gemmd_last_error(connection)->message);
    cr_assert_eq(gemmd_buffer_read(sum, 0, &total, 4), GEMMD_OK);
    for (int i = 0; i < MANY; i += 2)
        cr_expect_eq(d[i], 3 * a[i]);
    cr_expect_eq(total, 3.f * MANY / 2 * (MANY / 2));
}

Test(product, many_are_bounded_by_name)
{
    gemmd_product products[GEMMD_SUBMIT_MANY_MAX + 1];
    gemmd_job jobs[GEMMD_SUBMIT_MANY_MAX + 1], one;

    for (size_t i = 0; i < ARRAY_SIZE(products); i++) {
        products[i] = (gemmd_product)GEMMD_PRODUCT_INIT;
        products[i].input = GEMMD_FP32;
    }
    cr_expect_eq(gemmd_submit_many(connection, products, ARRAY_SIZE(products), jobs),
                 GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "count");
    cr_expect_eq(gemmd_submit_many(connection, products, 0, jobs), GEMMD_OK);
    /* In flight they count one by one. */
    for (int i = 0; i < 256 / GEMMD_SUBMIT_MANY_MAX; i++)
        cr_assert_eq(gemmd_submit_many(connection, products, GEMMD_SUBMIT_MANY_MAX, jobs),
                     GEMMD_OK);
    cr_expect_eq(gemmd_submit(connection, products, &one), GEMMD_LIMIT);
}
