/*
 * A mapping or a kernel that takes each worker with it: asked for again at every start, it would
 * end the daemon. Only the fake CUDA driver has such (tests/support/fake_driver.h).
 */
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Registered when it is mapped; what is smaller waits for its second use. */
enum { CRASHING_SIZE = 12 << 20 };

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    if (test_device_is_cpu())
        cr_skip_test("nothing crashes the CPU worker");
}

static void serve(const char *variable, const char *value)
{
    (void)setenv(variable, value, 1);
    test_daemon_start(&daemon_, NULL);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    if (connection) {
        gemmd_close(connection);
        test_daemon_stop(&daemon_);
    }
}

TestSuite(worker_crash, .init = start, .fini = stop, .timeout = 60);

static gemmd_status multiply(void)
{
    static float data[16 * 16], d[16 * 16];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 16;
    product.a.data = product.b.data = data;
    product.d.data = d;
    return gemmd_gemm(connection, &product, NULL);
}

Test(worker_crash, mapping_that_kills_workers_is_refused_after_two)
{
    gemmd_buffer *buffer = NULL;
    if (!test_device_is_fake())
        cr_skip_test("only the fake driver crashes when told");

    serve("FAKE_DRIVER_CRASH_SIZE", "12582912");
    for (int i = 1; i <= 4; i++) {
        cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, CRASHING_SIZE, NULL, 0, &buffer),
                     GEMMD_GPU_FAULT);
        cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2 * i);
        cr_expect_eq(multiply(), GEMMD_OK); /* between deaths in a row */
    }
    cr_expect_eq(test_status_number(connection, "buffers", "count"), 0);
}

Test(worker_crash, kernel_that_kills_workers_is_given_up_after_two)
{
    gemmd_buffer *buffer = NULL;
    if (!test_device_is_fake())
        cr_skip_test("only the fake driver crashes when told");

    serve("FAKE_DRIVER_CRASH_LOAD", "1");
    for (int i = 0; i < 8; i++)
        cr_expect_eq(multiply(), GEMMD_GPU_FAULT);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer), GEMMD_OK);
}
