/*
 * Start, stop, idle: what an operator sees.
 */
#include "../support/daemon.h"
#include "../support/process.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

TestSuite(lifecycle, .timeout = 120);

#define SIDE_MAX 300

/* One product of zeros; submitted only, when the caller wants the job. */
static gemmd_status multiply(gemmd *connection, int64_t n, gemmd_job *ret_job)
{
    static float data[SIDE_MAX * SIDE_MAX];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = n;
    product.a.data = product.b.data = product.d.data = data;
    return ret_job ? gemmd_submit(connection, &product, ret_job)
                   : gemmd_gemm(connection, &product, NULL);
}

Test(lifecycle, finishes_what_is_under_way_on_sigterm_and_refuses_what_is_new)
{
    enum { JOBS = 8 };

    struct test_daemon daemon = {0};
    gemmd_job jobs[JOBS];
    gemmd *connection;

    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(multiply(connection, SIDE_MAX, &jobs[i]), GEMMD_OK);
    /* A round trip: all of them have arrived. */
    cr_assert_geq(test_status_number(connection, NULL, "jobs"), 0);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    for (int i = 0; i < JOBS; i++)
        cr_expect_eq(gemmd_wait(connection, jobs[i], -1, NULL), GEMMD_OK);
    gemmd_status late = multiply(connection, 4, NULL);
    cr_expect(late == GEMMD_SHUTTING_DOWN || late == GEMMD_DISCONNECTED, "%d", late);
    gemmd_close(connection);
    cr_expect_eq(test_daemon_wait(&daemon), 0);
    cr_expect_neq(access(daemon.socket, F_OK), 0);
    test_daemon_remove(&daemon);
}

/* The answer is larger than the kernel's buffers, and its job takes longer than a peer is given to
 * read: the time to read begins when there is something to. */
Test(lifecycle, an_answer_after_a_long_drain_can_still_be_read)
{
    const struct timespec job = {.tv_sec = 2, .tv_nsec = 300000000}, pause = {.tv_nsec = 300000000};
    static float data[1500];
    struct test_daemon daemon = {0};
    struct request product = raw_product(2, 1500, 1500, 1);
    struct raw_reply reply;
    gemmd *watcher;
    pid_t worker;
    int fd;

    test_daemon_start(&daemon, NULL);
    watcher = test_daemon_connect(&daemon);
    worker = test_worker_hold(watcher);
    fd = raw_greeted(&daemon);
    product.body.gemm.operand[OPERAND_A] = product.body.gemm.operand[OPERAND_B] =
        (struct request_operand){.kind = OPERAND_INLINE, .data = data, .size = sizeof(data)};
    cr_assert(raw_request(fd, &product, -1));
    while (test_status_number(watcher, NULL, "jobs") < 1)
        ;
    gemmd_close(watcher);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)nanosleep(&job, NULL);
    test_worker_release(worker);
    (void)nanosleep(&pause, NULL);
    cr_assert(raw_receive(fd, &reply), "it was cut off");
    cr_expect_eq(reply.fault.status, STATUS_OK);
    (void)close(fd);
    cr_expect_eq(test_daemon_wait(&daemon), 0);
    test_daemon_remove(&daemon);
}

Test(lifecycle, ends_in_order_with_clients_connected_and_idle)
{
    struct test_daemon daemon = {0};
    gemmd *connection;

    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    test_daemon_stop(&daemon);
    cr_expect_eq(multiply(connection, 4, NULL), GEMMD_DISCONNECTED);
    gemmd_close(connection);
}

Test(lifecycle, replaces_a_stale_socket)
{
    struct test_daemon daemon = {0};
    gemmd *connection;

    test_daemon_start(&daemon, NULL);
    cr_assert_eq(kill(daemon.pid, SIGKILL), 0);
    cr_expect_neq(test_daemon_wait(&daemon), 0);
    cr_assert_eq(access(daemon.socket, F_OK), 0);
    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    cr_expect_eq(multiply(connection, 4, NULL), GEMMD_OK);
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}

Test(lifecycle, leaves_a_live_daemons_socket_alone)
{
    struct test_daemon first = {0}, second;
    gemmd *connection;

    test_daemon_start(&first, NULL);
    second = first;
    cr_expect_eq(test_daemon_start_failing(&second, NULL), 1);
    connection = test_daemon_connect(&first);
    cr_expect_eq(multiply(connection, 4, NULL), GEMMD_OK);
    gemmd_close(connection);
    test_daemon_stop(&first);
}

Test(lifecycle, two_daemons_work_side_by_side)
{
    struct test_daemon first = {0}, second = {0};
    gemmd *one, *two;

    test_daemon_start(&first, NULL);
    test_daemon_start(&second, NULL);
    one = test_daemon_connect(&first);
    two = test_daemon_connect(&second);
    cr_expect_eq(multiply(one, 64, NULL), GEMMD_OK);
    cr_expect_eq(multiply(two, 64, NULL), GEMMD_OK);
    gemmd_close(one);
    gemmd_close(two);
    test_daemon_stop(&first);
    test_daemon_stop(&second);
}

Test(lifecycle, serves_when_it_was_started_without_standard_streams)
{
    struct test_daemon daemon = {.has_no_streams = true};
    gemmd *connection;

    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    cr_expect_eq(multiply(connection, SIDE_MAX, NULL), GEMMD_OK);
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}

