/*
 * An idle worker is parked: stopped by SIGSTOP, so that nothing in it wakes. Its own loop sleeps
 * without a timer, but CUDA keeps a thread in it that looks up ten times a second for as long as
 * there is a context. Ending the worker instead would cost the next job 0.3 s; this costs it one
 * SIGCONT. Device memory and context stay. A worker of the CPU has no such thread and is left
 * alone. So is one that does not sleep: it gives back what was freed, and a stopped one would keep
 * that.
 *
 * What ends a worker ends a parked one too: SIGKILL, and the front's own death (PR_SET_PDEATHSIG).
 */
#include "worker_internal.h"

#include "../core/log.h"

#include <inttypes.h>
#include <signal.h>

static bool is_at_work(const struct worker_process *worker)
{
    return !list_is_empty(&worker->outputs) || !link_worker_sleeps(&worker->link);
}

bool worker_park_look(struct worker_process *worker)
{
    if (worker->state != WORKER_READY || worker->device.kind != LINK_DEVICE_CUDA)
        return true;
    if (++worker->idle_looks < WORKER_PARK_MS / WORKER_LOOK_MS || is_at_work(worker))
        return false;
    if (uv_process_kill(&worker->handles->process, SIGSTOP) == 0) {
        worker->is_parked = true;
        log_debug("worker=%" PRId64 " state=parked", worker->pid);
    }
    return true;
}

void worker_unpark(struct worker_process *worker)
{
    if (!worker->is_parked)
        return;
    (void)uv_process_kill(&worker->handles->process, SIGCONT);
    worker->is_parked = false;
}
