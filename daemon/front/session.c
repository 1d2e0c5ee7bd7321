#include "session.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include "../limits.h"
#include "handlers.h"
#include "parked.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- answers --------------------------------------------------------------------------------- */

static void update_hold(struct session *session)
{
    bool is_full = session->in_flight >= LIMIT_IN_FLIGHT || !list_is_empty(&session->parked);

    if (socket_is_open(&session->socket))
        socket_hold(&session->socket, is_full);
}

void session_answer(struct session *session, struct message *message, int fd)
{
    assert(session->in_flight > 0);
    session->in_flight--;
    socket_send(&session->socket, message, fd);
    update_hold(session);
}

static void answer_encoded(struct session *session, int r, struct message *message, int fd)
{
    if (r < 0) {
        session->in_flight--;
        fd_closep(&fd);
        session_close(session, "no memory for an answer");
        return;
    }
    session_answer(session, message, fd);
}

void session_answer_empty(struct session *session, uint32_t id)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    int r = reply_encode_empty(id, &message);

    answer_encoded(session, r, &message, -1);
}

void session_answer_fault(struct session *session, uint32_t id, const struct fault *fault)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    int r = reply_encode_fault(id, fault, &message);

    answer_encoded(session, r, &message, -1);
}

/* To each request of the message. */
static void refuse_all(struct session *session, const struct request *request, struct fault *fault)
{
    for (size_t i = 0; i < request_count(request); i++)
        session_answer_fault(session, request->id + (uint32_t)i, fault);
}

void session_answer_buffer(struct session *session,
                           uint32_t id,
                           const struct reply_buffer *reply,
                           int fd)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    int r = reply_encode_buffer(id, reply, fd >= 0 ? 1 : 0, &message);

    answer_encoded(session, r, &message, fd);
}

/* --- requests -------------------------------------------------------------------------------- */

static int hello(struct session *session, const struct request *request, struct fault *ret_fault)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request_hello *body = &request->body.hello;
    const struct worker_process *worker = &session->server->worker;
    struct reply_hello reply = {
        .version = PROTOCOL_VERSION,
        .daemon = GEMMD_VERSION,
        .length_max = FRAME_LENGTH_MAX,
        .in_flight_max = LIMIT_IN_FLIGHT,
        .ready = worker_is_ready(worker),
    };
    int r;

    if (body->version < 1) {
        (void)fault_set(ret_fault, STATUS_UNSUPPORTED, "version",
                        "version is %u; this daemon speaks 1 to %d", body->version,
                        PROTOCOL_VERSION);
        return SESSION_E_FAULT;
    }
    if (worker->is_device_known) {
        (void)snprintf(reply.device, sizeof(reply.device), "%s", worker->device.name);
        (void)snprintf(reply.device_kind, sizeof(reply.device_kind), "%s",
                       worker->device.kind == LINK_DEVICE_CUDA ? "cuda" : "cpu");
    }
    r = reply_encode_hello(request->id, &reply, &message);
    if (r < 0)
        return error_trace(r);
    session->has_hello = true;
    (void)uv_timer_stop(&session->timer);
    log_debug("session pid=%d uid=%u client=\"%.*s\"", (int)session->pid, (unsigned)session->uid,
              (int)MIN(body->client_size, 64u), body->client ? body->client : "");
    session_answer(session, &message, -1);
    return 0;
}

