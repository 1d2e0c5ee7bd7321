/*
 * The front's side of a worker, from its start to its end, without a process: uv_spawn() and
 * uv_process_kill() are replaced at link time, and timers run a hundred times faster.
 */
#include "../../daemon/front/worker_process.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FASTER 100

int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options);
int __wrap_uv_process_kill(uv_process_t *process, int signal_number);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat);
int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat);

static uv_loop_t loop;
static struct worker_process worker;
static struct link taker; /* the worker's end */
static uv_process_t *process;
static uv_exit_cb exited;
static struct fault failure;
static unsigned spawns, kills, readies, closes;
static bool is_mute; /* says no hello */

/* --- what stands for a process --------------------------------------------------------------- */

static void say_hello(void)
{
    struct link_message hello = {.kind = LINK_HELLO, .device = {.kind = LINK_DEVICE_CPU}};

    cr_assert_eq(link_send(&taker, &hello, NULL, 0), 0);
}

int __wrap_uv_spawn(uv_loop_t *on, uv_process_t *handle, const uv_process_options_t *options)
{
    struct link_fds fds = {.memory = dup(options->stdio[3].data.fd),
                           .command_event = dup(options->stdio[4].data.fd),
                           .completion_event = dup(options->stdio[5].data.fd),
                           .socket = dup(options->stdio[6].data.fd)};

    /* A handle that can be closed, in the place of a process's. */
    cr_assert_eq(uv_idle_init(on, (uv_idle_t *)handle), 0);
    handle->pid = 12345;
    cr_assert_eq(link_attach(&taker, &fds), 0);
    process = handle;
    exited = options->exit_cb;
    spawns++;
    if (!is_mute)
        say_hello();
    return 0;
}

int __wrap_uv_process_kill(uv_process_t *handle, int signal_number)
{
    cr_assert_eq(handle, process);
    kills += signal_number == SIGKILL;
    return 0;
}

int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat)
{
    return __real_uv_timer_start(timer, callback, (ms + FASTER - 1) / FASTER,
                                 (repeat + FASTER - 1) / FASTER);
}

static void process_ends(int signal_number)
{
    link_deinit(&taker);
    exited(process, 0, signal_number);
}

/* --- the front's side ------------------------------------------------------------------------ */

static void note_ready(struct worker_process *w)
{
    (void)w;
    readies++;
}

static void note_failed(struct worker_process *w, const struct fault *fault)
{
    (void)w;
    failure = *fault;
}

static void note_closed(struct worker_process *w)
{
    (void)w;
    closes++;
}

static void ignore(struct worker_process *w)
{
    (void)w;
}

static void ignore_death(struct worker_process *w, uint64_t taken)
{
    (void)w;
    (void)taken;
}

static bool is_never_overdue(struct worker_process *w)
{
    (void)w;
    return false;
}

static const struct worker_operations operations = {
    .started = ignore,
    .ready = note_ready,
    .is_overdue = is_never_overdue,
    .mapped = ignore,
    .died = ignore_death,
    .failed = note_failed,
    .closed = note_closed,
};

static void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &operations), 0);
    taker = LINK_NULL;
}

/* As at the daemon's end: nothing may be left. */
static void stop(void)
{
    worker_close(&worker);
    if (worker.pid != 0)
        process_ends(0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(closes, 1);
    cr_expect_eq(uv_loop_close(&loop), 0);
    worker_deinit(&worker);
}

TestSuite(worker_process, .init = start, .fini = stop, .timeout = 60);

static void run_until(const unsigned *count, unsigned value)
{
    while (*count < value && failure.status == STATUS_OK)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* No descriptor is free from here on. */
static void take_all_descriptors(struct rlimit *ret_before)
{
    struct rlimit none;
    int next = dup(STDIN_FILENO);

    (void)close(next);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, ret_before), 0);
    none = *ret_before;
    none.rlim_cur = (rlim_t)next;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
}

Test(worker_process, is_ready_after_its_hello)
{
    worker_start(&worker);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 1);
    cr_expect(worker_is_ready(&worker));
}

Test(worker_process, is_started_again_when_it_dies)
{
    worker_start(&worker);
    run_until(&readies, 1);
    process_ends(SIGSEGV);
    run_until(&readies, 2);
    cr_expect_eq(spawns, 2);
    cr_expect_eq(worker.deaths, 1);
}

/* Clients may give some back before the next attempt. */
Test(worker_process, is_started_once_there_are_descriptors_for_a_link)
{
    struct rlimit before;

    take_all_descriptors(&before);
    worker_start(&worker);
    cr_expect_eq(spawns, 0);
    cr_expect_neq(worker.failed_starts, 0);
    cr_expect_eq(failure.status, STATUS_OK, "one failure is not the end");
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 1);
    cr_expect(worker_is_ready(&worker));
    cr_expect_eq(worker.failed_starts, 1);
}

Test(worker_process, is_given_up_after_so_many_attempts_with_the_reason)
{
    struct rlimit before;
    unsigned never = 0;

    take_all_descriptors(&before);
    worker_start(&worker);
    run_until(&never, 1);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_expect_eq(spawns, 0);
    cr_expect_eq(worker.failed_starts, WORKER_START_ATTEMPTS);
    cr_expect_not_null(strstr(failure.message, "no link to it: Too many open files"), "%s",
                       failure.message);
}

/* Its first look is one interval after the start. */
Test(worker_process, without_a_hello_in_its_time_is_killed_and_started_again)
{
    const uint64_t looks = WORKER_START_S * 1000 / WORKER_LOOK_MS;
    uint64_t begun, took;

    is_mute = true;
    worker_start(&worker);
    begun = uv_hrtime();
    run_until(&kills, 1);
    took = (uv_hrtime() - begun) / 1000000 * FASTER;
    cr_expect_geq(took, WORKER_START_S * 1000 - WORKER_LOOK_MS, "%llu ms, %llu looks",
                  (unsigned long long)took, (unsigned long long)looks);
    is_mute = false;
    process_ends(SIGKILL);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 2);
}

Test(worker_process, with_a_hello_just_in_time_is_not_killed)
{
    is_mute = true;
    worker_start(&worker);
    for (uint64_t begun = uv_hrtime();
         (uv_hrtime() - begun) / 1000000 * FASTER < WORKER_START_S * 1000 / 2;)
        (void)uv_run(&loop, UV_RUN_ONCE);
    say_hello();
    run_until(&readies, 1);
    cr_expect_eq(kills, 0);
    cr_expect(worker_is_ready(&worker));
}
