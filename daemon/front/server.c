#include "server.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include "../roles.h"
#include "handlers.h"
#include "notify.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DRAIN_LOOK_MS   5              /* while draining: is everything answered? */
#define DRAIN_STEP_NS   100000000ull   /* between two looks; a machine that stood still counts so */
#define DRAIN_LINGER_NS 2000000000ull  /* for peers that do not read their last answers */
#define DRAIN_JOBS_NS   30000000000ull /* for jobs under way: systemd waits 90 s by default */

/* --- the worker's events --------------------------------------------------------------------- */

static struct server *server_of(struct worker_process *worker)
{
    return container_of(worker, struct server, worker);
}

static void note_device(struct server *server)
{
    const struct link_device *device = &server->worker.device;

    server->device = (struct plan_device){
        .is_cpu = device->kind != LINK_DEVICE_CUDA,
        .arch = config_arch_for_device(device->compute_major, device->compute_minor),
        .multiprocessors = device->multiprocessors,
        .shared_memory_per_block = device->shared_memory_per_block,
        .l2_cache = device->l2_cache,
        .clock_hz = device->clock_khz * 1e3,
        /* Two transfers per clock. */
        .memory_bytes_per_second = device->memory_clock_khz * 2e3 * device->memory_bus_bits / 8,
    };
    server->copies.limit = device->memory / COPIES_FRACTION;
    plans_forget(&server->plans);
    tuner_note_device(&server->tuner, device);
}

static void worker_started(struct worker_process *worker)
{
    struct server *server = server_of(worker);

    note_device(server);
    if (worker->starts == 1 && worker->device.note[0] != '\0')
        log_warning("device=cpu note=\"%s\"", worker->device.note);
    kernels_restore(&server->kernels);
}

static void announce(struct server *server)
{
    if (server->is_announced)
        return;
    server->is_announced = true;
    notify_ready(server->options->ready_fd);
    log_info("state=ready version=%s device=\"%s\" driver=\"%s\" socket=%s", GEMMD_VERSION,
             server->worker.device.name, server->worker.device.driver, server->listener.address);
}

static void log_recovery(const struct worker_process *worker)
{
    const struct recovery *recovery = &worker->recovery;

    log_info("worker=%" PRId64 " state=ready starts=%" PRIu64
             " noticed_ms=%.1f ended_ms=%.1f started_ms=%.1f restored_ms=%.1f",
             worker->pid, worker->starts, recovery_seconds(recovery, RECOVERY_NOTICED) * 1e3,
             recovery_seconds(recovery, RECOVERY_ENDED) * 1e3,
             recovery_seconds(recovery, RECOVERY_STARTED) * 1e3,
             recovery_seconds(recovery, RECOVERY_RESTORED) * 1e3);
}

static void worker_ready(struct worker_process *worker)
{
    struct server *server = server_of(worker);

    if (worker->starts > 1)
        log_recovery(worker);
    if (worker->device.kind == LINK_DEVICE_CUDA)
        compiler_warm(server->compiler);
    announce(server);
    list_for_each_safe(cursor, following, &server->sessions)
    {
        session_unpark(container_of(cursor, struct session, link));
    }
    queue_review(&server->queue);
}

static void worker_completed(struct worker_process *worker,
                             const struct gemmd_completion *completion)
{
    queue_completed(&server_of(worker)->queue, completion);
}

static enum worker_verdict worker_judge(struct worker_process *worker)
{
    return queue_judge(&server_of(worker)->queue);
}

static void worker_mapped(struct worker_process *worker)
{
    queue_review(&server_of(worker)->queue);
}

static void worker_covered(struct worker_process *worker)
{
    queue_advance(&server_of(worker)->queue);
}

static void worker_loaded(struct worker_process *worker, uint64_t kernel, const struct fault *fault)
{
    kernels_loaded(&server_of(worker)->kernels, kernel, fault);
}

static void worker_died(struct worker_process *worker, uint64_t taken)
{
    struct server *server = server_of(worker);

    kernels_forget(&server->kernels);
    queue_worker_died(&server->queue, taken);
    deadline_callback(&server->deadline); /* of what was committed and had not begun */
}

static void kernels_changed(struct kernels *kernels)
{
    queue_review(&container_of(kernels, struct server, kernels)->queue);
}

/* --- the end --------------------------------------------------------------------------------- */

static void close_if_done(struct server *server);

static void worker_closed(struct worker_process *worker)
{
    struct server *server = server_of(worker);

    server->is_worker_closed = true;
    queue_end(&server->queue);
    close_if_done(server);
}

static void compiler_closed(void *context)
{
    struct server *server = context;

    server->is_compiler_closed = true;
    close_if_done(server);
}

/* Worker and compiler are gone: nothing will finish any more. The rest are our own handles; the
 * loop ends when the last of them and of the sessions is closed. */
static void close_if_done(struct server *server)
{
    if (!server->is_worker_closed || !server->is_compiler_closed)
        return;
    uv_close((uv_handle_t *)&server->terminate, NULL);
    uv_close((uv_handle_t *)&server->interrupt, NULL);
    uv_close((uv_handle_t *)&server->reload, NULL);
    uv_close((uv_handle_t *)&server->drain, NULL);
    uv_close((uv_handle_t *)&server->deadline, NULL);
    tuner_close(&server->tuner);
}

