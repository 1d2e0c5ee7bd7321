/*
 * kill -9 of the worker: at most one error, everything else right, memory intact.
 */
#include "../support/daemon.h"
#include "../support/products.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
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

TestSuite(worker_death, .init = start, .fini = stop, .timeout = 120);

static pid_t worker_pid(void)
{
    return test_worker_pid(connection);
}

static void kill_worker(void)
{
    cr_assert_eq(kill(worker_pid(), SIGKILL), 0);
}

static gemmd_product square(gemmd_buffer *a, gemmd_buffer *b, gemmd_buffer *d, int64_t n)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = n;
    product.a.buffer = a;
    product.b.buffer = b;
    product.d.buffer = d;
    return product;
}

static gemmd_buffer *filled(gemmd_memory memory, int64_t n, float value)
{
    size_t size = (size_t)(n * n) * sizeof(float);
    float *data = malloc(size);
    gemmd_buffer *buffer = NULL;

    for (int64_t i = 0; i < n * n; i++)
        data[i] = value;
    cr_assert_eq(gemmd_buffer_create(connection, memory, size, NULL, 0, &buffer), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(buffer, 0, data, size), GEMMD_OK);
    free(data);
    return buffer;
}

static void expect_all(gemmd_buffer *buffer, int64_t n, float value)
{
    size_t size = (size_t)(n * n) * sizeof(float);
    float *data = malloc(size);

    cr_assert_eq(gemmd_buffer_read(buffer, 0, data, size), GEMMD_OK);
    for (int64_t i = 0; i < n * n; i++)
        cr_assert_eq(data[i], value, "element %ld is %g", (long)i, (double)data[i]);
    free(data);
}

Test(worker_death, costs_a_stream_of_products_at_most_one_error)
{
    enum { JOBS = 60, N = 192 };

    gemmd_buffer *a = filled(GEMMD_DEVICE, N, 1), *b = filled(GEMMD_HOST, N, 2);
    gemmd_buffer *d[JOBS];
    gemmd_job jobs[JOBS];
    int errors = 0;

    for (int i = 0; i < JOBS; i++)
        d[i] = filled(GEMMD_DEVICE, N, 0);
    for (int i = 0; i < JOBS; i++) {
        gemmd_product product = square(a, b, d[i], N);

        cr_assert_eq(gemmd_submit(connection, &product, &jobs[i]), GEMMD_OK);
        if (i == JOBS / 2)
            kill_worker();
    }
    for (int i = 0; i < JOBS; i++) {
        gemmd_status status = gemmd_wait(connection, jobs[i], -1, NULL);

        errors += status != GEMMD_OK;
        cr_expect(status == GEMMD_OK || status == GEMMD_GPU_FAULT, "status %d", status);
        if (status == GEMMD_OK)
            expect_all(d[i], N, 2 * N);
    }
    cr_expect_leq(errors, 1);
    expect_all(a, N, 1);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 1);
}

Test(worker_death, leaves_the_next_product_right_in_every_kind_of_memory)
{
    for (enum place place = PLACE_PLAIN; place < PLACE_COUNT; place++) {
        struct product_case p = {
            .input = DTYPE_FP32, .m = 40, .n = 30, .k = 20, .batch = 1, .alpha = 1, .place = place};

        product_check(connection, &p);
        kill_worker();
        product_check(connection, &p);
    }
}

Test(worker_death, keeps_device_buffers)
{
    gemmd_buffer *kept = filled(GEMMD_DEVICE, 100, 7);

    for (int i = 0; i < 3; i++) {
        kill_worker();
        expect_all(kept, 100, 7);
    }
}

/* In place, C is D: whether it had been added is not known, so it is either right or an error. */
Test(worker_death, answers_an_in_place_job_with_a_fault_or_the_right_result)
{
    enum { N = 512, ROUNDS = 5 };

    gemmd_buffer *a = filled(GEMMD_DEVICE, N, 1);

    for (int i = 0; i < ROUNDS; i++) {
        gemmd_buffer *d = filled(GEMMD_DEVICE, N, 1);
        gemmd_product product = square(a, a, d, N);
        gemmd_job job;
        gemmd_status status;

        product.beta = 1;
        product.c.buffer = d;
        cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
        kill_worker();
        status = gemmd_wait(connection, job, -1, NULL);
        if (status == GEMMD_OK)
            expect_all(d, N, N + 1);
        else
            cr_expect_eq(status, GEMMD_GPU_FAULT);
        gemmd_buffer_free(d);
    }
}

Test(worker_death, does_not_end_a_daemon_whose_worker_is_killed_again_and_again)
{
    gemmd_buffer *a = filled(GEMMD_HOST, 8, 1), *d = filled(GEMMD_HOST, 8, 0);

    for (int i = 0; i < 8; i++) {
        gemmd_product product = square(a, a, d, 8);

        cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
        kill_worker();
    }
    expect_all(d, 8, 8);
}
