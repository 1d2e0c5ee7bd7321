/*
 * Sockets: connect, recvmsg, sendmsg, poll. See channel.h.
 *
 * The descriptor stays in blocking mode and every call passes MSG_DONTWAIT: a child process that
 * inherited it shares its flags, and must not be surprised.
 */
#include "channel.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../daemon/core/socket_path.h"

#define RECEIVE_MIN ((size_t)64 << 10) /* room for many small replies in one call */

static enum status
connect_fault(struct fault *ret_fault, enum status status, const char *path, const char *why)
{
    return fault_set(ret_fault, status, "socket", "cannot reach a daemon at %s: %s", path, why);
}

static enum status connect_errno(struct fault *ret_fault, const char *path, int error)
{
    switch (error) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTDIR:
        return connect_fault(ret_fault, STATUS_DISCONNECTED, path,
                             error == ECONNREFUSED ? "nobody listens there (is gemmd running?)"
                                                   : "there is no socket (is gemmd running?)");
    case EACCES:
    case EPERM:
        return connect_fault(ret_fault, STATUS_PERMISSION, path,
                             "no permission; reading and writing the socket must be allowed");
    case EAGAIN:
    case ETIMEDOUT:
        return connect_fault(ret_fault, STATUS_TIMEOUT, path, "it accepts no connection in time");
    case EPROTOTYPE:
    case ENOTSOCK:
        return connect_fault(ret_fault, STATUS_INVALID_ARGUMENT, path,
                             "what lies there is no stream socket");
    default:
        return connect_fault(ret_fault, STATUS_DISCONNECTED, path, strerror(error));
    }
}

/* connect(2) on a Unix socket honours the send timeout while the listener's queue is full. */
static int open_socket(const struct sockaddr_un *address, int timeout_ms)
{
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000L};
    struct timeval none = {0};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
        return -errno;
    do
        r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)) < 0)
        return -errno;
    return steal(fd, -1);
}

enum status
channel_connect(struct channel *channel, const char *path, int timeout_ms, struct fault *ret_fault)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    int fd;

    if (length == 0 || length > SOCKET_PATH_MAX)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "socket",
                         "the socket path has %zu bytes; 1 to %d are allowed", length,
                         SOCKET_PATH_MAX);
    memcpy(address.sun_path, path, length);
    fd = open_socket(&address, timeout_ms);
    if (fd < 0)
        return connect_errno(ret_fault, path, -fd);
    channel->fd = fd;
    return STATUS_OK;
}

void channel_deinit(struct channel *channel)
{
    for (size_t i = 0; i < channel->n_fds; i++)
        fd_closep(&channel->fds[i]);
    channel->n_fds = 0;
    fd_closep(&channel->fd);
    freep(&channel->bytes);
    channel->begin = channel->end = channel->capacity = 0;
}

static int lost(struct channel *channel, const char *reason)
{
    channel->reason = reason;
    return CHANNEL_E_LOST;
}

static int excess(struct channel *channel)
{
    return lost(channel, "the daemon sent more descriptors than its frames announce");
}

/* 0 and the header of the frame at `begin`, CHANNEL_E_AGAIN while it is incomplete. */
static int peek_header(struct channel *channel, struct frame_header *ret_header)
{
    int r;

    if (channel->end - channel->begin < FRAME_HEADER_SIZE)
        return CHANNEL_E_AGAIN;
    r = frame_decode(channel->bytes + channel->begin, channel->length_max, ret_header);
    return r ? lost(channel, frame_error(r)) : 0;
}

