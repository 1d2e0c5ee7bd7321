/*
 * A worker that neither works nor dies, and a device that is another one after a restart.
 */
#include "../support/daemon.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HANGING_ROWS = 77, LOSING_ROWS = 78, OTHERS = 6 };

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    static const char *const arguments[] = {"--job-time-limit", "1", NULL};

    (void)setenv("FAKE_DRIVER_HANG_M", "77", 1);
    (void)setenv("FAKE_DRIVER_LOSE_M", "78", 1);
    test_daemon_start(&daemon_, arguments);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(worker_hang, .init = start, .fini = stop, .timeout = 60);

static pid_t worker_pid(void)
{
    return (pid_t)test_status_number(connection, "worker", "pid");
}

static gemmd_product zeros(float *d, int64_t m, int64_t n, int64_t k)
{
    static float data[2000 * 2000];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = m;
    product.n = n;
    product.k = k;
    product.a.data = product.b.data = data;
    product.d.data = d;
    return product;
}

static void wait_ms(long ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000};

    (void)nanosleep(&time, NULL);
}

/* The CPU worker is stopped in the middle of a product. */
Test(worker_hang, is_killed_and_its_job_done_again)
{
    static float d[2000 * 2000];
    gemmd_product product = zeros(d, 2000, 2000, 2000);
    gemmd_job job;

    if (!test_device_is_cpu())
        cr_skip_test("the worker of a GPU does not compute itself");
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    (void)test_status_number(connection, NULL, "jobs"); /* it has arrived */
    wait_ms(30);
    cr_assert_eq(kill(process_child(daemon_.pid, "worker"), SIGSTOP), 0);
    cr_expect_eq(gemmd_wait(connection, job, -1, NULL), GEMMD_OK);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 1);
    cr_expect(test_daemon_logged(&daemon_, "state=overdue"));
    cr_expect(test_daemon_logged(&daemon_, "m=2000 n=2000 k=2000"));
    cr_expect(test_daemon_logged(&daemon_, "signal 9, a job hangs"));
}

/* Its heart is looked for ten times a second, so a client waits for well under a second more than a
 * new worker takes; the rest is for a loaded machine. */
Test(worker_hang, of_a_gpu_is_noticed_within_a_second)
{
    static float d[8 * 8];
    gemmd_product product = zeros(d, 8, 8, 8);
    struct timespec begun, ended;

    if (!test_device_is_fake())
        cr_skip_test("the worker of a CPU may compute for as long as it takes");
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_assert_eq(kill(worker_pid(), SIGSTOP), 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 1);
    cr_expect_leq(ended.tv_sec - begun.tv_sec, 3);
    cr_expect(test_daemon_logged(&daemon_, "signal 9, the worker hangs: its heart stopped"));
}

/* Nothing is computed, so no limit of a job ends it. */
Test(worker_hang, is_noticed_when_only_memory_is_asked_for)
{
    gemmd_buffer *buffer = NULL;
    float data[4] = {1, 2, 3, 4}, back[4] = {0};

    cr_assert_eq(kill(worker_pid(), SIGSTOP), 0);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer), GEMMD_OK);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 1);
    cr_expect_eq(gemmd_buffer_write(buffer, 0, data, sizeof(data)), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_read(buffer, 0, back, sizeof(back)), GEMMD_OK);
    cr_expect_arr_eq(back, data, sizeof(data));
}

/* It hangs before it takes the job, so the job does not hang. */
Test(worker_hang, is_noticed_when_it_takes_no_job)
{
    static float d[64 * 64];
    gemmd_product product = zeros(d, 64, 64, 64);

    cr_assert_eq(kill(worker_pid(), SIGSTOP), 0);
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_expect_leq(test_status_number(connection, "worker", "deaths"), 1);
}

Test(worker_hang, costs_only_the_job_that_hangs_alone)
{
    static float d[1 + OTHERS][HANGING_ROWS * 32];
    gemmd_product guilty = zeros(d[0], HANGING_ROWS, 8, 8);
    gemmd *neighbour;
    gemmd_job hanging, jobs[OTHERS];

    if (!test_device_is_fake())
        cr_skip_test("only the fake driver has a product that hangs");
    neighbour = test_daemon_connect(&daemon_);
    cr_assert_eq(gemmd_submit(connection, &guilty, &hanging), GEMMD_OK);
    for (int i = 0; i < OTHERS; i++) {
        gemmd_product product = zeros(d[1 + i], 16, 8, 8);

        cr_assert_eq(gemmd_submit(neighbour, &product, &jobs[i]), GEMMD_OK);
    }
    for (int i = 0; i < OTHERS; i++)
        cr_expect_eq(gemmd_wait(neighbour, jobs[i], -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, hanging, -1, NULL), GEMMD_GPU_FAULT);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2);
    gemmd_close(neighbour);
}

/* A driver whose device is lost may not come to an end at exit(), so nobody asks it to. */
Test(worker_hang, in_a_driver_that_does_not_end_is_not_waited_for)
{
    static float d[LOSING_ROWS * 8];
    gemmd_product losing = zeros(d, LOSING_ROWS, 8, 8), good = zeros(d, 8, 8, 8);
    struct timespec begun, ended;

    if (!test_device_is_fake())
        cr_skip_test("only the fake driver loses its device when told");
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    cr_expect_eq(gemmd_gemm(connection, &losing, NULL), GEMMD_GPU_FAULT);
    cr_expect_eq(gemmd_gemm(connection, &good, NULL), GEMMD_OK);
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2);
    /* Two compiles of a loaded machine; each end that is waited for would be WORKER_DYING_S. */
    cr_expect_leq(ended.tv_sec - begun.tv_sec, 5);
}

/* The daemon was told "cuda:0" or "cpu"; a later worker gets the device of the first hello. */
Test(worker_hang, a_new_worker_gets_the_device_that_the_first_one_had)
{
    const char *device = test_device_is_cpu() ? "cpu" : "GPU-";
    pid_t first = worker_pid(), second;

    cr_assert_eq(kill(first, SIGKILL), 0);
    while ((second = worker_pid()) == first || second == 0)
        wait_ms(10);
    cr_expect(process_was_told(second, device));
}
