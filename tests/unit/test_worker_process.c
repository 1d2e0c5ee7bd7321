/*
 * The front's side of a worker, from its start to its end, without a process: uv_spawn() and
 * uv_process_kill() are replaced at link time, and timers run a hundred times faster.
 */
#include "../../daemon/front/worker_process.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define FASTER 100

enum { PROCESSES = 16 };

int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options);
int __wrap_uv_process_kill(uv_process_t *process, int signal_number);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat);
int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat);

static uv_loop_t loop;
static struct worker_process worker;

static struct {
    struct link link; /* its end */
    uv_process_t *handle;
    uv_exit_cb exited;
    bool is_alive, is_stopped;
} processes[PROCESSES]; /* in the order of their starts */

static struct fault failure;
static unsigned spawns, kills, readies, closes, covers;
static uint32_t watched; /* looks without a heartbeat, until the last signal */
static bool is_mute;     /* who is started says no hello */
static struct link_device device = {.kind = LINK_DEVICE_CPU};

/* --- what stands for a process --------------------------------------------------------------- */

static void say_hello(unsigned process)
{
    struct link_message hello = {.kind = LINK_HELLO, .device = device};

    cr_assert_eq(link_send(&processes[process].link, &hello, NULL, 0), 0);
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
    cr_assert_lt(spawns, PROCESSES);
    cr_assert_eq(link_attach(&processes[spawns].link, &fds), 0);
    processes[spawns].handle = handle;
    processes[spawns].exited = options->exit_cb;
    processes[spawns].is_alive = true;
    if (!is_mute)
        say_hello(spawns);
    spawns++;
    return 0;
}

static unsigned process_of(const uv_process_t *handle)
{
    unsigned i = spawns;

    while (i > 0 && (processes[i - 1].handle != handle || !processes[i - 1].is_alive))
        i--;
    cr_assert_gt(i, 0, "no such process");
    return i - 1;
}

int __wrap_uv_process_kill(uv_process_t *handle, int signal_number)
{
    unsigned process = process_of(handle);

    kills += signal_number == SIGKILL;
    watched = worker.beats_missed;
    if (signal_number == SIGSTOP || signal_number == SIGCONT)
        processes[process].is_stopped = signal_number == SIGSTOP;
    return 0;
}

int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat)
{
    return __real_uv_timer_start(timer, callback, (ms + FASTER - 1) / FASTER,
                                 (repeat + FASTER - 1) / FASTER);
}

static void process_ends(unsigned process, int signal_number)
{
    link_deinit(&processes[process].link);
    processes[process].is_alive = false;
    processes[process].exited(processes[process].handle, 0, signal_number);
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

static void note_covered(struct worker_process *w)
{
    (void)w;
    covers++;
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

static enum worker_verdict is_always_well(struct worker_process *w)
{
    (void)w;
    return WORKER_IS_WELL;
}

static const struct worker_operations operations = {
    .started = ignore,
    .ready = note_ready,
    .judge = is_always_well,
    .covered = note_covered,
    .mapped = ignore,
    .died = ignore_death,
    .failed = note_failed,
    .closed = note_closed,
};

static void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &operations), 0);
}

/* As at the daemon's end: nothing may be left. */
static void stop(void)
{
    worker_close(&worker);
    for (unsigned i = 0; i < spawns; i++) {
        if (processes[i].is_alive)
            process_ends(i, 0);
    }
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
    process_ends(0, SIGSEGV);
    run_until(&readies, 2);
    cr_expect_eq(spawns, 2);
    cr_expect_eq(worker.deaths, 1);
    cr_expect(recovery_has_reached(&worker.recovery, RECOVERY_RESTORED));
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
    process_ends(0, SIGKILL);
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
    say_hello(0);
    run_until(&readies, 1);
    cr_expect_eq(kills, 0);
    cr_expect(worker_is_ready(&worker));
}

/* --- a heart that stands still ---------------------------------------------------------------- */

#define PATIENCE_MS                                                                                \
    20000 /* far over any pause of a busy machine: another kernel shows it otherwise */

/* A process in this state of /proc's, and perhaps another one in its group; only its state is
 * looked at. */
static pid_t process_in_state(char state)
{
    pid_t child = fork();

    if (child > 0) {
        (void)setpgid(child, child);
        for (int ms = 0; process_state(child) != state; ms++) {
            if (ms == PATIENCE_MS)
                cr_skip_test("the state %c cannot be had here", state);
            (void)usleep(1000);
        }
        return child;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    if (state == 'T')
        (void)raise(SIGSTOP);
    if (state != 'D' || vfork() == 0) { /* its parent waits in the kernel */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)pause();
    }
    _exit(0);
}

enum { TURN = 20 }; /* looks, of one state and then of the other */

/* Looks at a worker of a GPU that was given a command and does not move any more; it is found now
 * in this state and now in that. */
