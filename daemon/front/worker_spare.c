/*
 * A worker that stands by. Of the time that a client waits when a worker dies, most is CUDA's start
 * in the next one (0.4 s on an H200): a spare has that behind it. It has a link and a context, and
 * neither memory nor kernels; once it has said hello it is stopped, since CUDA looks up ten times a
 * second in any process with a context.
 *
 * It is started when the worker is ready, takes the place of one that was reaped, and is missed by
 * nobody when it dies itself: the next ready worker gets another.
 */
#include "worker_internal.h"

#include "../core/log.h"

#include <inttypes.h>
#include <signal.h>

bool worker_is_covered(const struct worker_process *worker)
{
    return worker->spare.state != SPARE_STARTING || worker->spare.is_late;
}

const char *worker_spare_name(const struct worker_process *worker)
{
    static const char *const names[] = {
        [SPARE_NONE] = "none",    [SPARE_STARTING] = "starting", [SPARE_READY] = "ready",
        [SPARE_REFUSED] = "none", [SPARE_ENDING] = "none",
    };

    return names[worker->spare.state];
}

static void tell(struct worker_process *worker)
{
    (void)uv_timer_stop(&worker->spare.timer);
    if (worker->state != WORKER_QUITTING)
        worker->operations->covered(worker);
}

static void late_callback(uv_timer_t *timer)
{
    struct worker_process *worker = container_of(timer, struct worker_process, spare.timer);

    worker->spare.is_late = true;
    tell(worker);
}

/* --- its end --------------------------------------------------------------------------------- */

static void handles_closed(struct worker_handles *handles)
{
    struct worker_process *worker = handles->worker;

    link_deinit(&worker->spare.link);
    worker->spare.link = LINK_NULL;
    worker->spare.state = SPARE_NONE;
    worker_end_if_idle(worker);
}

static void forget(struct worker_process *worker)
{
    worker->spare.pid = 0;
    worker->spare.state = SPARE_ENDING;
    worker_handles_close(worker->spare.handles, handles_closed);
    tell(worker);
}

bool worker_spare_exited(struct worker_process *worker, const struct worker_handles *handles)
{
    if (worker->spare.pid == 0 || handles != worker->spare.handles)
        return false;
    if (worker->state != WORKER_QUITTING)
        log_info("worker=%" PRId64 " state=died spare=yes", worker->spare.pid);
    forget(worker);
    return true;
}

void worker_spare_end(struct worker_process *worker)
{
    if (worker->spare.pid != 0)
        (void)uv_process_kill(&worker->spare.handles->process, SIGKILL);
}

static void refuse(struct worker_process *worker)
{
    (void)uv_poll_stop(&worker->spare.handles->socket_poll);
    worker->spare.state = SPARE_REFUSED;
    worker_spare_end(worker);
    tell(worker);
}

/* --- its hello ------------------------------------------------------------------------------- */

static void hear(struct worker_process *worker)
{
    struct worker_spare *spare = &worker->spare;
    cleanup(fd_closep) int fd = -1;
    size_t n_fds = 0;
    int r = link_receive(&spare->link, &spare->hello, &fd, &n_fds);

    if (r == LINK_E_EMPTY)
        return;
    (void)uv_poll_stop(&spare->handles->socket_poll);
    if (r != 0 || spare->hello.kind != LINK_HELLO || spare->hello.fault.status != STATUS_OK) {
        /* A device that is for one process alone, or has no memory for another context. */
        log_info("worker=%" PRId64 " spare=refused reason=\"%s\"", spare->pid,
                 r == 0 ? spare->hello.fault.message : "it said no hello");
        refuse(worker);
        return;
    }
    (void)uv_process_kill(&spare->handles->process, SIGSTOP);
    spare->state = SPARE_READY;
    log_debug("worker=%" PRId64 " state=ready spare=yes", spare->pid);
    tell(worker);
}

static void socket_callback(uv_poll_t *poll, int status, int events)
{
    struct worker_handles *handles = container_of(poll, struct worker_handles, socket_poll);

    (void)events;
    if (status < 0)
        refuse(handles->worker);
    else
        hear(handles->worker);
}

/* --- its start ------------------------------------------------------------------------------- */

/* A place whose last process is all gone. */
static struct worker_handles *free_place(struct worker_process *worker)
{
    struct worker_handles *place = &worker->places[worker->handles == &worker->places[0] ? 1 : 0];

    return place->is_open ? NULL : place;
}

static bool is_wanted(const struct worker_process *worker)
{
    return worker->spare.state == SPARE_NONE && worker->device.kind == LINK_DEVICE_CUDA &&
           worker->device.memory >= WORKER_SPARE_MEMORY;
}

void worker_spare_init(struct worker_process *worker)
{
    worker->spare.link = LINK_NULL;
    (void)uv_timer_init(worker->loop, &worker->spare.timer);
}

void worker_spare_start(struct worker_process *worker)
{
    struct worker_spare *spare = &worker->spare;
    struct worker_handles *place = free_place(worker);
    int r;

    if (!is_wanted(worker) || !place || link_create(&spare->link) != 0)
        return;
    spare->handles = place;
    r = worker_spawn(place, &spare->link, worker_exited);
    if (r < 0) {
        log_info("spare=failed reason=\"%s\"", uv_strerror(r));
        spare->state = SPARE_ENDING;
        worker_handles_close(place, handles_closed);
        return;
    }
    spare->pid = place->process.pid;
    spare->state = SPARE_STARTING;
    spare->is_late = false;
    (void)uv_poll_start(&place->socket_poll, UV_READABLE, socket_callback);
    (void)uv_timer_start(&spare->timer, late_callback, WORKER_SPARE_WAIT_MS, 0);
    log_debug("worker=%" PRId64 " state=starting spare=yes", spare->pid);
}

bool worker_spare_take(struct worker_process *worker)
{
    struct worker_spare *spare = &worker->spare;

    if (spare->state != SPARE_STARTING && spare->state != SPARE_READY)
        return false;
    worker->handles = spare->handles;
    worker->link = steal(spare->link, LINK_NULL);
    worker->pid = steal(spare->pid, 0);
    (void)uv_process_kill(&worker->handles->process, SIGCONT);
    spare->state = SPARE_NONE;
    (void)uv_timer_stop(&spare->timer);
    return true;
}