Test(lifecycle, says_what_is_wrong_with_its_arguments)
{
    static const char *const wrong[][3] = {
        {"--device", "tpu", NULL}, {"--nonsense", "1", NULL}, {"--mode", "9999", NULL}};

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct test_daemon daemon = {0};

        cr_expect_eq(test_daemon_start_failing(&daemon, wrong[i]), 2);
        cr_expect(test_daemon_logged(&daemon, "allowed") || test_daemon_logged(&daemon, "--help"));
        test_daemon_remove(&daemon);
    }
}

Test(lifecycle, ends_with_a_line_when_the_device_is_not_there)
{
    static const char *const arguments[] = {"--device", "cuda:999", NULL};
    struct test_daemon daemon = {0};

    cr_expect_eq(test_daemon_start_failing(&daemon, arguments), 1);
    cr_expect(test_daemon_logged(&daemon, "state=failed"));
    test_daemon_remove(&daemon);
}

Test(lifecycle, worker_logs_at_the_level_that_the_daemon_was_given)
{
    static const char *const levels[][3] = {{"--log-level", "warning"}, {"--log-level", "info"}};

    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        struct test_daemon daemon = {0};

        test_daemon_start(&daemon, levels[i]);
        cr_expect_eq(test_daemon_logged(&daemon, "<6>worker: device="), i == 1);
        test_daemon_stop(&daemon);
    }
}

Test(lifecycle, auto_says_once_why_it_took_the_cpu)
{
    static const char *const arguments[] = {"--device", "auto", NULL};
    struct test_daemon daemon = {0};
    gemmd *connection;

    (void)setenv("GEMMD_LIBCUDA", "/nonexistent/libcuda.so", 1);
    test_daemon_start(&daemon, arguments);
    connection = test_daemon_connect(&daemon);
    cr_expect_eq(multiply(connection, 4, NULL), GEMMD_OK);
    cr_expect(test_daemon_logged(&daemon, "device=cpu note="));
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}

Test(lifecycle, front_maps_neither_cuda_nor_compiler_nor_blas)
{
    struct test_daemon daemon = {0};
    gemmd *connection;
    char path[64], line[512];
    FILE *maps;

    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    cr_assert_eq(multiply(connection, 64, NULL), GEMMD_OK);
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)daemon.pid);
    maps = fopen(path, "r");
    cr_assert_not_null(maps);
    while (fgets(line, sizeof(line), maps))
        cr_expect(!strstr(line, "libcuda") && !strstr(line, "nvrtc") && !strstr(line, "blas"), "%s",
                  line);
    (void)fclose(maps);
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}

Test(lifecycle, the_process_that_has_the_device_can_be_told_by_its_name)
{
    struct test_daemon daemon = {0};
    gemmd *connection;

    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    cr_assert_eq(multiply(connection, 4, NULL), GEMMD_OK); /* it has started */
    cr_expect(process_is_named(test_worker_pid(connection), "gemmd-worker"));
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}

/* Both sides poll while they are hot, where there are processors for it. A few sleeps are allowed:
 * another process may have taken ours. */
Test(lifecycle, hot_jobs_make_no_system_call_on_the_link)
{
    enum { JOBS = 2000 };

    struct test_daemon daemon = {0};
    gemmd *connection;
    double before;

    if (sysconf(_SC_NPROCESSORS_ONLN) < 8)
        cr_skip_test("needs eight processors: nobody polls below four");
    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    cr_assert_eq(multiply(connection, 16, NULL), GEMMD_OK);
    before = test_stats_number(connection, NULL, "link_system_calls");
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(multiply(connection, 16, NULL), GEMMD_OK);
    cr_expect_leq(test_stats_number(connection, NULL, "link_system_calls") - before, JOBS / 4.0);
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}

/* Both at rest, and who had a turn in that time. */
static unsigned long switches_in(const struct timespec *time, pid_t front, pid_t worker)
{
    unsigned long before = process_switches(front) + process_switches(worker);

    (void)nanosleep(time, NULL);
    return process_switches(front) + process_switches(worker) - before;
}

/* The budget is stated over 10 s, so it cannot be had in less. Who has not come to rest by then,
 * BLAS threads that yield for a while before they sleep on a busy machine, is looked at again: what
 * wakes every so often does so in each of these times. */
Test(lifecycle, wakes_nobody_while_idle)
{
    enum { TRIES = 6 };

    const struct timespec settle = {.tv_sec = 1}, idle = {.tv_sec = 10};
    struct test_daemon daemon = {0};
    unsigned long switches = 1;
    gemmd *connection;
    pid_t worker;

    test_daemon_start(&daemon, NULL);
    connection = test_daemon_connect(&daemon);
    cr_assert_eq(multiply(connection, 64, NULL), GEMMD_OK);
    worker = test_device_is_cpu() ? test_worker_pid(connection) /* CUDA has threads of its own */
                                  : daemon.pid;
    for (int i = 0; i < 10 && switches_in(&settle, daemon.pid, worker) > 0; i++)
        ;
    for (int i = 0; i < TRIES && switches > 0; i++)
        switches = switches_in(&idle, daemon.pid, worker);
    cr_expect_eq(switches, 0);
    gemmd_close(connection);
    test_daemon_stop(&daemon);
}