static int handle(struct session *session, const struct request *request, int *fds, struct fault *f)
{
    switch (request->method) {
    case METHOD_HELLO:
        return hello(session, request, f);
    case METHOD_GEMM:
        return product_request(session, request, f);
    case METHOD_GEMM_MANY:
        return product_many(session, request, f);
    case METHOD_CANCEL:
        return cancel_request(session, request, f);
    case METHOD_EXPLAIN:
        return product_explain(session, request, f);
    case METHOD_TUNE:
        return product_tune(session, request, f);
    case METHOD_BUFFER_CREATE:
        return allocate_create(session, request, f);
    case METHOD_BUFFER_REGISTER:
        return allocate_register(session, request, &fds[0], f);
    case METHOD_BUFFER_IMPORT:
        return allocate_import(session, request, &fds[0], f);
    case METHOD_BUFFER_OPEN:
        return allocate_open(session, request, f);
    case METHOD_BUFFER_FREE:
        return allocate_free(session, request, f);
    case METHOD_BUFFER_FREEZE:
        return allocate_freeze(session, request, f);
    case METHOD_BUFFER_EXPORT:
        return allocate_export(session, request, f);
    case METHOD_BUFFER_WRITE:
        return transfer_write(session, request, f);
    case METHOD_BUFFER_READ:
        return transfer_read(session, request, f);
    case METHOD_BUFFER_COPY:
        return transfer_copy(session, request, f);
    case METHOD_STATUS:
        return report_status(session, request, f);
    case METHOD_STATS:
        return report_stats(session, request, f);
    case METHOD_CACHE_LIST:
    case METHOD_CACHE_VERIFY:
    case METHOD_CACHE_PREWARM:
    case METHOD_CACHE_PRUNE:
        return cache_request(session, request, f);
    case METHOD_COUNT:
        break;
    }
    (void)fault_set(f, STATUS_NOT_FOUND, "method", "there is no such method");
    return SESSION_E_FAULT;
}

static bool is_answered_while_draining(enum method method)
{
    return method == METHOD_HELLO || method == METHOD_STATUS || method == METHOD_STATS ||
           method == METHOD_BUFFER_FREE || method == METHOD_CANCEL;
}

/* What holds for every method. */
static enum status check_state(const struct session *session,
                               const struct request *request,
                               size_t n_fds,
                               struct fault *ret_fault)
{
    size_t wanted = request_descriptors(request);

    if (!session->has_hello && request->method != METHOD_HELLO)
        return fault_set(ret_fault, STATUS_PROTOCOL, "", "%s came before hello",
                         method_name(request->method));
    if (n_fds != wanted)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "fd",
                         "%zu descriptors came with %s; it takes %zu", n_fds,
                         method_name(request->method), wanted);
    if (session->server->state != SERVER_RUNNING && !is_answered_while_draining(request->method))
        return fault_set(ret_fault, STATUS_SHUTTING_DOWN, "", "%s",
                         status_meaning(STATUS_SHUTTING_DOWN));
    return STATUS_OK;
}

static void serve(struct session *session, const struct request *request, int *fds, size_t n_fds)
{
    struct fault fault;
    int r;

    if (check_state(session, request, n_fds, &fault) != STATUS_OK) {
        refuse_all(session, request, &fault);
        return;
    }
    r = handle(session, request, fds, &fault);
    if (r == SESSION_E_FAULT)
        session_answer_fault(session, request->id, &fault);
    else if (r < 0) {
        session->in_flight--;
        session_close(session, "an error of the daemon");
    }
}

/* Only hello and the reports make sense without a device. Behind a parked request all wait, so
 * that a connection's requests keep their order. */
static bool must_park(const struct session *session, const struct request *request)
{
    bool needs_device = request->method != METHOD_HELLO && request->method != METHOD_STATUS &&
                        request->method != METHOD_STATS;

    return session->has_hello && session->server->state == SERVER_RUNNING &&
           ((needs_device && !session->server->worker.is_device_known) ||
            !list_is_empty(&session->parked));
}

static void
receive(struct session *session, uint8_t *payload, size_t size, int *fds, size_t n_fds, bool again)
{
    cleanup(request_deinit) struct request request = {.method = METHOD_COUNT};
    struct fault fault;
    int r = request_decode(payload, size, &request, &fault);

    if (r == REQUEST_E_MALFORMED || r < 0) {
        session->server->stats.violations++;
        socket_refuse(&session->socket, "the message is not a request");
        return;
    }
    if (!again) {
        session->in_flight += (uint32_t)request_count(&request);
        session->server->stats.requests += request_count(&request);
    }
    if (r == REQUEST_E_REFUSED) {
        session_answer_fault(session, request.id, &fault);
    } else if (!again && must_park(session, &request)) {
        r = parked_new(session, payload, size, fds, n_fds, &fault);
        if (r == SESSION_E_FAULT)
            refuse_all(session, &request, &fault);
        else if (r < 0)
            session_close(session, "no memory to park a request");
        else
            parked_watch(session, &request);
    } else {
        serve(session, &request, fds, n_fds);
    }
    update_hold(session);
}

