#include "session.h"

#include "../core/error.h"
#include "../core/log.h"
#include "../limits.h"
#include "handlers.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A frame that came before the device was known. */
struct parked {
    struct list link;
    struct charge charge;
    uint64_t received_ns;
    int fds[FRAME_FDS_MAX];
    size_t n_fds;
    size_t size;
    uint8_t payload[];
};

static void parked_free(struct parked *parked)
{
    list_unlink(&parked->link);
    for (size_t i = 0; i < parked->n_fds; i++)
        fd_closep(&parked->fds[i]);
    charge_release(&parked->charge);
    free(parked);
}

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
    case METHOD_BUFFER_CREATE:
        return allocate_create(session, request, f);
    case METHOD_BUFFER_REGISTER:
        return allocate_register(session, request, &fds[0], f);
    case METHOD_BUFFER_OPEN:
        return allocate_open(session, request, f);
    case METHOD_BUFFER_FREE:
        return allocate_free(session, request, f);
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
    size_t wanted = request->method == METHOD_BUFFER_REGISTER ? 1 : 0;

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

/* Its bytes are charged like staged ones, which they will become. */
static int park(struct session *session,
                const uint8_t *payload,
                size_t size,
                int *fds,
                size_t n_fds,
                struct fault *ret_fault)
{
    struct parked *parked = malloc(sizeof(*parked) + size);
    int r;

    if (!parked)
        return error_origin(-ENOMEM);
    *parked = (struct parked){.received_ns = session->received_ns, .n_fds = n_fds, .size = size};
    r = quota_charge(&session->server->quota, session->uid, QUOTA_INLINE_BYTES, size,
                     &parked->charge, ret_fault);
    if (r != 0) {
        free(parked);
        return r == QUOTA_E_LIMIT ? SESSION_E_FAULT : error_trace(r);
    }
    memcpy(parked->payload, payload, size);
    for (size_t i = 0; i < n_fds; i++)
        parked->fds[i] = steal(fds[i], -1);
    list_append(&session->parked, &parked->link);
    return 0;
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
        r = park(session, payload, size, fds, n_fds, &fault);
        if (r == SESSION_E_FAULT)
            refuse_all(session, &request, &fault);
        else if (r < 0)
            session_close(session, "no memory to park a request");
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
        if (socket_is_open(&session->socket))
            receive(session, one->payload, one->size, one->fds, one->n_fds, /* again= */ true);
        parked_free(one);
    }
    update_hold(session);
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
    struct session *session = container_of(handle, struct session, timer);

    free(session);
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
    queue_abandon(&server->queue, &session->stream);
    while (!list_is_empty(&session->parked))
        parked_free(container_of(session->parked.next, struct parked, link));
    handles_deinit(&session->handles);
    charge_release(&session->charge_messages);
    charge_release(&session->charge);
    list_unlink(&session->link);
    server->session_count--;
    uv_close((uv_handle_t *)&session->timer, timer_closed);
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

static bool memory_callback(struct socket *socket, size_t bytes)
{
    struct session *session = container_of(socket, struct session, socket);
    struct fault fault;

    return charge_resize(&session->charge_messages, bytes, &fault) == 0;
}

static const struct socket_operations socket_operations = {
    .frame = frame_callback,
    .partial = partial_callback,
    .memory = memory_callback,
    .closed = socket_closed,
};

/* The peer is told why, without waiting for it: it has asked nothing yet. */
static void refuse(int fd, const struct fault *fault)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;

    if (reply_encode_fault(REPLY_ID_LAST, fault, &message) == 0)
        (void)!write(fd, message.bytes, message.size);
}

static int admit(struct server *server, int fd, uid_t uid, struct charge *ret_charge)
{
    struct fault fault;
    int r;

    if (server->session_count >= LIMIT_CLIENTS) {
        (void)fault_set(&fault, STATUS_LIMIT, "", "%d connections are open; the limit is %d",
                        LIMIT_CLIENTS, LIMIT_CLIENTS);
        r = QUOTA_E_LIMIT;
    } else {
        r = quota_charge(&server->quota, uid, QUOTA_CLIENTS, 1, ret_charge, &fault);
    }
    if (r == QUOTA_E_LIMIT) {
        server->stats.refused_connections++;
        refuse(fd, &fault);
    }
    return r;
}

int session_new(struct server *server, int fd, uid_t uid, gid_t gid, pid_t pid)
{
    cleanup(fd_closep) int peer = fd;
    struct charge charge = CHARGE_NULL, messages = CHARGE_NULL;
    struct session *session;
    struct fault fault;
    int r = admit(server, peer, uid, &charge);

    if (r == QUOTA_E_LIMIT)
        return 0;
    if (r < 0)
        return error_trace(r);
    session = calloc(1, sizeof(*session));
    (void)quota_charge(&server->quota, uid, QUOTA_MESSAGE_BYTES, 0, &messages, &fault);
    r = session ? socket_init(&session->socket, &server->loop, peer, &socket_operations)
                : error_origin(-ENOMEM);
    if (r < 0) {
        free(session);
        charge_release(&messages);
        charge_release(&charge);
        return error_trace(r);
    }
    peer = -1;
    session->server = server;
    session->uid = uid;
    session->gid = gid;
    session->pid = pid;
    session->charge = charge;
    session->charge_messages = messages;
    stream_init(&session->stream);
    list_init(&session->parked);
    list_append(&server->sessions, &session->link);
    server->session_count++;
    server->stats.connections++;
    (void)uv_timer_init(&server->loop, &session->timer);
    (void)uv_timer_start(&session->timer, hello_late, LIMIT_HELLO_SECONDS * 1000, 0);
    return 0;
}

void session_close(struct session *session, const char *reason)
{
    if (socket_is_open(&session->socket))
        log_debug("session pid=%d uid=%u state=closing reason=\"%s\"", (int)session->pid,
                  (unsigned)session->uid, reason);
    socket_close(&session->socket, reason);
}
