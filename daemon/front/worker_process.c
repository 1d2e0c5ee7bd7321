#include "worker_internal.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_FIRST_MS 100 /* doubles with each failed start: 1.5 s over all attempts */

static void start_callback(uv_timer_t *timer);

const char *worker_state_name(const struct worker_process *worker)
{
    static const char *const names[] = {
        [WORKER_DOWN] = "down",   [WORKER_STARTING] = "starting", [WORKER_RESTORING] = "restoring",
        [WORKER_READY] = "ready", [WORKER_QUITTING] = "quitting", [WORKER_CLOSED] = "closed",
    };

    return worker->is_parked ? "parked" : names[worker->state];
}

bool worker_is_ready(const struct worker_process *worker)
{
    return worker->state == WORKER_READY && !worker->is_lost;
}

uint32_t worker_room(const struct worker_process *worker)
{
    return worker_is_ready(worker) ? link_room(&worker->link) : 0;
}

bool worker_died_loading(const struct worker_process *worker)
{
    return worker->in_flight == 0 && worker->loads_expected > 0;
}

uint32_t worker_half_deaths(const struct worker_process *worker)
{
    return worker->verdict == WORKER_DEVICE_STILL ? 1 : 2;
}

uint64_t worker_system_calls(const struct worker_process *worker)
{
    return worker->system_calls + worker->link.system_calls;
}

int worker_submit(struct worker_process *worker,
                  const struct gemmd_command *command,
                  uint64_t *ret_index)
{
    uint64_t index = worker->link.commands_written;
    int r = link_submit(&worker->link, command);

    if (r < 0)
        return error_trace(r);
    worker_unpark(worker);
    worker->in_flight++;
    worker->active_ns = clock_now_ns();
    worker_watch(worker);
    *ret_index = index;
    return 0;
}

static void note_lost(struct worker_process *worker)
{
    if (!worker->is_lost)
        recovery_begin(&worker->recovery, MAX(worker->active_ns, worker->started_ns),
                       clock_now_ns());
    worker->is_lost = true;
}

void worker_lose(struct worker_process *worker, enum status status, const char *reason)
{
    bool is_quiet = worker->state == WORKER_QUITTING || worker->is_lost;

    note_lost(worker);
    if (uv_is_active((uv_handle_t *)&worker->handles->socket_poll))
        (void)uv_poll_stop(&worker->handles->socket_poll);
    if (is_quiet)
        return;
    (void)fault_set(&worker->lost, status, "", "%s", reason);
    /* A worker that ends in order (a fault of the device, LINK_LOST) is given WORKER_DYING_S: a
     * killed one can take longer to be reaped. One that broke the protocol is not. */
    worker_watch(worker);
    if (worker->pid != 0 && status == STATUS_INTERNAL)
        (void)uv_process_kill(&worker->handles->process, SIGKILL);
}

/* --- a process ends -------------------------------------------------------------------------- */

static void give_up(struct worker_process *worker, const struct fault *fault)
{
    worker->state = WORKER_DOWN;
    worker->operations->failed(worker, fault);
}

static void closed_for_good(struct worker_process *worker)
{
    worker->state = WORKER_CLOSED;
    worker->operations->closed(worker);
}

static void start_again(struct worker_process *worker)
{
    struct fault fault;
    uint64_t delay = 0;

    if (worker->failed_starts >= WORKER_START_ATTEMPTS) {
        if (worker->is_device_known || worker->lost.status == STATUS_OK)
            (void)fault_set(&fault, STATUS_INTERNAL, "", "the worker ended %u times in a row: %s",
                            worker->failed_starts, worker->died_of);
        else
            fault = worker->lost;
        give_up(worker, &fault);
        return;
    }
    if (worker->failed_starts > 1)
        delay = (uint64_t)BACKOFF_FIRST_MS << (worker->failed_starts - 2);
    (void)uv_timer_start(&worker->timer, start_callback, delay, 0);
}