static void close_all(struct server *server)
{
    if (server->state == SERVER_CLOSING)
        return;
    server->state = SERVER_CLOSING;
    (void)uv_timer_stop(&server->drain);
    list_for_each(cursor, &server->sessions)
    {
        session_close(container_of(cursor, struct session, link), "the daemon ends");
    }
    worker_close(&server->worker);
    compiler_close(server->compiler, compiler_closed, server);
}

/* For somebody: the daemon's own tuning keeps nobody waiting, and is not waited for. */
static bool has_work(const struct server *server)
{
    list_for_each(cursor, &server->sessions)
    {
        if (container_of(cursor, struct session, link)->in_flight > 0)
            return true;
    }
    return server->queue.count > (tuner_works_for_nobody(&server->tuner) ? 1 : 0);
}

static bool is_flushed(const struct server *server)
{
    list_for_each(cursor, &server->sessions)
    {
        if (container_of(cursor, struct session, link)->socket.queue_bytes > 0)
            return false;
    }
    return true;
}

/* First everything is answered, then the answers are read; each has a time of its own. */
static void drain_look(uv_timer_t *timer)
{
    struct server *server = container_of(timer, struct server, drain);
    uint64_t now = clock_now_ns();
    uint64_t step = MIN(now - steal(server->looked_ns, now), DRAIN_STEP_NS);
    bool is_working = has_work(server), is_patient;

    server->drained_ns += step;
    server->unread_ns = is_working ? 0 : server->unread_ns + step;
    is_patient =
        is_working ? server->drained_ns < DRAIN_JOBS_NS : server->unread_ns < DRAIN_LINGER_NS;
    if ((is_working || !is_flushed(server)) && is_patient)
        return;
    close_all(server);
}

static void drain_begin(struct server *server)
{
    if (server->state != SERVER_RUNNING)
        return;
    server->state = SERVER_DRAINING;
    server->looked_ns = clock_now_ns();
    notify_stopping();
    log_info("state=draining jobs=%" PRIu64 " clients=%u", server->queue.count,
             server->session_count);
    if (server->is_listening)
        listener_close(&server->listener, NULL);
    server->is_listening = false;
    tuner_stop(&server->tuner);
    /* What waits for a first worker may wait long: it is answered now. */
    list_for_each_safe(cursor, following, &server->sessions)
    {
        session_unpark(container_of(cursor, struct session, link));
    }
    (void)uv_timer_start(&server->drain, drain_look, 0, DRAIN_LOOK_MS);
}

static void signal_callback(uv_signal_t *handle, int signal_number)
{
    struct server *server = handle->data;

    (void)signal_number;
    drain_begin(server);
}

/* What the file says of uids holds from now on; a wrong file changes nothing. */
static void reload_callback(uv_signal_t *handle, int signal_number)
{
    struct server *server = handle->data;
    struct quota_rules rules;
    char message[OPTIONS_MESSAGE_MAX];

    (void)signal_number;
    if (options_reload(server->options, &rules, message) != 0) {
        log_error("reload=failed reason=\"%s\"", message);
        return;
    }
    quota_set_rules(&server->quota, &rules);
    log_info("reload=done uids=%zu", rules.count);
}

/* No worker, and none to come: what waits is answered by closing, the reason is in the log. */
static void worker_failed(struct worker_process *worker, const struct fault *fault)
{
    struct server *server = server_of(worker);

    log_error("device=%s state=failed status=%s reason=\"%s\"", worker->selector,
              status_name(fault->status), fault->message);
    server->exit_status = 1;
    if (server->is_listening)
        listener_close(&server->listener, NULL);
    server->is_listening = false;
    close_all(server);
}

/* --- the beginning --------------------------------------------------------------------------- */

static const struct worker_operations worker_operations = {
    .started = worker_started,
    .ready = worker_ready,
    .completed = worker_completed,
    .judge = worker_judge,
    .covered = worker_covered,
    .mapped = worker_mapped,
    .loaded = worker_loaded,
    .died = worker_died,
    .failed = worker_failed,
    .closed = worker_closed,
};

static void listener_accepted(struct listener *listener, int fd, uid_t uid, gid_t gid, pid_t pid)
{
    struct server *server = container_of(listener, struct server, listener);

    if (session_new(server, fd, uid, gid, pid) < 0)
        log_warning("pid=%d uid=%u state=refused reason=\"no memory\"", (int)pid, (unsigned)uid);
}

static const struct listener_operations listener_operations = {.accepted = listener_accepted};

static void init_handles(struct server *server)
{
    (void)uv_signal_init(&server->loop, &server->terminate);
    (void)uv_signal_init(&server->loop, &server->interrupt);
    (void)uv_signal_init(&server->loop, &server->reload);
    (void)uv_timer_init(&server->loop, &server->drain);
    (void)uv_timer_init(&server->loop, &server->deadline);
    server->terminate.data = server;
    server->interrupt.data = server;
    server->reload.data = server;
    (void)uv_signal_start(&server->terminate, signal_callback, SIGTERM);
    (void)uv_signal_start(&server->interrupt, signal_callback, SIGINT);
    (void)uv_signal_start(&server->reload, reload_callback, SIGHUP);
}

