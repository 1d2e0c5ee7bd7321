/*
 * The end of the daemon, or of its worker, as many clients see it: right results or the errors that
 * are allowed, and a way back.
 */
#include "../support/process.h"
#include "../support/products.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *watcher;

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
    watcher = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(watcher);
    test_daemon_stop(&daemon_);
}

TestSuite(end, .init = start, .fini = stop, .timeout = 120);

static pid_t worker_pid(void)
{
    return test_worker_pid(watcher);
}

static gemmd_product product_in(gemmd_buffer *a, gemmd_buffer *d, int64_t n)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = n;
    product.a.buffer = product.b.buffer = a;
    product.d.buffer = d;
    return product;
}

static gemmd_buffer *filled(gemmd *connection, int64_t n, float value)
{
    size_t size = (size_t)(n * n) * sizeof(float);
    gemmd_buffer *buffer = NULL;
    float *data;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, size, NULL, 0, &buffer), GEMMD_OK);
    data = gemmd_buffer_data(buffer);
    for (int64_t i = 0; i < n * n; i++)
        data[i] = value;
    return buffer;
}

/* --- the daemon ------------------------------------------------------------------------------ */

Test(end, of_the_daemon_disconnects_all_who_wait_and_they_come_back)
{
    enum { CLIENTS = 8, N = 16 };

    gemmd *clients[CLIENTS];
    gemmd_buffer *a[CLIENTS], *d[CLIENTS];
    gemmd_job jobs[CLIENTS];
    pid_t worker;

    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = test_daemon_connect(&daemon_);
        a[i] = filled(clients[i], N, 1);
        d[i] = filled(clients[i], N, 0);
    }
    worker = test_worker_hold(watcher);
    for (int i = 0; i < CLIENTS; i++) {
        gemmd_product product = product_in(a[i], d[i], N);

        cr_assert_eq(gemmd_submit(clients[i], &product, &jobs[i]), GEMMD_OK);
    }
    while (test_status_number(watcher, NULL, "jobs") < CLIENTS)
        ;
    cr_assert_eq(kill(daemon_.pid, SIGKILL), 0);
    (void)test_daemon_wait(&daemon_);
    for (int i = 0; i < CLIENTS; i++) {
        cr_expect_eq(gemmd_wait(clients[i], jobs[i], 10, NULL), GEMMD_DISCONNECTED);
        cr_expect_eq(gemmd_buffer_write(d[i], 0, "x", 1), GEMMD_DISCONNECTED);
        cr_expect_eq(((float *)gemmd_buffer_data(a[i]))[0], 1, "mapped memory stays readable");
        gemmd_close(clients[i]);
    }
    while (process_mappings(worker) > 0) /* its worker does not outlive it */
        (void)poll(NULL, 0, 1);
    gemmd_close(watcher);
    start();
    for (int i = 0; i < CLIENTS; i++) {
        const struct product_case p = {
            .input = DTYPE_FP32, .m = N, .n = N, .k = N, .batch = 1, .alpha = 1};
        gemmd *again = test_daemon_connect(&daemon_);

        product_check(again, &p);
        gemmd_close(again);
    }
}

/* --- the worker, under load ------------------------------------------------------------------ */

struct tally {
    _Atomic unsigned right, faults, in_place_right, in_place_faults, wrong, done;
};

static void count(struct tally *tally, gemmd_status status, bool is_right, bool in_place)
{
    if (status == GEMMD_OK && is_right)
        (void)(in_place ? tally->in_place_right++ : tally->right++);
    else if (status == GEMMD_GPU_FAULT)
        (void)(in_place ? tally->in_place_faults++ : tally->faults++);
    else
        tally->wrong++;
}

static bool is_filled(gemmd_buffer *buffer, int64_t n, float value)
{
    const float *data = gemmd_buffer_data(buffer);

    for (int64_t i = 0; i < n * n; i++) {
        if (data[i] != value)
            return false;
    }
    return true;
}

/* Four jobs in flight, every other one in place; until it is told to end. */
static void client_process(struct tally *tally, const atomic_bool *is_over)
{
    enum { JOBS = 4, N = 96 };

    gemmd *own = test_daemon_connect(&daemon_);
    gemmd_buffer *a = filled(own, N, 1), *d[JOBS];
    gemmd_job jobs[JOBS];

    for (int i = 0; i < JOBS; i++)
        d[i] = filled(own, N, 0);
    while (!*is_over) {
        for (int i = 0; i < JOBS; i++) {
            gemmd_product product = product_in(a, d[i], N);

            for (int j = 0; j < N * N; j++)
                ((float *)gemmd_buffer_data(d[i]))[j] = 5;
            product.beta = i % 2;
            product.c.buffer = i % 2 ? d[i] : NULL;
            cr_assert_eq(gemmd_submit(own, &product, &jobs[i]), GEMMD_OK);
        }
        for (int i = 0; i < JOBS; i++) {
            gemmd_status status = gemmd_wait(own, jobs[i], 60, NULL);

            count(tally, status, is_filled(d[i], N, i % 2 ? N + 5 : N), i % 2);
        }
    }
    gemmd_close(own);
    tally->done++;
    _exit(0);
}

Test(end, of_the_worker_under_load_costs_only_jobs_that_were_in_place_or_under_suspicion)
{
    enum { CLIENTS = 4, KILLS = 8 };

    struct shared {
        struct tally tally;
        atomic_bool is_over;
    } *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct tally *tally = &shared->tally;
    pid_t pids[CLIENTS];

    for (int i = 0; i < CLIENTS; i++) {
        pids[i] = process_fork();
        if (pids[i] == 0)
            client_process(tally, &shared->is_over);
    }
    for (int i = 0; i < KILLS; i++) {
        unsigned right = tally->right;

        cr_assert_eq(kill(worker_pid(), SIGKILL), 0);
        /* The next only when work goes on again. */
        for (int wait = 0; wait < 20000 && tally->right < right + 50; wait++)
            (void)poll(NULL, 0, 1);
        cr_assert_geq(tally->right, right + 50, "kill %d: no more results", i);
    }
    shared->is_over = true;
    for (int i = 0; i < CLIENTS; i++)
        (void)waitpid(pids[i], NULL, 0);
    cr_expect_eq(tally->done, CLIENTS, "a client did not reach its end");
    cr_expect_eq(tally->wrong, 0, "%u wrong results or statuses", tally->wrong);
    cr_expect_eq(tally->faults, 0, "%u jobs that could be repeated were not", tally->faults);
    /* The CPU takes one command at a time; a GPU has one of each client under way. */
    cr_expect_leq(tally->in_place_faults, KILLS * (test_device_is_cpu() ? 1 : CLIENTS));
    cr_expect_gt(tally->in_place_right, 0);
    cr_expect_eq(test_status_number(watcher, "worker", "deaths"), KILLS);
}

/* --- small things that an administrator looks at --------------------------------------------- */

Test(end, of_a_day_leaves_the_front_small)
{
    const struct product_case p = {
        .input = DTYPE_FP32, .m = 300, .n = 200, .k = 100, .batch = 1, .alpha = 1};

    product_check(watcher, &p);
    for (int i = 0; i < 200; i++)
        gemmd_close(test_daemon_connect(&daemon_));
#ifndef __SANITIZE_ADDRESS__
    cr_expect_leq(process_resident_kib(daemon_.pid), 20 * 1024);
#endif
    cr_expect_not(process_maps(daemon_.pid, "libcuda"));
    cr_expect_not(process_maps(daemon_.pid, "nvrtc"));
    cr_expect_not(process_maps(daemon_.pid, "blas"));
}