/* The dead process left nothing: its link can go. */
static void handles_closed(struct worker_handles *handles)
{
    struct worker_process *worker = handles->worker;

    worker->system_calls += worker->link.system_calls;
    link_deinit(&worker->link);
    worker->link = LINK_NULL;
    if (worker->state == WORKER_QUITTING) {
        worker_end_if_idle(worker);
        return;
    }
    worker->state = WORKER_DOWN;
    start_again(worker);
}

static void close_process(struct worker_process *worker)
{
    worker_pump_stop(worker);
    worker_watch_stop(worker);
    /* Patience with its quitting: a spare may take longer to be reaped, and its number is free. */
    (void)uv_timer_stop(&worker->timer);
    worker_handles_close(worker->handles, handles_closed);
}

/* A signal alone says nothing: the front's own, for patience that ended, are told from others'. */
static void describe_death(struct worker_process *worker, int64_t status, int signal_number)
{
    bool has_reason = worker->is_lost && worker->lost.status != STATUS_OK;
    const char *lost = has_reason ? worker->lost.message : "no reason given";

    if (signal_number != 0)
        (void)snprintf(worker->died_of, sizeof(worker->died_of), "signal %d%s%.200s", signal_number,
                       has_reason ? ", " : "", has_reason ? lost : "");
    else
        (void)snprintf(worker->died_of, sizeof(worker->died_of), "status %" PRId64 ", %.200s",
                       status, lost);
}

static void died(struct worker_process *worker, int64_t status, int signal_number)
{
    uint64_t taken = link_commands_taken(&worker->link);
    int64_t pid = steal(worker->pid, 0);

    worker->is_parked = false;
    /* What it published counts, in the ring and on the socket: an answer may carry the only
     * descriptor of device memory. */
    (void)worker_pump_drain(worker);
    if (!worker->is_lost || worker->lost.status != STATUS_INTERNAL)
        worker_messages_receive(worker);
    describe_death(worker, status, signal_number);
    note_lost(worker);
    recovery_reach(&worker->recovery, RECOVERY_ENDED, clock_now_ns());
    worker_outputs_clear(worker);
    worker_memories_forget(worker);

    worker->vain_deaths += worker->in_flight > 0 || worker->answers_expected > 0;
    if (worker->state != WORKER_QUITTING) {
        bool is_recent = clock_now_ns() - worker->started_ns < WORKER_STARTED_NS;
        bool is_failed_start = taken == 0 && (is_recent || !worker->is_device_known);

        worker->failed_starts = is_failed_start ? worker->failed_starts + 1 : 0;
        worker->deaths++;
        log_warning("worker=%" PRId64 " state=died of=\"%s\" deaths=%" PRIu64, pid, worker->died_of,
                    worker->deaths);
        worker->state = WORKER_DOWN;
        worker->operations->died(worker, taken);
    }
    worker->answers_expected = 0;
    worker->loads_expected = 0;
    worker->in_flight = 0;
    close_process(worker);
}

/* waitpid() has returned. */
void worker_exited(uv_process_t *process, int64_t status, int signal_number)
{
    struct worker_handles *handles = container_of(process, struct worker_handles, process);

    if (!worker_spare_exited(handles->worker, handles))
        died(handles->worker, status, signal_number);
}

/* --- a process starts ------------------------------------------------------------------------ */

static void socket_callback(uv_poll_t *poll, int status, int events)
{
    struct worker_process *worker = container_of(poll, struct worker_handles, socket_poll)->worker;

    if (status < 0) {
        worker_lose(worker, STATUS_INTERNAL, "the worker's socket failed");
        return;
    }
    if (events & UV_WRITABLE)
        worker_outputs_flush(worker);
    if (events & UV_READABLE)
        worker_messages_receive(worker);
}

void worker_watch_socket(struct worker_process *worker)
{
    int events = UV_READABLE | (list_is_empty(&worker->outputs) ? 0 : UV_WRITABLE);

    if (!worker->is_lost)
        (void)uv_poll_start(&worker->handles->socket_poll, events, socket_callback);
}

