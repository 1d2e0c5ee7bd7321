/*
 * One device, many who want it: cancelling, deadlines, priorities, shares. On the CPU, where a
 * product is long enough to come between.
 */
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 1200 }; /* tens of milliseconds on two cores */

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    static const char *const arguments[] = {"--mode", "0666", NULL};

    if (!test_device_is_cpu())
        cr_skip_test("a GPU is through before anything can come between");
    test_daemon_start(&daemon_, arguments);
    cr_assert_eq(chmod(daemon_.directory, 0711), 0);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(sharing, .init = start, .fini = stop, .timeout = 120);

static gemmd_product square(gemmd *from, int64_t n)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = n;
    for (int i = 0; i < 3; i++) {
        gemmd_operand *operand[] = {&product.a, &product.b, &product.d};

        (void)gemmd_buffer_create(from, GEMMD_DEVICE, (uint64_t)(n * n) * 4, NULL, 0,
                                  &operand[i]->buffer);
    }
    return product;
}

static gemmd_job submit(const gemmd_product *product)
{
    gemmd_job job = 0;

    cr_assert_eq(gemmd_submit(connection, product, &job), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return job;
}

Test(sharing, a_waiting_job_is_cancelled_and_a_running_one_finishes)
{
    gemmd_product product = square(connection, LONG), other = square(connection, LONG);
    gemmd_job runs = submit(&product), waits = submit(&other);
    bool cancelled = false;

    cr_assert_eq(gemmd_cancel(connection, waits, &cancelled), GEMMD_OK);
    cr_expect(cancelled);
    cr_expect_eq(gemmd_wait(connection, waits, -1, NULL), GEMMD_CANCELLED);
    cr_assert_eq(gemmd_cancel(connection, runs, &cancelled), GEMMD_OK);
    cr_expect_not(cancelled);
    cr_expect_eq(gemmd_wait(connection, runs, -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_cancel(connection, runs, &cancelled), GEMMD_NOT_FOUND);
}

Test(sharing, late_work_is_answered_and_not_run)
{
    gemmd_product product = square(connection, LONG), late = square(connection, LONG);
    gemmd_job first = submit(&product), second, third;
    gemmd_result result = {.size = sizeof(result)};

    late.deadline_seconds = 1e-3;
    second = submit(&late);
    late.deadline_seconds = 60;
    third = submit(&late);
    cr_expect_eq(gemmd_wait(connection, second, -1, NULL), GEMMD_DEADLINE);
    cr_expect_eq(gemmd_wait(connection, first, -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, third, -1, &result), GEMMD_OK);
}

Test(sharing, higher_priority_goes_first)
{
    gemmd_product product = square(connection, LONG), low = square(connection, LONG);
    gemmd_product high = square(connection, LONG);
    gemmd_job first = submit(&product), second, third;
    gemmd_result of_low = {.size = sizeof(of_low)}, of_high = {.size = sizeof(of_high)};

    low.priority = -1;
    high.priority = 1;
    second = submit(&low);
    third = submit(&high);
    cr_expect_eq(gemmd_wait(connection, first, -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, second, -1, &of_low), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, third, -1, &of_high), GEMMD_OK);
    cr_expect_lt(of_high.queued_seconds, of_low.queued_seconds);
}

Test(sharing, names_what_is_wrong_with_deadline_and_priority)
{
    gemmd_product product = square(connection, 1);
    gemmd_job job;

    product.priority = 2;
    cr_expect_eq(gemmd_submit(connection, &product, &job), GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "priority");
    product.priority = 0;
    product.deadline_seconds = -1;
    cr_expect_eq(gemmd_submit(connection, &product, &job), GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "deadline_seconds");
}

/* --- shares ---------------------------------------------------------------------------------- */

/* So many small ones take longer than a large one, or the small would run dry. */
enum { IN_FLIGHT = 250 };

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A client of its own uid that always has IN_FLIGHT products of one size waiting; writes the
 * device's seconds it got between the two times. */
static void compete(uid_t uid, int64_t n, double from, double until, int output)
{
    gemmd_product product;
    gemmd_job jobs[IN_FLIGHT];
    gemmd_result result = {.size = sizeof(result)};
    double used = 0;
    gemmd *own;

    if (setgid((gid_t)uid) != 0 || setuid(uid) != 0 ||
        gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK)
        _exit(1);
    product = square(own, n);
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (gemmd_submit(own, &product, &jobs[i]) != GEMMD_OK)
            _exit(2);
    }
    for (int i = 0; now() < until; i = (i + 1) % IN_FLIGHT) {
        if (gemmd_wait(own, jobs[i], -1, &result) != GEMMD_OK)
            _exit(3);
        used += now() > from ? result.device_seconds : 0;
        if (gemmd_submit(own, &product, &jobs[i]) != GEMMD_OK)
            _exit(4);
    }
    if (write(output, &used, sizeof(used)) != sizeof(used))
        _exit(5);
    _exit(0);
}

Test(sharing, uids_get_equal_shares_whatever_the_size_of_their_products)
{
    static const int64_t sizes[] = {96, 445}; /* a hundred times the arithmetic */
    double began = now(), used[2] = {0};
    int pipes[2][2], status;

    if (geteuid() != 0)
        cr_skip_test("only root can be two users");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pipe(pipes[i]), 0);
        if (fork() == 0)
            compete((uid_t)(60001 + i), sizes[i], began + 1, began + 4, pipes[i][1]);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_gt(wait(&status), 0);
        cr_assert_eq(status, 0);
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(read(pipes[i][0], &used[i], sizeof(used[i])), sizeof(used[i]));
    (void)fprintf(stderr, "shares of 3 s: %.3f s in small, %.3f s in large products\n", used[0],
                  used[1]);
    cr_expect_gt(used[0], 0.8 * used[1], "%g against %g", used[0], used[1]);
    cr_expect_gt(used[1], 0.8 * used[0], "%g against %g", used[0], used[1]);
}
