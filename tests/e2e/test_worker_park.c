/*
 * A worker that has nothing to do is stopped, and nobody who wants something of it can tell.
 */
#include "../support/daemon.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <time.h>

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

TestSuite(worker_park, .init = start, .fini = stop, .timeout = 60);

static pid_t worker_pid(void)
{
    return test_worker_pid(connection);
}

static void await_stop(void)
{
    cr_assert(process_await_state(worker_pid(), 'T'));
}

static gemmd_status multiply(void)
{
    static float one[8 * 8] = {1};
    static float d[8 * 8];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 8;
    product.a.data = product.b.data = one;
    product.d.data = d;
    return gemmd_gemm(connection, &product, NULL);
}

Test(worker_park, stops_the_worker_of_an_idle_gpu_until_the_next_product)
{
    pid_t worker = worker_pid();

    if (test_device_is_cpu())
        cr_skip_test("the worker of a CPU sleeps by itself");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(multiply(), GEMMD_OK);
        await_stop();
    }
    cr_expect_eq(multiply(), GEMMD_OK);
    cr_expect_eq(worker_pid(), worker);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 0);
}

Test(worker_park, asking_for_memory_wakes_it)
{
    gemmd_buffer *buffer;

    if (test_device_is_cpu())
        cr_skip_test("the worker of a CPU sleeps by itself");
    await_stop();
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 4096, NULL, 0, &buffer), GEMMD_OK);
    gemmd_buffer_free(buffer);
}

Test(worker_park, one_that_is_killed_in_its_sleep_is_replaced)
{
    pid_t worker = worker_pid();

    if (test_device_is_cpu())
        cr_skip_test("the worker of a CPU sleeps by itself");
    await_stop();
    cr_assert_eq(kill(worker, SIGKILL), 0);
    cr_expect_eq(multiply(), GEMMD_OK);
    cr_expect_neq(worker_pid(), worker);
}

/* The end in order is the suite's fini. */
Test(worker_park, does_not_keep_the_daemon_from_ending)
{
    if (test_device_is_cpu())
        cr_skip_test("the worker of a CPU sleeps by itself");
    await_stop();
}

Test(worker_park, leaves_the_worker_of_a_cpu_alone)
{
    const struct timespec time = {.tv_sec = 2};

    if (!test_device_is_cpu())
        cr_skip_test("for the CPU");
    cr_assert_eq(multiply(), GEMMD_OK);
    (void)nanosleep(&time, NULL);
    cr_expect_neq(process_state(worker_pid()), 'T');
}