static void event_callback(uv_poll_t *poll, int status, int events)
{
    (void)poll; /* the pump's check handle, which runs next, drains both eventfd and ring */
    (void)status;
    (void)events;
}

static void spawn_failed(struct worker_process *worker, int r)
{
    (void)snprintf(worker->died_of, sizeof(worker->died_of), "it cannot be started: %s",
                   strerror(-r));
    worker->failed_starts++;
    worker->is_lost = true;
    close_process(worker);
}

/* The place that the spare does not have. */
static struct worker_handles *free_place(struct worker_process *worker)
{
    bool is_first_taken =
        worker->spare.state != SPARE_NONE && worker->spare.handles == &worker->places[0];

    return &worker->places[is_first_taken ? 1 : 0];
}

/* Something is at the other end of the link, and will say hello. */
static void attend(struct worker_process *worker)
{
    worker->state = WORKER_STARTING;
    worker->is_lost = worker->has_completed = false;
    worker->verdict = WORKER_IS_WELL;
    worker->lost = FAULT_NONE;
    worker->started_ns = clock_now_ns();
    worker->starts++;
    worker->answers_expected = 1; /* the hello */
}

static void watch(struct worker_process *worker)
{
    worker_watch_socket(worker);
    (void)uv_poll_start(&worker->handles->event_poll, UV_READABLE, event_callback);
    worker_pump_start(worker);
    worker_watch(worker);
}

static void spawn(struct worker_process *worker)
{
    int r = link_create(&worker->link);

    if (r != 0) {
        /* Out of memory or descriptors: clients may give some back before the next attempt. */
        (void)snprintf(worker->died_of, sizeof(worker->died_of), "no link to it: %s", strerror(-r));
        worker->lost = FAULT_NONE;
        worker->failed_starts++;
        start_again(worker);
        return;
    }
    worker->handles = free_place(worker);
    attend(worker);
    r = worker_spawn(worker->handles, &worker->link, worker_exited);
    if (r < 0) {
        spawn_failed(worker, r);
        return;
    }
    worker->pid = worker->handles->process.pid;
    watch(worker);
    log_debug("worker=%" PRId64 " state=starting device=%s", worker->pid,
              worker_device_argument(worker));
}

/* A spare that said hello says so again, as it were. */
static void start_callback(uv_timer_t *timer)
{
    struct worker_process *worker = container_of(timer, struct worker_process, timer);
    bool has_hello = worker->spare.state == SPARE_READY;

    if (!worker_spare_take(worker)) {
        spawn(worker);
        return;
    }
    attend(worker);
    watch(worker);
    log_debug("worker=%" PRId64 " state=starting spare=%s", worker->pid,
              has_hello ? "yes" : "late");
    if (has_hello)
        worker_message(worker, &worker->spare.hello);
}

void worker_start(struct worker_process *worker)
{
    spawn(worker);
}

/* Why `auto` took the CPU is only said by the worker that looked. The link has ended the texts. */
static void take_device(struct worker_process *worker, const struct link_device *device)
{
    struct link_device before = worker->device;

    worker->device = *device;
    if (device->note[0] == '\0')
        memcpy(worker->device.note, before.note, sizeof(before.note));
}

/* "auto", "cuda" or a number could mean another device to the next worker: buffers, kernels and
 * plans are for this one, so it is this one again or none. */
static void pin_device(struct worker_process *worker)
{
    const struct link_device *device = &worker->device;

    if (device->kind == LINK_DEVICE_CPU)
        (void)snprintf(worker->pinned, sizeof(worker->pinned), "cpu");
    else if (device->uuid[0] != '\0')
        (void)snprintf(worker->pinned, sizeof(worker->pinned), "%s", device->uuid);
}

