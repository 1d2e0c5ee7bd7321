/*
 * Requests under way: ids, sending, taking answers in, waiting.
 *
 * Answers come in any order; each is copied out of the receive buffer into its call, where it stays
 * until somebody asks for it. While a message waits for room in the socket, answers are taken in,
 * since a daemon whose answers are not read stops reading.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "client_internal.h"

/* Of the daemon's last reply before it closes, which says why. */
#define FAREWELL_ID UINT32_MAX

/* A sleep and a wake-up take about 15 us on either side, a small product less. */
#define SPIN_NS 50000

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t call_deadline(double seconds)
{
    /* Anything beyond a century waits for ever, so the sum cannot overflow. */
    if (seconds < 0 || seconds > 3e9)
        return FOREVER;
    return now_ns() + (int64_t)(seconds * 1e9);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* --- table ----------------------------------------------------------------------------------- */

struct call *call_find(const gemmd *connection, uint64_t id)
{
    struct call *call = connection->calls[id % CALLS_MAX];

    return call && call->id == id ? call : NULL;
}

/* There are fewer calls than places, so a free one comes. 0 is no id: it would look like none. */
static uint32_t free_id(gemmd *connection)
{
    while (connection->next_id == 0 || connection->next_id == FAREWELL_ID ||
           connection->calls[connection->next_id % CALLS_MAX])
        connection->next_id++;
    return connection->next_id++;
}

/* The first of `count` free ids in a row; 0 when there are none. */
static uint32_t free_ids(gemmd *connection, size_t count)
{
    size_t row = 0;

    for (size_t looked_at = 0; row < count; looked_at++) {
        uint32_t id = connection->next_id++;

        if (looked_at == 2 * CALLS_MAX)
            return 0;
        row = id == 0 || id == FAREWELL_ID || connection->calls[id % CALLS_MAX] ? 0 : row + 1;
    }
    return connection->next_id - (uint32_t)count;
}

static struct call *call_new(gemmd *connection, enum method method, uint32_t id)
{
    struct call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->id = id;
    call->method = method;
    call->fd = -1;
    connection->calls[call->id % CALLS_MAX] = call;
    connection->unanswered++;
    return call;
}

struct call *call_free(gemmd *connection, struct call *call)
{
    if (!call)
        return NULL;
    connection->calls[call->id % CALLS_MAX] = NULL;
    if (!call->is_done)
        connection->unanswered--;
    if (call->is_job) {
        connection->jobs--;
        if (call->is_done)
            connection->jobs_done--;
        connection_show_done(connection);
    }
    if (call->block)
        staging_give(connection, call->block);
    fd_closep(&call->fd);
    free(call->result);
    free(call);
    return NULL;
}

static void set_done(gemmd *connection, struct call *call)
{
    call->is_done = true;
    connection->unanswered--;
    if (call->is_job) {
        connection->jobs_done++;
        connection_show_done(connection);
    }
}

void call_make_job(gemmd *connection, struct call *call)
{
    call->is_job = true;
    connection->jobs++;
    if (call->is_done) { /* answered while the request was still on its way out */
        connection->jobs_done++;
        connection_show_done(connection);
    }
}

/* Answers everything with DISCONNECTED. The stream is shut down so that the daemon drops the
 * session also when it was the daemon's framing that broke. */
static void lose(gemmd *connection, const char *reason)
{
    struct fault *lost = &connection->lost;

    connection->is_lost = true;
    (void)shutdown(connection->channel.fd, SHUT_RDWR);
    (void)fault_set(lost, STATUS_DISCONNECTED, "", "%s", reason);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        struct call *call = connection->calls[i];

        if (!call || call->is_done)
            continue;
        call->reply.fault = *lost;
        set_done(connection, call);
    }
}

/* While connecting the daemon's own code counts: LIMIT says that trying later may help. */
static void take_farewell(gemmd *connection, const struct fault *fault)
{
    char reason[FAULT_MESSAGE_MAX];
    bool is_connecting = connection->hello.version == 0;

    (void)snprintf(reason, sizeof(reason), "the daemon ended the connection: %.900s",
                   fault->message);
    lose(connection, reason);
    if (is_connecting && fault->status != STATUS_OK)
        connection->lost.status = fault->status;
}

/* --- answers --------------------------------------------------------------------------------- */

