/*
 * Products on host memory that a GPU's worker streams, and copies that have tracks of their own:
 * the right result, in the right order, also with operands larger than the scratch memory, and when
 * the worker dies in the middle.
 */
#include "../support/daemon.h"
#include "../support/products.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>

/* Over 8 MiB of host memory, and 4 of A and D alone: what is streamed, and copied on a track. */
enum { ROWS = 8192, WIDE = 64 };

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    static const char *const arguments[] = {"--scratch-size", "16M", NULL};

    test_daemon_start(&daemon_, arguments);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(stream, .init = start, .fini = stop, .timeout = 120);

static gemmd_buffer *filled(gemmd_memory memory, int64_t rows, double value)
{
    size_t size = (size_t)(rows * WIDE) * sizeof(double);
    gemmd_buffer *buffer = NULL, *source = NULL;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, size, NULL, 0, &source), GEMMD_OK);
    for (int64_t i = 0; i < rows * WIDE; i++)
        ((double *)gemmd_buffer_data(source))[i] = value;
    if (memory == GEMMD_HOST)
        return source;
    cr_assert_eq(gemmd_buffer_create(connection, memory, size, NULL, 0, &buffer), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_copy(buffer, 0, source, 0, size), GEMMD_OK);
    gemmd_buffer_free(source);
    return buffer;
}

static void expect_all(gemmd_buffer *buffer, double value)
{
    size_t size = (size_t)(ROWS * WIDE) * sizeof(double);
    gemmd_buffer *copy = NULL;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, size, NULL, 0, &copy), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_copy(copy, 0, buffer, 0, size), GEMMD_OK);
    for (int64_t i = 0; i < ROWS * WIDE; i++)
        cr_assert_eq(((double *)gemmd_buffer_data(copy))[i], value, "element %ld is %g", (long)i,
                     ((double *)gemmd_buffer_data(copy))[i]);
    gemmd_buffer_free(copy);
}

/* D = A B, with B square. */
static gemmd_job submit(gemmd_buffer *a, gemmd_buffer *b, gemmd_buffer *d, bool in_place)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_job job;

    product.input = GEMMD_FP64;
    product.m = ROWS;
    product.n = product.k = WIDE;
    product.a.buffer = a;
    product.b.buffer = b;
    product.d.buffer = d;
    if (in_place) {
        product.c.buffer = d;
        product.beta = 1;
    }
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return job;
}

Test(stream, operands_larger_than_the_scratch_memory_give_the_right_result)
{
    static const int64_t shapes[][3] = {{3000, 24, 1500}, {24, 3000, 1500}, {1500, 1600, 24}};

    for (int bits = 0; bits < 4; bits++) {
        for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
            struct product_case p = {.input = DTYPE_FP32,
                                     .m = shapes[i][0],
                                     .n = shapes[i][1],
                                     .k = shapes[i][2],
                                     .batch = 1,
                                     .trans_a = bits & 1,
                                     .trans_b = bits & 2,
                                     .gap = bits,
                                     .alpha = 1,
                                     .beta = bits & 1,
                                     .place = PLACE_HOST};

            product_check(connection, &p);
        }
    }
}

Test(stream, batches_give_the_right_result)
{
    for (int has_a_once = 0; has_a_once < 2; has_a_once++) {
        struct product_case p = {.input = DTYPE_FP32,
                                 .m = 150,
                                 .n = 130,
                                 .k = 20,
                                 .batch = 150,
                                 .alpha = 1,
                                 .beta = 2,
                                 .has_a_once = has_a_once,
                                 .place = PLACE_HOST};

        product_check(connection, &p);
    }
}

/* Each product reads what the one before it wrote: streamed ones, and others on device memory. */
Test(stream, a_chain_of_products_keeps_its_order)
{
    for (int bits = 0; bits < 4; bits++) {
        gemmd_memory first = bits & 1 ? GEMMD_HOST : GEMMD_DEVICE;
        gemmd_memory second = bits & 2 ? GEMMD_HOST : GEMMD_DEVICE;
        gemmd_buffer *a = filled(first, ROWS, 1), *b = filled(GEMMD_HOST, WIDE, 2.0 / WIDE);
        gemmd_buffer *d = filled(second, ROWS, 0), *e = filled(first, ROWS, 0);
        gemmd_job jobs[] = {submit(a, b, d, false), submit(d, b, e, false), submit(e, b, a, false)};

        expect_all(a, 8);
        for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
            cr_expect_eq(gemmd_wait(connection, jobs[i], -1, NULL), GEMMD_OK);
        expect_all(d, 2);
        expect_all(e, 4);
        gemmd_buffer_free(a);
        gemmd_buffer_free(b);
        gemmd_buffer_free(d);
        gemmd_buffer_free(e);
    }
}

static void kill_worker(void)
{
    cr_assert_eq(kill(test_worker_pid(connection), SIGKILL), 0);
}

Test(stream, a_worker_that_dies_in_the_middle_costs_a_delay)
{
    for (int i = 0; i < 3; i++) {
        gemmd_buffer *a = filled(GEMMD_HOST, ROWS, 1), *b = filled(GEMMD_HOST, WIDE, 2.0 / WIDE);
        gemmd_buffer *d = filled(GEMMD_HOST, ROWS, 0);
        gemmd_job job = submit(a, b, d, false);

        kill_worker();
        cr_expect_eq(gemmd_wait(connection, job, -1, NULL), GEMMD_OK);
        expect_all(d, 2);
        gemmd_buffer_free(a);
        gemmd_buffer_free(b);
        gemmd_buffer_free(d);
    }
}

/* Some of D may have been added to and gone out already. */
Test(stream, in_place_it_costs_an_error_or_nothing)
{
    for (int i = 0; i < 3; i++) {
        gemmd_buffer *a = filled(GEMMD_HOST, ROWS, 1), *b = filled(GEMMD_HOST, WIDE, 2.0 / WIDE);
        gemmd_buffer *d = filled(GEMMD_HOST, ROWS, 5);
        gemmd_job job = submit(a, b, d, true);
        gemmd_status status;

        kill_worker();
        status = gemmd_wait(connection, job, -1, NULL);
        cr_expect(status == GEMMD_OK || status == GEMMD_GPU_FAULT, "status %d", status);
        if (status == GEMMD_OK)
            expect_all(d, 7);
        gemmd_buffer_free(a);
        gemmd_buffer_free(b);
        gemmd_buffer_free(d);
    }
}