static unsigned looks_at_both(char state, char other, bool has_completed)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY};
    pid_t children[] = {process_in_state(state), process_in_state(other)};
    uint64_t index;

    device = (struct link_device){.kind = LINK_DEVICE_CUDA};
    worker_start(&worker);
    run_until(&readies, 1);
    worker.has_completed = has_completed;
    cr_assert_eq(worker_submit(&worker, &command, &index), 0);
    while (kills == 0) {
        worker.pid = children[worker.beats_missed / TURN % 2];
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    for (size_t i = 0; i < ARRAY_SIZE(children); i++)
        (void)kill(-children[i], SIGKILL);
    process_ends(0, SIGKILL);
    run_until(&readies, 2);
    return worker.deaths == 1 ? watched : 0;
}

static unsigned looks_until_killed(char state, bool has_completed)
{
    return looks_at_both(state, state, has_completed);
}

Test(worker_process, that_sleeps_with_commands_is_killed_soon)
{
    cr_expect_eq(looks_until_killed('S', true), WORKER_BEATS_MISSED);
}

Test(worker_process, that_was_stopped_is_killed_soon)
{
    cr_expect_eq(looks_until_killed('T', false), WORKER_BEATS_MISSED);
}

Test(worker_process, that_sleeps_before_its_first_command_ended_is_waited_for)
{
    cr_expect_eq(looks_until_killed('S', false), WORKER_BEATS_MISSED_MAPPING);
}

/* For a lock of the driver, which others have. */
Test(worker_process, that_waits_in_the_kernel_is_waited_for_longest)
{
    cr_expect_eq(looks_until_killed('D', true), WORKER_BEATS_MISSED_KERNEL);
}

/* One look that finds it out of the kernel is not a hang. */
Test(worker_process, time_in_the_kernel_counts_for_no_other_bound)
{
    cr_expect_gt(looks_at_both('D', 'S', false), WORKER_BEATS_MISSED_MAPPING);
}

/* On a machine that is so slow that none comes to its first answer, one will. */
Test(worker_process, that_starts_where_others_died_in_vain_is_waited_for_longer)
{
    worker.vain_deaths = 3;
    cr_expect_eq(looks_until_killed('S', false), 4 * WORKER_BEATS_MISSED_MAPPING);
    cr_expect_eq(worker.vain_deaths, 4);
}

/* --- one that stands by ---------------------------------------------------------------------- */

static void start_on_a_large_gpu(void)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    run_until(&readies, 1);
    run_until(&spawns, 2);
}

Test(worker_process, has_no_spare_where_its_context_would_be_a_large_part_of_the_device)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY - 1};
    worker_start(&worker);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 1);
    cr_expect(worker_is_covered(&worker), "none will come, so nobody waits for it");
}

Test(worker_process, has_a_spare_that_is_stopped_until_it_is_needed)
{
    start_on_a_large_gpu();
    cr_expect_not(worker_is_covered(&worker));
    run_until(&covers, 1);
    cr_expect(worker_is_covered(&worker));
    cr_expect(processes[1].is_stopped);
    process_ends(0, SIGSEGV);
    run_until(&readies, 2);
    cr_expect_not(processes[1].is_stopped);
    cr_expect_eq(&worker.handles->process, processes[1].handle);
    run_until(&covers, 2);
    cr_expect_eq(spawns, 3, "the next spare");
    cr_expect(processes[2].is_stopped);
}

Test(worker_process, takes_a_spare_that_has_not_said_hello_yet)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    is_mute = true;
    run_until(&readies, 1);
    process_ends(0, SIGSEGV);
    while (worker.state != WORKER_STARTING)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(spawns, 2);
    say_hello(1);
    run_until(&readies, 2);
    cr_expect(worker_is_ready(&worker));
}

Test(worker_process, outlives_its_spare)
{
    start_on_a_large_gpu();
    run_until(&covers, 1);
    process_ends(1, SIGKILL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect(worker_is_ready(&worker));
    cr_expect_eq(worker.deaths, 0);
    process_ends(0, SIGSEGV);
    run_until(&readies, 2);
    cr_expect_eq(spawns, 4, "a worker anew, and a spare");
}

/* A device for one process alone says so in the spare's hello. */
Test(worker_process, does_without_a_spare_that_is_refused_its_device)
{
    struct link_message hello = {.kind = LINK_HELLO};

    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    is_mute = true;
    run_until(&readies, 1);
    (void)fault_set(&hello.fault, STATUS_UNSUPPORTED, "device", "it is another's");
    cr_assert_eq(link_send(&processes[1].link, &hello, NULL, 0), 0);
    run_until(&kills, 1);
    process_ends(1, SIGKILL);
    cr_expect(worker_is_covered(&worker));
    cr_expect(worker_is_ready(&worker));
}

Test(worker_process, is_not_waited_for_as_a_spare_for_ever)
{
    is_mute = true;
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    say_hello(0);
    run_until(&covers, 1);
    cr_expect_eq(spawns, 2);
    cr_expect(worker_is_covered(&worker));
}
