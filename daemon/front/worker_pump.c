/*
 * How completions arrive. Hot: an idle handle keeps the loop from blocking and every turn looks
 * into the ring, so that a job costs no system call on the link. Cold: sleep is announced in the
 * link and the loop blocks; the worker's eventfd ends that. Waking up costs more than a small
 * product takes (about 15 us against 3), polling costs a processor: so it is bounded in time, and
 * not done at all where there are fewer than four processors.
 */
#include "worker_internal.h"

#include "../core/clock.h"

/* With fewer, a spinner takes the processor that the worker or the client needs. */
#define SPIN_PROCESSORS 4

/* A job that runs longer than this is not worth a processor: its wake-up is below 2 %. */
#define SPIN_JOB_NS 1000000u

bool worker_pump_drain(struct worker_process *worker)
{
    struct gemmd_completion completion;
    bool is_any = false;

    while (link_complete_next(&worker->link, &completion)) {
        is_any = true;
        if (worker->in_flight > 0)
            worker->in_flight--;
        worker->operations->completed(worker, &completion);
    }
    if (is_any) {
        worker->has_completed = true;
        worker->vain_deaths = 0;
        worker->active_ns = clock_now_ns();
        recovery_reach(&worker->recovery, RECOVERY_ANSWERED, worker->active_ns);
    }
    return is_any;
}

static void idle_callback(uv_idle_t *idle)
{
    (void)idle; /* being active is all it does: the loop then polls without blocking */
}

static bool should_spin(const struct worker_process *worker)
{
    uint64_t quiet = clock_now_ns() - worker->active_ns;

    if (!worker->may_spin || worker->active_ns == 0)
        return false;
    return quiet < (worker->in_flight > 0 ? SPIN_JOB_NS : WORKER_SPIN_NS);
}

static void stay_awake(struct worker_process *worker, bool awake)
{
    if (awake)
        (void)uv_idle_start(&worker->idle, idle_callback);
    else
        (void)uv_idle_stop(&worker->idle);
}

/* Before the loop blocks. */
static void prepare_callback(uv_prepare_t *prepare)
{
    struct worker_process *worker = container_of(prepare, struct worker_process, prepare);

    (void)worker_pump_drain(worker);
    if (should_spin(worker)) {
        stay_awake(worker, true);
        return;
    }
    /* With nothing in flight nothing can come, and announcing would cost a read on waking. */
    worker->is_asleep = worker->in_flight > 0 && link_front_may_sleep(&worker->link);
    stay_awake(worker, worker->in_flight > 0 && !worker->is_asleep);
}

/* After it. */
static void check_callback(uv_check_t *check)
{
    struct worker_process *worker = container_of(check, struct worker_process, check);

    if (worker->is_asleep) {
        worker->is_asleep = false;
        link_front_awake(&worker->link);
    }
    (void)worker_pump_drain(worker);
}

void worker_pump_init(struct worker_process *worker)
{
    (void)uv_prepare_init(worker->loop, &worker->prepare);
    (void)uv_check_init(worker->loop, &worker->check);
    (void)uv_idle_init(worker->loop, &worker->idle);
    worker->may_spin = uv_available_parallelism() >= SPIN_PROCESSORS;
}

void worker_pump_start(struct worker_process *worker)
{
    worker->is_asleep = false;
    worker->active_ns = 0;
    (void)uv_prepare_start(&worker->prepare, prepare_callback);
    (void)uv_check_start(&worker->check, check_callback);
}

void worker_pump_stop(struct worker_process *worker)
{
    (void)uv_prepare_stop(&worker->prepare);
    (void)uv_check_stop(&worker->check);
    (void)uv_idle_stop(&worker->idle);
}