/* Room for the rest of the frame that is under way, so that a large one arrives in few calls. */
static int reserve(struct channel *channel)
{
    struct frame_header header;
    size_t capacity = MAX(channel->capacity, RECEIVE_MIN), wanted = RECEIVE_MIN;
    uint8_t *bytes;

    if (channel->begin > 0) {
        memmove(channel->bytes, channel->bytes + channel->begin, channel->end - channel->begin);
        channel->end -= channel->begin;
        channel->begin = 0;
    }
    if (peek_header(channel, &header) == 0)
        wanted = MAX(wanted, FRAME_HEADER_SIZE + (size_t)header.length);
    while (capacity < wanted || capacity == channel->end)
        capacity *= 2;
    if (capacity == channel->capacity)
        return 0;
    bytes = realloc(channel->bytes, capacity);
    if (!bytes)
        return lost(channel, "no memory for a reply of the daemon");
    channel->bytes = bytes;
    channel->capacity = capacity;
    return 0;
}

static int take_descriptors(struct channel *channel, struct msghdr *message)
{
    bool fits = true;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (channel->n_fds < CHANNEL_FDS_MAX)
                channel->fds[channel->n_fds++] = fd;
            else
                fits = !close(fd) && false;
        }
    }
    if (message->msg_flags & MSG_CTRUNC)
        return lost(channel, "descriptors of a reply were lost (limit of open files reached?)");
    return fits ? 0 : excess(channel);
}

int channel_receive(struct channel *channel)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
    struct iovec part;
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n;
    int r;

    r = reserve(channel);
    if (r)
        return r;
    part.iov_base = channel->bytes + channel->end;
    part.iov_len = channel->capacity - channel->end;
    do
        n = recvmsg(channel->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return CHANNEL_E_AGAIN;
    if (n <= 0)
        return lost(channel, "the daemon closed the connection");
    channel->end += (size_t)n;
    return take_descriptors(channel, &message);
}

int channel_next(struct channel *channel, struct channel_frame *ret_frame)
{
    struct frame_header header;
    int r;

    /* What was announced is taken; the next frame's would be taken for another's. */
    if (channel->begin == channel->end && channel->n_fds > 0)
        return excess(channel);
    r = peek_header(channel, &header);
    if (r)
        return r;
    if (channel->end - channel->begin < FRAME_HEADER_SIZE + (size_t)header.length)
        return header.n_fds < channel->n_fds ? excess(channel) : CHANNEL_E_AGAIN;
    if (header.n_fds > channel->n_fds)
        return lost(channel, "a reply came without its descriptors");

    *ret_frame = (struct channel_frame){
        .payload = channel->bytes + channel->begin + FRAME_HEADER_SIZE,
        .size = header.length,
        .n_fds = header.n_fds,
    };
    memcpy(ret_frame->fds, channel->fds, header.n_fds * sizeof(int));
    channel->n_fds -= header.n_fds;
    memmove(channel->fds, channel->fds + header.n_fds, channel->n_fds * sizeof(int));
    channel->begin += FRAME_HEADER_SIZE + (size_t)header.length;
    if (channel->begin == channel->end)
        channel->begin = channel->end = 0;
    return 0;
}

static void attach_descriptor(struct msghdr *message, void *control, size_t size, int fd)
{
    struct cmsghdr *c;

    memset(control, 0, size);
    message->msg_control = control;
    message->msg_controllen = size;
    c = CMSG_FIRSTHDR(message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
}

int channel_send(
    struct channel *channel, const uint8_t *bytes, size_t size, int fd, size_t *ret_sent)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;

    if (fd >= 0)
        attach_descriptor(&message, control, sizeof(control), fd);
    do
        n = sendmsg(channel->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0) {
        *ret_sent = (size_t)n;
        return 0;
    }
    switch (errno) {
    case EAGAIN:
        return CHANNEL_E_AGAIN;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return lost(channel, "the daemon closed the connection");
    default:
        return CHANNEL_E_REFUSED;
    }
}

int channel_poll(const struct channel *channel, short events, int64_t timeout_ns)
{
    struct pollfd polled = {.fd = channel->fd, .events = events};
    struct timespec limit = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};

    if (ppoll(&polled, 1, timeout_ns < 0 ? NULL : &limit, NULL) <= 0)
        return 0;
    return polled.revents;
}