void session_unpark(struct session *session)
{
    struct list parked;

    list_init(&parked);
    while (!list_is_empty(&session->parked)) {
        struct list *first = session->parked.next;

        list_unlink(first);
        list_append(&parked, first);
    }
    list_for_each_safe(cursor, following, &parked)
    {
        struct parked *one = container_of(cursor, struct parked, link);

        session->received_ns = one->received_ns;
        session->answered_ns = one->answered_ns;
        if (socket_is_open(&session->socket))
            receive(session, one->payload, one->size, one->fds, one->n_fds, /* again= */ true);
        (void)parked_free(one);
    }
    update_hold(session);
}

uint64_t session_expire(struct session *session, uint64_t now_ns)
{
    uint64_t next;

    if (list_is_empty(&session->parked))
        return 0;
    next = parked_expire(session, now_ns);
    update_hold(session);
    return next;
}

/* --- life ------------------------------------------------------------------------------------ */

static void
frame_callback(struct socket *socket, uint8_t *payload, size_t size, int *fds, size_t n_fds)
{
    struct session *session = container_of(socket, struct session, socket);

    session->received_ns = clock_now_ns();
    receive(session, payload, size, fds, n_fds, /* again= */ false);
}

static void timer_closed(uv_handle_t *handle)
{
    struct session *session = handle->data;

    if (--session->open_timers == 0)
        free(session);
}

static void timers_close(struct session *session)
{
    uv_handle_t *const handles[] = {(uv_handle_t *)&session->timer,
                                    (uv_handle_t *)&session->unread};

    session->open_timers = ARRAY_SIZE(handles);
    for (size_t i = 0; i < ARRAY_SIZE(handles); i++) {
        handles[i]->data = session;
        uv_close(handles[i], timer_closed);
    }
}

static void charges_release(struct session *session)
{
    charge_release(&session->charge_frames);
    charge_release(&session->charge_outputs);
    charge_release(&session->charge_fds);
    charge_release(&session->charge);
}

static void socket_closed(struct socket *socket, const char *reason)
{
    struct session *session = container_of(socket, struct session, socket);
    struct server *server = session->server;

    log_debug("session pid=%d uid=%u state=closed reason=\"%s\"", (int)session->pid,
              (unsigned)session->uid, reason ? reason : "");
    session->is_gone = true;
    server->stats.received_bytes += socket->received_bytes;
    server->stats.sent_bytes += socket->sent_bytes;
    allocate_forget(server, session);
    cache_forget(server, session);
    tuner_forget(&server->tuner, session);
    queue_abandon(&server->queue, &session->stream);
    while (!list_is_empty(&session->parked))
        (void)parked_free(container_of(session->parked.next, struct parked, link));
    handles_deinit(&session->handles);
    charges_release(session);
    list_unlink(&session->link);
    server->session_count--;
    timers_close(session);
}

static void hello_late(uv_timer_t *timer)
{
    session_close(container_of(timer, struct session, timer), "no hello came");
}

/* Half a frame, then silence: it holds memory and a place in the daemon for nothing. Progress,
 * however slow, is let be. */
static void frame_late(uv_timer_t *timer)
{
    struct session *session = container_of(timer, struct session, timer);

    if (!socket_has_partial_frame(&session->socket))
        return;
    /* While we do not read, the silence is ours. */
    if (session->socket.received_bytes == session->partial_bytes &&
        socket_is_reading(&session->socket)) {
        session->server->stats.violations++;
        session_close(session, "the rest of a frame did not come");
        return;
    }
    session->partial_bytes = session->socket.received_bytes;
    (void)uv_timer_start(timer, frame_late, LIMIT_PARTIAL_FRAME_SECONDS * 1000, 0);
}

