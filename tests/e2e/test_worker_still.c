/*
 * A device that stands still for a while when a worker dies, because the driver has not got rid of
 * it, say: whoever waits gets an answer, no worker is ended for it, and no job is blamed. Only the
 * fake CUDA driver has such a device (tests/support/fake_driver.h).
 */
#include "../support/daemon.h"
#include "../support/faults.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLIENTS = 4, EACH = 3, SIZE = 8 };

#define STILL_US 3000000 /* three times what a job may take */

static struct test_daemon daemon_;
static char still[64];
static gemmd *connections[CLIENTS];
static gemmd_job jobs[CLIENTS][EACH];
static float outputs[CLIENTS][EACH][SIZE * SIZE];

static void start(void)
{
    static const char *const arguments[] = {"--job-time-limit", "1", NULL};

    if (!test_device_is_fake())
        cr_skip_test("only the fake driver's device stands still when told");
    (void)snprintf(still, sizeof(still), "/tmp/gemmd-still-%d", (int)getpid());
    (void)setenv("FAKE_DRIVER_STILL", still, 1);
    (void)setenv("FAKE_DRIVER_FAULTS", "1", 1);
    (void)setenv("GEMMD_LIBNVML", getenv("GEMMD_LIBCUDA"), 1);
    test_daemon_start(&daemon_, arguments);
    for (int i = 0; i < CLIENTS; i++)
        connections[i] = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    if (daemon_.pid <= 0)
        return;
    for (int i = 0; i < CLIENTS; i++)
        gemmd_close(connections[i]);
    test_daemon_stop(&daemon_);
}

TestSuite(worker_still, .init = start, .fini = stop, .timeout = 120);

/* 1 everywhere, times the number of the client. */
static gemmd_product product_of(int client, float *d)
{
    static float ones[SIZE * SIZE];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int i = 0; i < SIZE * SIZE; i++)
        ones[i] = 1;
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = SIZE;
    product.alpha = client;
    product.a.data = product.b.data = ones;
    product.d.data = d;
    return product;
}

static void submit_all(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        for (int j = 0; j < EACH; j++) {
            gemmd_product product = product_of(i, outputs[i][j]);

            cr_assert_eq(gemmd_submit(connections[i], &product, &jobs[i][j]), GEMMD_OK);
        }
    }
    (void)test_status_number(connections[0], NULL, "jobs"); /* they have arrived */
}

static void expect_all_right(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        for (int j = 0; j < EACH; j++) {
            cr_expect_eq(gemmd_wait(connections[i], jobs[i][j], -1, NULL), GEMMD_OK, "%s",
                         gemmd_last_error(connections[i])->message);
            cr_expect_eq(outputs[i][j][SIZE], (float)(SIZE * i));
        }
    }
}

/* Memory and kernels are there: the driver's calls for them would wait for the device. */
static void warm_up(void)
{
    submit_all();
    expect_all_right();
}

static void make_still(void)
{
    (void)close(open(still, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void move_again(void)
{
    (void)unlink(still);
}

/* A process that ends each standstill in time. */
static pid_t start_mover(void)
{
    pid_t mover = process_fork();

    if (mover != 0)
        return mover;
    for (;; (void)usleep(1000)) {
        if (access(still, F_OK) < 0)
            continue;
        (void)usleep(STILL_US);
        move_again();
    }
}

static void kill_worker(void)
{
    cr_assert_eq(kill(test_worker_pid(connections[0]), SIGKILL), 0);
}

static void await_death(void)
{
    while (test_status_number(connections[0], "worker", "deaths") < 1)
        (void)usleep(500);
}

/* The log tells of it by the front's looks, of which a busy machine has few. */
static void await_still(void)
{
    (void)usleep(STILL_US);
    while (!test_daemon_logged(&daemon_, "state=still"))
        (void)usleep(10000);
}

static void expect_deaths(int deaths)
{
    cr_expect_eq(test_status_number(connections[0], "worker", "deaths"), deaths);
    cr_expect_eq(test_stats_number(connections[0], NULL, "faulted"), deaths / 2);
}

Test(worker_still, before_a_worker_is_killed_and_after)
{
    warm_up();
    make_still();
    submit_all();
    kill_worker();
    await_still();
    move_again();
    expect_all_right();
    expect_deaths(1);
    cr_expect(test_daemon_logged(&daemon_, "state=moves"));
}

Test(worker_still, as_soon_as_the_next_worker_begins)
{
    warm_up();
    submit_all();
    kill_worker();
    await_death();
    make_still();
    (void)usleep(STILL_US);
    move_again();
    expect_all_right();
    expect_deaths(1);
}

/* Nobody dies at all. */
Test(worker_still, under_load)
{
    warm_up();
    make_still();
    submit_all();
    await_still();
    move_again();
    expect_all_right();
    expect_deaths(0);
}

/* From the fault on: in the worker that dies, and in the next one. Then the guilty one runs alone,
 * and again. */
static void expect_told_to_the_guilty_alone(enum test_fault kind)
{
    pid_t mover = start_mover();
    float d[SIZE * SIZE];
    gemmd *connection = test_daemon_connect(&daemon_);
    gemmd_product product = product_of(0, d);
    gemmd_job culprit;

    warm_up();
    product.alpha = TEST_FAULT_ALPHA + kind;
    cr_assert_eq(gemmd_submit(connection, &product, &culprit), GEMMD_OK);
    submit_all();
    expect_all_right();
    cr_expect_eq(gemmd_wait(connection, culprit, -1, NULL), GEMMD_GPU_FAULT);
    expect_deaths(2);
    gemmd_close(connection);
    (void)kill(mover, SIGKILL);
}

static void start_with_faults(void)
{
    (void)setenv("FAKE_DRIVER_STILL_AFTER_FAULT", "1", 1);
    start();
}

TestSuite(worker_still_after, .init = start_with_faults, .fini = stop, .timeout = 120);

Test(worker_still_after, a_bad_address)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_ADDRESS);
}

Test(worker_still_after, a_trap)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_TRAP);
}

Test(worker_still_after, an_endless_product)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_ENDLESS);
}
