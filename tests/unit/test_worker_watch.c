/*
 * Patience with a worker: with its hello, with its heart, and with its idleness.
 */
#include "../support/process.h"
#include "worker_fixture.h"

#include <sys/prctl.h>

TestSuite(worker_watch, .init = start, .fini = stop, .timeout = 60);

/* Its first look is one interval after the start. */
Test(worker_watch, without_a_hello_in_its_time_is_killed_and_started_again)
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

Test(worker_watch, with_a_hello_just_in_time_is_not_killed)
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
    pid_t child = process_fork();

    if (child > 0) {
        (void)setpgid(child, child);
        for (int ms = 0; process_state(child) != state; ms++) {
            if (ms == PATIENCE_MS)
                cr_skip_test("the state %c cannot be had here", state);
            (void)usleep(1000);
        }
        return child;
    }
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

static void start_on_a_gpu(void)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA};
    worker_start(&worker);
    run_until(&readies, 1);
}

enum { TURN = 20 }; /* looks, of one state and then of the other */

/* Looks at a worker of a GPU that is given a command and does not move any more; it is found now
 * in this state and now in that. */
static unsigned looks_at_both(char state, char other, bool has_completed)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY};
    pid_t children[] = {process_in_state(state), process_in_state(other)};
    uint64_t index;

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

Test(worker_watch, that_sleeps_with_commands_is_killed_soon)
{
    start_on_a_gpu();
    cr_expect_eq(looks_until_killed('S', true), WORKER_BEATS_MISSED);
}

Test(worker_watch, that_was_stopped_is_killed_soon)
{
    start_on_a_gpu();
    cr_expect_eq(looks_until_killed('T', false), WORKER_BEATS_MISSED);
}

Test(worker_watch, that_sleeps_before_its_first_command_ended_is_waited_for)
{
    start_on_a_gpu();
    cr_expect_eq(looks_until_killed('S', false), WORKER_BEATS_MISSED_MAPPING);
}

/* For a lock of the driver, which others have. */
Test(worker_watch, that_waits_in_the_kernel_is_waited_for_longest)
{
    start_on_a_gpu();
    cr_expect_eq(looks_until_killed('D', true), WORKER_BEATS_MISSED_KERNEL);
}

/* One look that finds it out of the kernel is not a hang. */
Test(worker_watch, time_in_the_kernel_counts_for_no_other_bound)
{
    start_on_a_gpu();
    cr_expect_gt(looks_at_both('D', 'S', false), WORKER_BEATS_MISSED_MAPPING);
}

/* The answer of a mapping was there before a beat was. */
Test(worker_watch, time_in_the_kernel_counts_for_one_wait_alone)
{
    struct memory memory = {.kind = LINK_MEMORY_DEVICE_IPC, .size = 4096, .fd = -1};
    pid_t child = process_in_state('D');

    start_on_a_gpu();
    worker.pid = child;
    cr_assert_eq(worker_memory_add(&worker, &memory), 0);
    while (worker.beats_missed < 5 * WORKER_BEATS_MISSED)
        (void)uv_run(&loop, UV_RUN_ONCE);
    answer_map(0, &memory);
    while (worker.beats_missed > 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)kill(-child, SIGKILL);
    worker_memory_remove(&worker, &memory);
    cr_expect_eq(looks_until_killed('S', true), WORKER_BEATS_MISSED);
}

static unsigned suspicions;

static void note_suspect(struct memory *memory)
{
    (void)memory;
    suspicions++;
}

/* It is no mapping's fault, until so many waited for it that it may be what they wait for. */
Test(worker_watch, memory_is_not_lost_because_workers_waited_in_the_kernel)
{
    struct memory memory = {
        .kind = LINK_MEMORY_DEVICE_IPC, .size = 4096, .fd = -1, .suspected = note_suspect};
    pid_t child = process_in_state('D');

    start_on_a_gpu();
    cr_assert_eq(worker_memory_add(&worker, &memory), 0);
    for (unsigned deaths = 0; deaths < 2 * WORKER_ASK_DEATHS; deaths++) {
        cr_assert_eq(memory.state, MEMORY_WANTED, "after %u", deaths);
        worker.pid = child;
        run_until(&kills, deaths + 1);
        cr_expect_eq(watched, WORKER_BEATS_MISSED_KERNEL);
        process_ends(deaths, SIGKILL);
        while (worker.state != WORKER_RESTORING && worker.state != WORKER_READY)
            (void)uv_run(&loop, UV_RUN_ONCE);
    }
    cr_expect_eq(memory.state, MEMORY_LOST);
    cr_expect_eq(suspicions, 0);
    (void)kill(-child, SIGKILL);
    worker_memory_remove(&worker, &memory);
}

/* On a machine that is so slow that none comes to its first answer, one will. */
Test(worker_watch, that_starts_where_others_died_in_vain_is_waited_for_longer)
{
    worker.vain_deaths = 3;
    start_on_a_gpu();
    cr_expect_eq(looks_until_killed('S', false), 4 * WORKER_BEATS_MISSED_MAPPING);
    cr_expect_eq(worker.vain_deaths, 4);
}

/* What it was asked to give back it would keep for as long as it is stopped. */
Test(worker_watch, is_parked_when_it_sleeps_and_no_earlier)
{
    start_on_a_gpu();
    run_for(3 * WORKER_PARK_MS);
    cr_expect_not(processes[0].is_stopped);
    cr_assert(link_worker_may_sleep(&processes[0].link));
    while (!processes[0].is_stopped)
        (void)uv_run(&loop, UV_RUN_NOWAIT); /* once it is, no timer is left to wait for */
    cr_expect_str_eq(worker_state_name(&worker), "parked");
}