static bool keep_result(struct call *call, const struct reply *reply)
{
    call->reply = *reply;
    if (!reply->result)
        return true;
    call->result = malloc(MAX(reply->result_size, 1));
    if (!call->result)
        return false;
    memcpy(call->result, reply->result, reply->result_size);
    call->reply.result = call->result;
    return true;
}

static void answer(gemmd *connection, struct channel_frame *frame)
{
    struct reply reply;
    struct call *call;

    if (reply_decode(frame->payload, frame->size, &reply)) {
        lose(connection, "the daemon sent a message that is no reply");
        return;
    }
    if (reply.id == FAREWELL_ID) {
        take_farewell(connection, &reply.fault);
        return;
    }
    call = call_find(connection, reply.id);
    if (!call || call->is_done) {
        lose(connection, "the daemon answered a request that was not made");
        return;
    }
    if (!keep_result(call, &reply)) {
        lose(connection, "no memory for a reply of the daemon");
        return;
    }
    if (frame->n_fds > 0)
        call->fd = steal(frame->fds[0], -1);
    set_done(connection, call);
}

static void answer_all(gemmd *connection)
{
    struct channel_frame frame;
    int r = 0;

    while (!connection->is_lost && (r = channel_next(&connection->channel, &frame)) == 0) {
        answer(connection, &frame);
        for (size_t i = 0; i < frame.n_fds; i++)
            fd_closep(&frame.fds[i]);
    }
    if (r == CHANNEL_E_LOST)
        lose(connection, connection->channel.reason);
}

/* False when there was nothing to take in. */
static bool take_in(gemmd *connection)
{
    int r = channel_receive(&connection->channel);

    if (r == CHANNEL_E_AGAIN)
        return false;
    if (r == 0)
        answer_all(connection);
    else
        lose(connection, connection->channel.reason);
    return true;
}

void call_collect(gemmd *connection)
{
    while (!connection->is_lost && take_in(connection))
        continue;
}

/* --- waiting --------------------------------------------------------------------------------- */

/* True when something was taken in before the deadline. */
static bool await_input(gemmd *connection, int64_t deadline_ns)
{
    int64_t start = now_ns(), now = start;

    for (;;) {
        if (take_in(connection))
            return true;
        now = now_ns();
        if (now >= deadline_ns)
            return false;
        if (!connection->may_spin || now - start >= SPIN_NS)
            break;
        relax();
    }
    (void)channel_poll(&connection->channel, POLLIN,
                       deadline_ns == FOREVER ? -1 : deadline_ns - now);
    return take_in(connection) || now_ns() < deadline_ns;
}

gemmd_status call_await(gemmd *connection, struct call *call, int64_t deadline_ns)
{
    while (!call->is_done) {
        if (!await_input(connection, deadline_ns))
            return connection_fail(connection, GEMMD_TIMEOUT, "timeout_seconds",
                                   "the answer did not come in time; it is still under way");
    }
    return GEMMD_OK;
}

gemmd_status call_check(gemmd *connection, const struct call *call, const char *context)
{
    const struct fault *fault = &call->reply.fault;

    if (fault->status == STATUS_OK)
        return GEMMD_OK;
    if (!*context)
        return connection_fail_fault(connection, fault);
    return connection_fail(connection, (gemmd_status)fault->status, fault->argument, "%s: %s",
                           context, fault->message);
}

gemmd_status call_malformed(gemmd *connection, const struct call *call)
{
    return connection_fail(connection, GEMMD_PROTOCOL, "",
                           "the daemon's answer to %s is not what the protocol says",
                           method_name(call->method));
}

/* --- sending --------------------------------------------------------------------------------- */

static gemmd_status refused(gemmd *connection, int error)
{
    gemmd_status status = error == ETOOMANYREFS || error == ENOBUFS ? GEMMD_LIMIT : GEMMD_INTERNAL;

    return connection_fail(connection, status, "", "the request could not be sent: %s",
                           strerror(error));
}

static gemmd_status lost_status(gemmd *connection)
{
    return connection_fail_fault(connection, &connection->lost);
}