void worker_hello(struct worker_process *worker, const struct link_message *message)
{
    if (worker->state != WORKER_STARTING)
        return;
    if (message->fault.status != STATUS_OK) {
        bool is_first = !worker->is_device_known;

        worker_lose(worker, message->fault.status, message->fault.message);
        /* What was never there will not come: no second attempt. */
        if (is_first)
            worker->failed_starts = WORKER_START_ATTEMPTS - 1;
        return;
    }
    take_device(worker, &message->device);
    worker->is_device_known = true;
    pin_device(worker);
    worker->beats_missed = 0; /* they counted for the hello */
    recovery_reach(&worker->recovery, RECOVERY_STARTED, clock_now_ns());
    worker->state = WORKER_RESTORING;
    worker->operations->started(worker);
}

void worker_answered(struct worker_process *worker)
{
    if (worker->answers_expected > 0)
        worker->answers_expected--;
    if (worker->restoring > 0)
        worker->restoring--;
    if (worker->state == WORKER_RESTORING && worker->restoring == 0 && !worker->is_lost) {
        worker->state = WORKER_READY;
        recovery_reach(&worker->recovery, RECOVERY_RESTORED, clock_now_ns());
        worker_spare_start(worker); /* first: `ready` commits what may wait for it */
        worker->operations->ready(worker);
    }
}

/* --- beginning and end ----------------------------------------------------------------------- */

int worker_init(struct worker_process *worker,
                uv_loop_t *loop,
                const char *selector,
                const struct worker_operations *operations)
{
    *worker = (struct worker_process){
        .operations = operations,
        .loop = loop,
        .selector = selector,
        .link = LINK_NULL,
        .next_id = 1,
    };
    list_init(&worker->memories);
    list_init(&worker->outputs);
    (void)uv_timer_init(loop, &worker->timer);
    worker->handles = &worker->places[0];
    for (size_t i = 0; i < ARRAY_SIZE(worker->places); i++)
        worker->places[i].worker = worker;
    worker_pump_init(worker);
    worker_watch_init(worker);
    worker_spare_init(worker);
    return 0;
}

static void lasting_closed(uv_handle_t *handle)
{
    struct worker_process *worker = handle->data;

    if (--worker->open_handles == 0)
        closed_for_good(worker);
}

static void lasting_close(struct worker_process *worker)
{
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&worker->timer,   (uv_handle_t *)&worker->watchdog,
        (uv_handle_t *)&worker->prepare, (uv_handle_t *)&worker->check,
        (uv_handle_t *)&worker->idle,    (uv_handle_t *)&worker->spare.timer,
    };

    worker->open_handles = ARRAY_SIZE(handles);
    for (size_t i = 0; i < ARRAY_SIZE(handles); i++) {
        handles[i]->data = worker;
        uv_close(handles[i], lasting_closed);
    }
}

void worker_end_if_idle(struct worker_process *worker)
{
    bool is_idle =
        worker->pid == 0 && !worker->handles->is_open && worker->spare.state == SPARE_NONE;

    if (worker->state == WORKER_QUITTING && is_idle && worker->open_handles == 0)
        lasting_close(worker);
}

static void patience_callback(uv_timer_t *timer)
{
    struct worker_process *worker = container_of(timer, struct worker_process, timer);

    log_warning("worker=%" PRId64 " state=quitting seconds=%d, killing it", worker->pid,
                WORKER_QUIT_MS / 1000);
    (void)uv_process_kill(&worker->handles->process, SIGKILL);
}

void worker_close(struct worker_process *worker)
{
    struct link_message quit = {.kind = LINK_QUIT};

    worker->state = WORKER_QUITTING;
    (void)uv_timer_stop(&worker->timer);
    worker_spare_end(worker);
    if (worker->pid != 0) {
        (void)worker_send(worker, &quit, -1);
        (void)uv_timer_start(&worker->timer, patience_callback, WORKER_QUIT_MS, 0);
    }
    worker_end_if_idle(worker);
}

void worker_deinit(struct worker_process *worker)
{
    assert(list_is_empty(&worker->memories));
    link_deinit(&worker->link);
    worker->link = LINK_NULL;
}
