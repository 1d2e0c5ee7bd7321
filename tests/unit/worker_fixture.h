/*
 * The front's side of a worker, from its start to its end, without a process: uv_spawn() and
 * uv_process_kill() are replaced at link time, and timers run a hundred times faster.
 */
#pragma once

#include "../../daemon/front/worker_process.h"

#include <criterion/criterion.h>
#include <signal.h>
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

static inline void say_hello(unsigned process)
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

static inline unsigned process_of(const uv_process_t *handle)
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

static inline void process_ends(unsigned process, int signal_number)
{
    link_deinit(&processes[process].link);
    processes[process].is_alive = false;
    processes[process].exited(processes[process].handle, 0, signal_number);
}

/* --- the front's side ------------------------------------------------------------------------ */

static inline void note_ready(struct worker_process *w)
{
    (void)w;
    readies++;
}

static inline void note_failed(struct worker_process *w, const struct fault *fault)
{
    (void)w;
    failure = *fault;
}

static inline void note_closed(struct worker_process *w)
{
    (void)w;
    closes++;
}

static inline void note_covered(struct worker_process *w)
{
    (void)w;
    covers++;
}

static inline void ignore(struct worker_process *w)
{
    (void)w;
}

static inline void ignore_death(struct worker_process *w, uint64_t taken)
{
    (void)w;
    (void)taken;
}

static inline enum worker_verdict is_always_well(struct worker_process *w)
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

static inline void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &operations), 0);
}

/* As at the daemon's end: nothing may be left. */
static inline void stop(void)
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

static inline void run_until(const unsigned *count, unsigned value)
{
    while (*count < value && failure.status == STATUS_OK)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* Its own answer, and no beat. */
static inline void answer_map(unsigned process, const struct memory *memory)
{
    struct link_message mapped = {.kind = LINK_MAPPED, .id = memory->id, .address = 4096};

    cr_assert_eq(link_send(&processes[process].link, &mapped, NULL, 0), 0);
}

static inline void run_for(unsigned ms)
{
    for (uint64_t begun = uv_hrtime(); (uv_hrtime() - begun) / 1000000 * FASTER < ms;)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}