static gemmd_status send_message(gemmd *connection, const struct message *message, int fd)
{
    struct channel *channel = &connection->channel;
    size_t sent = 0, n;
    int r;

    while (sent < message->size) {
        r = channel_send(channel, message->bytes + sent, message->size - sent, sent ? -1 : fd, &n);
        if (r == 0) {
            sent += n;
        } else if (r == CHANNEL_E_AGAIN) {
            if (channel_poll(channel, POLLIN | POLLOUT, -1) & ~POLLOUT)
                (void)take_in(connection);
        } else if (r == CHANNEL_E_REFUSED && sent == 0) {
            return refused(connection, errno);
        } else {
            /* Answers that came before the end count. */
            call_collect(connection);
            if (!connection->is_lost)
                lose(connection, "the connection broke in the middle of a request");
        }
        if (connection->is_lost)
            return lost_status(connection);
    }
    return GEMMD_OK;
}

static gemmd_status await_room(gemmd *connection, size_t count)
{
    while (!connection->is_lost && connection->unanswered + count > connection->in_flight_max)
        (void)await_input(connection, FOREVER);
    return connection->is_lost ? lost_status(connection) : GEMMD_OK;
}

static gemmd_status no_memory(gemmd *connection)
{
    return connection_fail(connection, GEMMD_OUT_OF_MEMORY, "", "this process has no memory left");
}

static gemmd_status
encode(gemmd *connection, const struct request *request, int fd, struct message *ret_message)
{
    size_t limit = connection->channel.length_max;
    int r = request_encode(request, fd >= 0, ret_message);

    if (r < 0 && r != -EMSGSIZE)
        return no_memory(connection);
    if (r == -EMSGSIZE || ret_message->size > FRAME_HEADER_SIZE + limit)
        return connection_fail(connection, GEMMD_LIMIT, "",
                               "the request does not fit into a message of the daemon's %zu bytes",
                               limit);
    return GEMMD_OK;
}

gemmd_status
call_start(gemmd *connection, const struct request *request, int fd, struct call **ret_call)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    struct request numbered = *request;
    gemmd_status status;
    struct call *call;

    status = await_room(connection, 1);
    if (status != GEMMD_OK)
        return status;
    call = call_new(connection, request->method, free_id(connection));
    if (!call)
        return no_memory(connection);
    numbered.id = call->id;
    status = encode(connection, &numbered, fd, &message);
    if (status == GEMMD_OK)
        status = send_message(connection, &message, fd);
    if (status != GEMMD_OK) {
        (void)call_free(connection, call);
        return status;
    }
    *ret_call = call;
    return GEMMD_OK;
}

static gemmd_status
send_many(gemmd *connection, const struct request *request, struct call *calls[])
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    struct request numbered = *request;
    uint32_t id = free_ids(connection, request->body.many.count);
    gemmd_status status;

    if (id == 0)
        return connection_fail(connection, GEMMD_LIMIT, "count",
                               "no %zu ids in a row are free: wait for older products first",
                               request->body.many.count);
    numbered.id = id;
    for (uint32_t i = 0; i < request->body.many.count; i++) {
        calls[i] = call_new(connection, METHOD_GEMM, id + i);
        if (!calls[i])
            return no_memory(connection);
    }
    status = encode(connection, &numbered, -1, &message);
    return status == GEMMD_OK ? send_message(connection, &message, -1) : status;
}

gemmd_status call_start_many(gemmd *connection,
                             const struct request *request,
                             struct call *ret_calls[REQUEST_PRODUCTS_MAX])
{
    struct call *calls[REQUEST_PRODUCTS_MAX] = {0};
    gemmd_status status = await_room(connection, request->body.many.count);

    if (status == GEMMD_OK)
        status = send_many(connection, request, calls);
    for (size_t i = 0; i < request->body.many.count; i++) {
        if (status == GEMMD_OK)
            ret_calls[i] = calls[i];
        else
            (void)call_free(connection, calls[i]);
    }
    return status;
}

gemmd_status
call_perform(gemmd *connection, const struct request *request, int fd, struct call **ret_call)
{
    gemmd_status status;
    struct call *call;

    status = call_start(connection, request, fd, &call);
    if (status != GEMMD_OK)
        return status;
    (void)call_await(connection, call, FOREVER);
    status = call_check(connection, call, "");
    if (status != GEMMD_OK) {
        (void)call_free(connection, call);
        return status;
    }
    *ret_call = call;
    return GEMMD_OK;
}
