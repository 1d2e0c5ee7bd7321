/*
 * Connections: connect, hello, close, errors, the descriptor for event loops.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../daemon/core/log.h"
#include "../daemon/core/socket_path.h"
#include "client_internal.h"

static_assert(sizeof(((gemmd_error *)0)->argument) == FAULT_ARGUMENT_MAX, "same text fits");
static_assert(sizeof(((gemmd_error *)0)->message) == FAULT_MESSAGE_MAX, "same text fits");

/* --- errors ---------------------------------------------------------------------------------- */

gemmd_status connection_fail(
    gemmd *connection, gemmd_status status, const char *argument, const char *format, ...)
{
    gemmd_error error = {.status = status};
    va_list args;

    /* By way of a copy: arguments may point into the error that is there. */
    (void)snprintf(error.argument, sizeof(error.argument), "%s", argument);
    va_start(args, format);
    (void)vsnprintf(error.message, sizeof(error.message), format, args);
    va_end(args);
    connection->error = error;
    return status;
}

gemmd_status connection_fail_fault(gemmd *connection, const struct fault *fault)
{
    return connection_fail(connection, (gemmd_status)fault->status, fault->argument, "%s",
                           fault->message);
}

gemmd_status connection_check(gemmd *connection)
{
    if (!connection)
        return GEMMD_INVALID_ARGUMENT;
    if (connection->pid != getpid())
        return connection_fail(connection, GEMMD_FORKED, "",
                               "the connection belongs to process %d, which forked this one; "
                               "connect anew",
                               (int)connection->pid);
    if (connection->is_lost)
        return connection_fail_fault(connection, &connection->lost);
    return GEMMD_OK;
}

const gemmd_error *gemmd_last_error(const gemmd *connection)
{
    static const gemmd_error none = {
        .status = GEMMD_INVALID_ARGUMENT,
        .argument = "connection",
        .message = "the connection is NULL",
    };

    return connection ? &connection->error : &none;
}

/* --- connect --------------------------------------------------------------------------------- */

/* CPUs this process may use, not those of the machine: a container of two must not spin. */
static bool enough_cpus_to_spin(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 3;
}

static gemmd *connection_new(void)
{
    gemmd *connection = calloc(1, sizeof(*connection));

    if (!connection)
        return NULL;
    log_silence();
    connection->channel = CHANNEL_NULL;
    connection->pid = getpid();
    connection->may_spin = enough_cpus_to_spin();
    connection->in_flight_max = 1; /* until the hello says more */
    connection->epoll_fd = connection->done_fd = -1;
    list_init(&connection->buffers);
    list_init(&connection->staging);
    return connection;
}

static void connection_freep(gemmd **connection)
{
    gemmd_close(*connection);
}

static gemmd_status take_hello(gemmd *connection, const struct call *call)
{
    struct reply_hello hello;

    if (reply_decode_hello(&call->reply, &hello))
        return call_malformed(connection, call);
    if (hello.version == 0 || hello.version > PROTOCOL_VERSION)
        return connection_fail(connection, GEMMD_UNSUPPORTED, "version",
                               "the daemon speaks protocol version %u; this library knows 1 to %d",
                               hello.version, PROTOCOL_VERSION);
    connection->hello = hello;
    connection->channel.length_max = MIN(MAX(hello.length_max, ENVELOPE_MAX), FRAME_LENGTH_MAX);
    connection->in_flight_max = MIN(MAX(hello.in_flight_max, 1), CALLS_MAX / 2);
    return GEMMD_OK;
}