static void partial_callback(struct socket *socket)
{
    struct session *session = container_of(socket, struct session, socket);

    /* Before hello its own timer runs, and is shorter. */
    if (!session->has_hello || uv_is_active((uv_handle_t *)&session->timer))
        return;
    session->partial_bytes = socket->received_bytes;
    (void)uv_timer_start(&session->timer, frame_late, LIMIT_PARTIAL_FRAME_SECONDS * 1000, 0);
}

static const struct socket_operations socket_operations = {
    .frame = frame_callback,
    .partial = partial_callback,
    .holds = session_holds,
    .stalled = session_stalled,
    .closed = socket_closed,
};

/* The peer is told why, without waiting for it: it has asked nothing yet. */
static void refuse(int fd, const struct fault *fault)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;

    if (reply_encode_fault(REPLY_ID_LAST, fault, &message) == 0)
        (void)!write(fd, message.bytes, message.size);
}

/* What a connection costs from the start, and what it may come to hold. */
static int charge_session(struct session *session, struct fault *ret_fault)
{
    struct quota *quota = &session->server->quota;
    const uid_t uid = session->uid;
    int r = quota_charge(quota, uid, QUOTA_CLIENTS, 1, &session->charge, ret_fault);

    if (r == 0)
        r = quota_charge(quota, uid, QUOTA_DESCRIPTORS, 1, &session->charge_fds, ret_fault);
    if (r == 0)
        r = quota_charge(quota, uid, QUOTA_MESSAGE_BYTES, 0, &session->charge_frames, ret_fault);
    if (r == 0)
        r = quota_charge(quota, uid, QUOTA_OUTPUT_BYTES, 0, &session->charge_outputs, ret_fault);
    return r;
}

static int admit(struct session *session, int fd)
{
    struct server *server = session->server;
    struct fault fault;
    int r;

    if (server->session_count >= LIMIT_CLIENTS) {
        (void)fault_set(&fault, STATUS_LIMIT, "", "%d connections are open; the limit is %d",
                        LIMIT_CLIENTS, LIMIT_CLIENTS);
        r = QUOTA_E_LIMIT;
    } else {
        r = charge_session(session, &fault);
    }
    if (r == QUOTA_E_LIMIT) {
        server->stats.refused_connections++;
        refuse(fd, &fault);
    }
    return r;
}

static void session_freep(struct session **session)
{
    if (*session)
        charges_release(*session);
    free(*session);
}

int session_new(struct server *server, int fd, uid_t uid, gid_t gid, pid_t pid)
{
    cleanup(fd_closep) int peer = fd;
    cleanup(session_freep) struct session *session = calloc(1, sizeof(*session));
    int r;

    if (!session)
        return error_origin(-ENOMEM);
    session->server = server;
    session->uid = uid;
    session->gid = gid;
    session->pid = pid;
    r = admit(session, peer);
    if (r == QUOTA_E_LIMIT)
        return 0;
    if (r == 0)
        r = socket_init(&session->socket, &server->loop, peer, &socket_operations);
    if (r < 0)
        return error_trace(r);
    peer = -1;
    stream_init(&session->stream);
    list_init(&session->parked);
    list_append(&server->sessions, &session->link);
    server->session_count++;
    server->stats.connections++;
    (void)uv_timer_init(&server->loop, &session->timer);
    (void)uv_timer_init(&server->loop, &session->unread);
    (void)uv_timer_start(&session->timer, hello_late, LIMIT_HELLO_SECONDS * 1000, 0);
    session = NULL; /* the server's list has it */
    return 0;
}

void session_close(struct session *session, const char *reason)
{
    if (socket_is_open(&session->socket))
        log_debug("session pid=%d uid=%u state=closing reason=\"%s\"", (int)session->pid,
                  (unsigned)session->uid, reason);
    socket_close(&session->socket, reason);
}
