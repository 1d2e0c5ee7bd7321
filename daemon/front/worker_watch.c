/*
 * Patience with a worker, all of it bounded: for its hello, for its heart, for a job, and for the
 * end of one whose device is lost. What passes the bound is killed; its end then goes the way of
 * every death.
 *
 * Looks are counted, not clock readings compared: a front that was stopped itself, or a machine
 * that was, finds one look more and not a worker that seems late by all of that time. The timer
 * stops by itself when nothing is due, so that an idle daemon sleeps.
 */
#include "worker_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

static uint32_t looks(uint32_t seconds)
{
    return seconds * 1000 / WORKER_LOOK_MS;
}

/* The CPU worker computes in its loop, for as long as it takes: then there is only the limit of the
 * job. */
static bool is_computing(const struct worker_process *worker)
{
    return worker->device.kind != LINK_DEVICE_CUDA &&
           link_commands_taken(&worker->link) + worker->in_flight > worker->link.commands_written;
}

/* As in /proc: R computes, S sleeps, D waits in the kernel, T was stopped. */
static char process_state(const struct worker_process *worker)
{
    char path[64], state = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", worker->pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 0; /* it is gone, and waitpid will say so */
    (void)fclose(file);
    return state;
}

uint32_t worker_patience(const struct worker_process *worker)
{
    uint32_t doublings = MAX(worker->vain_deaths, 1u) - 1;

    return 1u << MIN(doublings, WORKER_DOUBLINGS);
}

/* A driver call that maps or loads may sleep for long, and so may the first ones of a process, and
 * any while others keep the driver's lock. One that copies gigabytes from memory that could not be
 * registered computes, at a processor's speed. Who was stopped does neither. */
static uint32_t looks_at_work(struct worker_process *worker)
{
    bool may_sleep = worker->answers_expected > 0 || !worker->has_completed;
    char state = process_state(worker);
    uint32_t looks = WORKER_BEATS_MISSED;

    worker->kernel_looks += state == 'D';
    if (state == 'D')
        return WORKER_BEATS_MISSED_KERNEL;
    if (state == 'R' || (state != 'T' && (may_sleep || worker->kernel_looks > 0)))
        looks = WORKER_BEATS_MISSED_MAPPING * worker_patience(worker);
    return MIN(looks + worker->kernel_looks, WORKER_BEATS_MISSED_KERNEL);
}

/* Looks without a heartbeat that it may need. The CPU worker shares the processors with everybody,
 * and fills the memory that it maps. */
static uint32_t looks_allowed(struct worker_process *worker)
{
    uint64_t looks = WORKER_BEATS_MISSED;

    if (worker->device.kind != LINK_DEVICE_CUDA)
        looks = WORKER_BEATS_MISSED_CPU + worker_memory_under_way(worker) / WORKER_FILL_BYTES;
    else if (worker->beats_missed >= WORKER_BEATS_MISSED)
        looks = looks_at_work(worker);
    return (uint32_t)MIN(looks, UINT32_MAX);
}

static void forget_looks(struct worker_process *worker)
{
    worker->beats_missed = worker->kernel_looks = 0;
}

/* A worker's loop turns at least once per millisecond while it has work. One that does not is stuck
 * in the driver, or stopped; nobody but us can end that. */
static bool heart_stopped(struct worker_process *worker)
{
    uint64_t heartbeat = link_heartbeat(&worker->link);
    bool has_beaten = heartbeat != steal(worker->heartbeat, heartbeat);

    if (has_beaten || is_computing(worker))
        forget_looks(worker);
    else
        worker->beats_missed++;
    return worker->beats_missed >= looks_allowed(worker);
}

static void look_at_starting(struct worker_process *worker)
{
    if (++worker->beats_missed > looks(WORKER_START_S))
        worker_lose(worker, STATUS_INTERNAL, "the worker hangs: no hello came");
}

static void look_at_dying(struct worker_process *worker)
{
    if (++worker->dying_looks > looks(WORKER_DYING_S))
        (void)uv_process_kill(&worker->handles->process, SIGKILL);
}

/* In the kernel for so long, or, before a first command ended, in the driver: no job's doing, nor
 * that of what it maps or loads. But where it does so as well, the driver may wait for the command.
 */
static bool was_still(const struct worker_process *worker)
{
    bool is_first =
        worker->in_flight > 0 && !worker->has_completed && worker->answers_expected == 0;
    uint32_t looks = is_first ? worker->beats_missed : worker->kernel_looks;

    return worker->device.kind == LINK_DEVICE_CUDA && looks >= WORKER_BEATS_MISSED_MAPPING;
}

static void look_at_working(struct worker_process *worker)
{
    static const char *const reasons[] = {
        [WORKER_JOB_HANGS] = "a job hangs: it ran far longer than it should",
        [WORKER_DEVICE_STILL] = "the device stands still: it does nothing for this worker",
    };

    if (heart_stopped(worker)) {
        worker->verdict = was_still(worker) ? WORKER_DEVICE_STILL : WORKER_IS_WELL;
        worker_lose(worker, STATUS_INTERNAL, "the worker hangs: its heart stopped");
    } else if (worker->in_flight > 0) {
        worker->verdict = worker->operations->judge(worker);
        if (worker->verdict != WORKER_IS_WELL)
            worker_lose(worker, STATUS_INTERNAL, reasons[worker->verdict]);
    }
}

/* What was due has come, so the wait for it is over, whether or not a beat of it was seen. */
static void look_at_idle(struct worker_process *worker)
{
    forget_looks(worker);
    if (worker_park_look(worker))
        (void)uv_timer_stop(&worker->watchdog);
}

static void watchdog_callback(uv_timer_t *timer)
{
    struct worker_process *worker = container_of(timer, struct worker_process, watchdog);
    bool is_due = worker->in_flight > 0 || worker->answers_expected > 0 || worker->is_lost;

    if (worker->pid == 0 || worker->state == WORKER_QUITTING)
        (void)uv_timer_stop(timer);
    else if (!is_due)
        look_at_idle(worker);
    else if (worker->is_lost)
        look_at_dying(worker);
    else if (worker->state == WORKER_STARTING)
        look_at_starting(worker);
    else
        look_at_working(worker);
}

void worker_watch(struct worker_process *worker)
{
    worker->idle_looks = 0;
    if (uv_is_active((uv_handle_t *)&worker->watchdog))
        return;
    forget_looks(worker);
    worker->dying_looks = 0;
    worker->heartbeat = link_heartbeat(&worker->link);
    (void)uv_timer_start(&worker->watchdog, watchdog_callback, WORKER_LOOK_MS, WORKER_LOOK_MS);
}

void worker_watch_stop(struct worker_process *worker)
{
    (void)uv_timer_stop(&worker->watchdog);
}

void worker_watch_init(struct worker_process *worker)
{
    (void)uv_timer_init(worker->loop, &worker->watchdog);
}