static gemmd_status say_hello(gemmd *connection, int64_t deadline_ns)
{
    char client[96];
    struct request request = {.method = METHOD_HELLO};
    struct call *call;
    gemmd_status status;

    (void)snprintf(client, sizeof(client), "libgemmd " GEMMD_VERSION " (%s)",
                   program_invocation_short_name);
    request.body.hello = (struct request_hello){
        .version = PROTOCOL_VERSION,
        .client = client,
        .client_size = strlen(client),
    };
    status = call_start(connection, &request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    status = call_await(connection, call, deadline_ns);
    if (status == GEMMD_OK && connection->is_lost)
        status = connection_fail_fault(connection, &connection->lost);
    if (status == GEMMD_OK)
        status = call_check(connection, call, "hello");
    if (status == GEMMD_OK)
        status = take_hello(connection, call);
    (void)call_free(connection, call);
    return status;
}

static gemmd_status open_connection(gemmd *connection, const char *path)
{
    char buffer[SOCKET_PATH_MAX + 1];
    const char *where = socket_path_default(path, buffer);
    struct fault fault = FAULT_NONE;
    gemmd_status status;

    if (channel_connect(&connection->channel, where, CONNECT_TIMEOUT_MS, &fault) != STATUS_OK)
        return connection_fail_fault(connection, &fault);
    status = say_hello(connection, call_deadline(CONNECT_TIMEOUT_MS / 1e3));
    if (status == GEMMD_TIMEOUT)
        return connection_fail(connection, status, "socket",
                               "%s accepted the connection but did not answer in %d s", where,
                               CONNECT_TIMEOUT_MS / 1000);
    return status;
}

gemmd_status gemmd_connect(const char *path, gemmd **ret, gemmd_error *ret_error)
{
    cleanup(connection_freep) gemmd *connection = NULL;
    gemmd_status status;

    if (!ret)
        return GEMMD_INVALID_ARGUMENT;
    *ret = NULL;
    connection = connection_new();
    if (!connection) {
        if (ret_error)
            *ret_error = (gemmd_error){
                .status = GEMMD_OUT_OF_MEMORY,
                .message = "this process has no memory left",
            };
        return GEMMD_OUT_OF_MEMORY;
    }
    status = open_connection(connection, path);
    if (status != GEMMD_OK) {
        if (ret_error)
            *ret_error = connection->error;
        return status;
    }
    *ret = steal(connection, NULL);
    return GEMMD_OK;
}

/* Also in a forked child: it closes its own copies of the descriptors and tells nobody. The eventfd
 * goes first, since its counter is shared with the parent; being lost keeps frees from being sent.
 */
void gemmd_close(gemmd *connection)
{
    if (!connection)
        return;
    fd_closep(&connection->epoll_fd);
    fd_closep(&connection->done_fd);
    connection->is_lost = true;
    for (size_t i = 0; i < CALLS_MAX; i++)
        (void)call_free(connection, connection->calls[i]);
    staging_deinit(connection);
    list_for_each_safe(node, following, &connection->buffers)
        buffer_forget(container_of(node, gemmd_buffer, link));
    channel_deinit(&connection->channel);
    free(connection);
}

/* --- what the daemon said of itself ---------------------------------------------------------- */

uint64_t connection_inline_max(const gemmd *connection)
{
    uint32_t length = connection->channel.length_max;

    return MIN(INLINE_MAX, (uint64_t)(length - MIN(length, ENVELOPE_MAX)));
}

static void fill_info(const gemmd *connection, gemmd_info *ret)
{
    const struct reply_hello *hello = &connection->hello;

    static_assert(sizeof(ret->daemon) == sizeof(hello->daemon), "same text fits");
    static_assert(sizeof(ret->device) == sizeof(hello->device), "same text fits");
    static_assert(sizeof(ret->device_kind) == sizeof(hello->device_kind), "same text fits");
    memcpy(ret->daemon, hello->daemon, sizeof(ret->daemon));
    memcpy(ret->device, hello->device, sizeof(ret->device));
    memcpy(ret->device_kind, hello->device_kind, sizeof(ret->device_kind));
    ret->in_flight_max = connection->in_flight_max;
    ret->message_max = connection->channel.length_max;
    ret->ready = hello->ready;
}

gemmd_status gemmd_get_info(gemmd *connection, gemmd_info *ret)
{
    gemmd_status status = connection_check(connection);
    gemmd_info info = {.size = sizeof(info)};

    if (status != GEMMD_OK)
        return status;
    if (!ret || ret->size < sizeof(ret->size))
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "size",
                               "the info must be given and its size set to sizeof(gemmd_info), %zu",
                               sizeof(gemmd_info));
    if (!connection->hello.ready) {
        status = say_hello(connection, FOREVER);
        if (status != GEMMD_OK)
            return status;
    }
    fill_info(connection, &info);
    info.size = MIN(ret->size, sizeof(info));
    memcpy(ret, &info, info.size);
    return GEMMD_OK;
}

/* --- event loops ----------------------------------------------------------------------------- */

void connection_show_done(gemmd *connection)
{
    uint64_t one = 1;
    ssize_t n;

    if (connection->done_fd < 0 || connection->done_is_raised == (connection->jobs_done > 0))
        return;
    if (connection->done_is_raised)
        n = read(connection->done_fd, &one, sizeof(one));
    else
        n = write(connection->done_fd, &one, sizeof(one));
    /* A counter of 0 or 1 in non-blocking mode: neither call can fail. */
    assert(n == sizeof(one));
    connection->done_is_raised = !connection->done_is_raised;
}

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/*
 * The socket alone would not do: an answer that was taken in during another call leaves it silent.
 * The epoll set adds an eventfd that stays readable while answered jobs wait. Made when first asked
 * for, so that programs that only wait need one descriptor.
 */
int gemmd_fd(gemmd *connection)
{
    cleanup(fd_closep) int epoll_fd = -1;
    cleanup(fd_closep) int done_fd = -1;

    if (!connection || connection->pid != getpid())
        return -1;
    if (connection->epoll_fd >= 0)
        return connection->epoll_fd;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_fd < 0 || done_fd < 0 || watch(epoll_fd, connection->channel.fd) < 0 ||
        watch(epoll_fd, done_fd) < 0) {
        (void)connection_fail(connection, GEMMD_LIMIT, "", "no descriptor for event loops: %s",
                              strerror(errno));
        return -1;
    }
    connection->epoll_fd = steal(epoll_fd, -1);
    connection->done_fd = steal(done_fd, -1);
    connection_show_done(connection);
    return connection->epoll_fd;
}