static int init_compiler(struct server *server)
{
    const struct options *options = server->options;
    struct compiler_options compiler = {
        .loop = &server->loop,
        .program = "/proc/self/exe",
        .kernels_directory = options->kernels,
        .children = (unsigned)options->compilers,
        .time_limit_seconds = options->compile_seconds,
        .memory_limit_bytes = options->compile_bytes,
        .idle_seconds = 10,
    };
    int r = cache_new(&server->cache, options->cache, options->cache_bytes);

    if (r < 0)
        return error_trace(r);
    compiler.cache = server->cache;
    r = compiler_new(&server->compiler, &compiler);
    return error_trace(r);
}

/* Half of what this machine and process have, where that is less than the built-in limits say: one
 * uid can take neither all descriptors nor so much memory that the kernel would have to kill
 * somebody. */
static void fit_quota(struct quota *quota)
{
    uint64_t pages = (uint64_t)MAX(sysconf(_SC_PHYS_PAGES), 0);
    uint64_t bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit;

    quota_fit(quota, QUOTA_HOST_BYTES, bytes / 2);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    quota_fit(quota, QUOTA_DESCRIPTORS, limit.rlim_cur / 2);
    quota_fit(quota, QUOTA_BUFFERS, limit.rlim_cur / 4);
}

int server_new(struct server **ret_server, const struct options *options)
{
    struct server *server = calloc(1, sizeof(*server));
    int r;

    if (!server)
        return error_origin(-ENOMEM);
    server->options = options;
    server->started_ns = clock_now_ns();
    list_init(&server->sessions);
    list_init(&server->prewarms);
    quota_init(&server->quota);
    fit_quota(&server->quota);
    quota_set_rules(&server->quota, &options->rules);
    r = uv_loop_init(&server->loop);
    if (r == 0)
        r = init_compiler(server);
    if (r < 0) {
        free(server);
        return error_trace(r);
    }
    (void)worker_init(&server->worker, &server->loop, options->device, &worker_operations);
    server->worker.scratch = options->scratch_bytes;
    buffers_init(&server->buffers, &server->worker, &server->quota);
    staging_init(&server->staging, &server->worker);
    copies_init(&server->copies);
    kernels_init(&server->kernels, &server->worker, server->compiler, kernels_changed);
    queue_init(&server->queue, &server->worker, &server->stats, answer_job);
    server->queue.job_seconds = options->job_seconds;
    tuner_init(&server->tuner, &server->loop, options->tune, options->state);
    server->plans.tuning = &server->tuner.tuning;
    init_handles(server);
    server->listener = LISTENER_NULL;
    *ret_server = server;
    return 0;
}

/* Everything must be gone by now: the assertions of the parts are the leak test. */
struct server *server_free(struct server *server)
{
    if (!server)
        return NULL;
    tuner_deinit(&server->tuner);
    copies_end(&server->copies);
    buffers_end(&server->buffers);
    buffers_deinit(&server->buffers);
    staging_deinit(&server->staging);
    queue_deinit(&server->queue);
    kernels_deinit(&server->kernels);
    worker_deinit(&server->worker);
    server->compiler = compiler_free(server->compiler);
    server->cache = cache_free(server->cache);
    quota_deinit(&server->quota);
    free(server);
    return NULL;
}

static int listen_now(struct server *server)
{
    struct fault fault;
    int r = listener_open(&server->listener, &server->loop, server->options->socket,
                          server->options->mode, &listener_operations, &fault);

    if (r > 0)
        log_error("socket=%s state=failed reason=\"%s\"", server->options->socket, fault.message);
    server->is_listening = r == 0;
    return r;
}

int server_run(struct server *server)
{
    int r = listen_now(server);

    if (r == 0) {
        worker_start(&server->worker);
    } else {
        server->exit_status = 1;
        close_all(server);
    }
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    r = uv_loop_close(&server->loop);
    assert(r == 0);
    return server->exit_status;
}

static void server_freep(struct server **server)
{
    *server = server_free(*server);
}

/* Each buffer costs a descriptor here; the soft limit is often 1024. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int front_main(int argc, char **argv)
{
    cleanup(options_deinit) struct options options;
    cleanup(server_freep) struct server *server = NULL;
    char message[OPTIONS_MESSAGE_MAX];
    int r = options_parse(&options, argc, argv, message);

    switch (r) {
    case 0:
        break;
    case OPTIONS_E_HELP:
        options_print_help();
        return 0;
    case OPTIONS_E_VERSION:
        (void)printf("gemmd %s\n", GEMMD_VERSION);
        return 0;
    default:
        (void)fprintf(stderr, "gemmd: %s\n", message);
        return 2;
    }
    log_init("gemmd", options.log_level);
    (void)signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    r = server_new(&server, &options);
    if (r < 0)
        return 1;
    return server_run(server);
}
