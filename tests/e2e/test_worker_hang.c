/*
 * A worker that neither works nor dies, and a device that is another one after a restart.
 */
#include "../support/daemon.h"
#include "../support/faults.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
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

TestSuite(worker_hang, .init = start, .fini = stop, .timeout = 120);

static pid_t worker_pid(void)
{
    return test_worker_pid(connection);
}

static gemmd_product zeros(float *d, int64_t m, int64_t n, int64_t k)
{
    static float data[HANGING_ROWS * 64];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = m;
    product.n = n;
    product.k = k;
    product.a.data = product.b.data = data;
    product.d.data = d;
    return product;
}

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* In its BLAS, as the worker of a CPU computes. */
Test(worker_hang, in_a_product_is_killed_and_the_product_done_again)
{
    char once[] = "/tmp/gemmd-hang-once-XXXXXX";
    float d[70 * 60];
    gemmd_product product = zeros(d, 70, 60, 50);

    if (!test_device_is_cpu() || !faulty_blas_is_possible())
        cr_skip_test("the worker of a GPU does not compute itself");
    stop();
    (void)close(mkstemp(once));
    faulty_blas_choose(once);
    start();
    product.alpha = TEST_FAULT_ALPHA + TEST_FAULT_ENDLESS;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 1);
    cr_expect_neq(access(once, F_OK), 0);
    cr_expect(test_daemon_logged(&daemon_, "state=overdue"));
    cr_expect(test_daemon_logged(&daemon_, "m=70 n=60 k=50"));
    cr_expect(test_daemon_logged(&daemon_, "signal 9, a job hangs"));
}

static gemmd_status ask_for_a_product(void)
{
    static float d[8 * 8];
    gemmd_product product = zeros(d, 8, 8, 8);

    return gemmd_gemm(connection, &product, NULL);
}

static gemmd_status ask_for_memory(void)
{
    gemmd_buffer *buffer = NULL;
    float data[4] = {1, 2, 3, 4}, back[4] = {0};
    gemmd_status status = gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer);

    if (status != GEMMD_OK)
        return status;
    cr_expect_eq(gemmd_buffer_write(buffer, 0, data, sizeof(data)), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_read(buffer, 0, back, sizeof(back)), GEMMD_OK);
    cr_expect_arr_eq(back, data, sizeof(data));
    return status;
}

/* The worker does not move any more, and something is asked of it: how long the answer takes. One
 * of a GPU that had nothing to do is stopped by the front, too, and let go on then: tried again. */
static double seconds_of_answer(gemmd_status (*ask)(void))
{
    double deaths = test_status_number(connection, "worker", "deaths"), begun;

    do {
        cr_assert_eq(ask_for_a_product(), GEMMD_OK);
        (void)test_worker_hold(connection);
        begun = now();
        cr_expect_eq(ask(), GEMMD_OK);
    } while (test_status_number(connection, "worker", "deaths") == deaths);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), deaths + 1);
    return now() - begun;
}

/* Its heart is looked for ten times a second, so a client waits for well under a second more than a
 * new worker takes. A busy machine may be late, but not each time. */
Test(worker_hang, of_a_gpu_is_noticed_within_a_second)
{
    enum { TRIES = 5 };

    double seconds = 3600;

    if (!test_device_is_fake())
        cr_skip_test("the worker of a CPU may compute for as long as it takes");
    for (int i = 0; i < TRIES && seconds > 2; i++)
        seconds = seconds_of_answer(ask_for_a_product);
    cr_expect_leq(seconds, 2);
    cr_expect(test_daemon_logged(&daemon_, "signal 9, the worker hangs: its heart stopped"));
}

/* Nothing is computed, so no limit of a job ends it. */
Test(worker_hang, is_noticed_when_only_memory_is_asked_for)
{
    (void)seconds_of_answer(ask_for_memory);
}

/* It hangs before it takes the job, so the job does not hang. */
Test(worker_hang, is_noticed_when_it_takes_no_job)
{
    (void)seconds_of_answer(ask_for_a_product);
    cr_expect_not(test_daemon_logged(&daemon_, "state=overdue"));
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

    if (!test_device_is_fake())
        cr_skip_test("only the fake driver loses its device when told");
    cr_expect_eq(gemmd_gemm(connection, &losing, NULL), GEMMD_GPU_FAULT);
    cr_expect_eq(gemmd_gemm(connection, &good, NULL), GEMMD_OK);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2);
    cr_expect_not(test_daemon_logged(&daemon_, "signal 9"), "an end was waited for, in vain");
}

/* The daemon was told "cuda:0" or "cpu"; a later worker gets the device of the first hello. */
Test(worker_hang, a_new_worker_gets_the_device_that_the_first_one_had)
{
    const char *device = test_device_is_cpu() ? "cpu" : "GPU-";
    pid_t first = worker_pid(), second;

    cr_assert_eq(kill(first, SIGKILL), 0);
    while ((second = worker_pid()) == first)
        (void)usleep(1000);
    cr_expect(process_was_told(second, device));
}
