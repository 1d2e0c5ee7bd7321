#include "socket_internal.h"

#include "../../proto/reply.h"
#include "../core/error.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAMES_PER_WAKE 16 /* then the others get their turn; what is left wakes us again */

/* A peer that sends one request and waits has no second frame behind it, and to look for one is a
 * fifth of a request's system calls. After so many lone frames only every so manyth is looked
 * behind. */
#define LONE_FRAMES 4
#define LONE_LOOK   16

/* First allocation for a payload: all of most, and little enough to give to whoever claims more. */
#define PAYLOAD_FIRST (64u << 10)

enum progress {
    PROGRESS_MADE,
    PROGRESS_NONE, /* nothing there now */
    PROGRESS_OVER, /* the socket is closing */
};

bool socket_is_open(const struct socket *socket)
{
    return !socket->is_closing;
}

bool socket_has_partial_frame(const struct socket *socket)
{
    return socket->header_size > 0;
}

bool socket_is_reading(const struct socket *socket)
{
    return !socket->is_closing && !socket->is_held && !socket->is_paused;
}

/* --- closing --------------------------------------------------------------------------------- */

static void close_fds(int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++)
        fd_closep(&fds[i]);
}

static size_t in_steps(size_t bytes)
{
    return bytes & ~(SOCKET_MEMORY_STEP - 1ul);
}

bool socket_is_granted(struct socket *socket)
{
    const struct socket_holdings now = {
        .frame_bytes = in_steps(socket->payload_capacity),
        .output_bytes = in_steps(socket->queue_bytes),
        .fds = socket->n_fds + socket->queue_fds,
    };
    const struct socket_holdings *told = &socket->told;

    if (now.frame_bytes == told->frame_bytes && now.output_bytes == told->output_bytes &&
        now.fds == told->fds)
        return true;
    if (socket->operations->holds && !socket->operations->holds(socket, &now))
        return false;
    socket->told = now;
    return true;
}

static void frame_reset(struct socket *socket)
{
    close_fds(socket->fds, socket->n_fds);
    socket->n_fds = 0;
    free(socket->payload);
    socket->payload = NULL;
    socket->payload_size = 0;
    socket->payload_capacity = 0;
    socket->header_size = 0;
    (void)socket_is_granted(socket); /* less always is */
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct socket *socket = container_of((uv_poll_t *)handle, struct socket, poll);

    socket->operations->closed(socket, socket->reason);
}

void socket_close(struct socket *socket, const char *reason)
{
    if (socket->is_closing)
        return;
    socket->is_closing = true;
    socket->reason = reason;

    socket_outputs_clear(socket);
    frame_reset(socket);
    uv_close((uv_handle_t *)&socket->poll, on_handle_closed);
    fd_closep(&socket->fd); /* right after uv_close(), which took it out of the poll set */
}

static void end_with(struct socket *socket, enum status status, const char *sentence)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    struct fault fault;

    fault_set(&fault, status, "", "%s", sentence);
    if (reply_encode_fault(REPLY_ID_LAST, &fault, &message) == 0)
        socket_send(socket, &message, -1);
    socket_close(socket, sentence);
}

void socket_refuse(struct socket *socket, const char *sentence)
{
    end_with(socket, STATUS_PROTOCOL, sentence);
}

/* --- the poll set ---------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

/* Each change costs a system call, so only changes are told. */
void socket_watch(struct socket *socket)
{
    int events;

    if (socket->is_closing)
        return;
    events = socket_is_reading(socket) ? UV_READABLE : UV_DISCONNECT;
    if (!list_is_empty(&socket->queue))
        events |= UV_WRITABLE;
    if (events == socket->events)
        return;

    socket->events = events;
    if (error_trace(uv_poll_start(&socket->poll, events, on_poll)) < 0)
        socket_close(socket, "the socket cannot be polled");
}

void socket_hold(struct socket *socket, bool hold)
{
    socket->is_held = hold;
    socket_watch(socket);
}

/* --- reading --------------------------------------------------------------------------------- */

/* Takes the descriptors of one recvmsg; they are the socket's from here, right or not. */
static const char *take_fds(struct socket *socket, struct msghdr *message, bool is_frame_start)
{
    const char *wrong = NULL;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        if (!is_frame_start || socket->n_fds > 0)
            wrong = "descriptors came apart from a frame's first byte";
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (wrong == NULL && socket->n_fds < FRAME_FDS_MAX)
                socket->fds[socket->n_fds++] = fd;
            else
                fd_closep(&fd);
        }
    }
    /* The kernel dropped some, for want of room here or of free descriptors in this process: which
     * ones, nobody can tell. */
    if (message->msg_flags & MSG_CTRUNC)
        wrong = "more descriptors came than a frame may carry or than the daemon can take";
    return wrong;
}

void socket_fail(struct socket *socket, int error)
{
    bool is_gone = error == ECONNRESET || error == EPIPE;

    socket_close(socket, is_gone ? "the peer is gone" : "the socket failed");
}

static enum progress
receive(struct socket *socket, uint8_t *into, size_t size, bool is_frame_start, size_t *ret_size)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
    struct iovec part = {.iov_base = into, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    const char *wrong;
    ssize_t n;

    do
        n = recvmsg(socket->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return PROGRESS_NONE;
    if (n < 0) {
        socket_fail(socket, errno);
        return PROGRESS_OVER;
    }
    wrong = take_fds(socket, &message, is_frame_start);
    if (wrong != NULL) {
        socket_refuse(socket, wrong);
        return PROGRESS_OVER;
    }
    if (!socket_is_granted(socket)) {
        end_with(socket, STATUS_LIMIT, "this uid has as many descriptors here as its limit allows");
        return PROGRESS_OVER;
    }
    if (n == 0) {
        socket_close(socket, socket_has_partial_frame(socket) ? "end of file within a frame"
                                                              : "end of file");
        return PROGRESS_OVER;
    }
    socket->received_bytes += (uint64_t)n;
    *ret_size = (size_t)n;
    return PROGRESS_MADE;
}

static enum progress read_header(struct socket *socket)
{
    size_t n = 0;
    enum progress progress;
    int r;

    progress = receive(socket, socket->header + socket->header_size,
                       FRAME_HEADER_SIZE - socket->header_size, socket->header_size == 0, &n);
    if (progress != PROGRESS_MADE)
        return progress;
    socket->header_size += n;
    if (socket->header_size < FRAME_HEADER_SIZE)
        return PROGRESS_MADE;

    r = frame_decode(socket->header, FRAME_LENGTH_MAX, &socket->frame);
    if (r == 0 && socket->frame.n_fds == socket->n_fds)
        return PROGRESS_MADE;
    socket_refuse(socket, r != 0 ? frame_error(r)
                                 : "the descriptors that came are not as many as n_fds says");
    return PROGRESS_OVER;
}

/* Room for more of the payload, doubling: a claim alone costs PAYLOAD_FIRST. */
static bool payload_grow(struct socket *socket)
{
    size_t capacity = MAX(socket->payload_capacity * 2, (size_t)PAYLOAD_FIRST);
    uint8_t *payload;

    if (socket->payload_size < socket->payload_capacity)
        return true;
    capacity = MIN(capacity, (size_t)socket->frame.length);
    payload = realloc(socket->payload, capacity);
    if (payload == NULL)
        return false;
    socket->payload = payload;
    socket->payload_capacity = capacity;
    if (socket_is_granted(socket))
        return true;
    end_with(socket, STATUS_LIMIT,
             "unfinished frames of this uid take more than its limit of bytes");
    return false;
}

/* Hands the frame over. It is taken out of the socket first: the callee may close it. */
static void deliver(struct socket *socket)
{
    cleanup(freep) uint8_t *payload = steal(socket->payload, NULL);
    const size_t size = socket->payload_size, n_fds = socket->n_fds;
    int fds[FRAME_FDS_MAX];

    memcpy(fds, socket->fds, sizeof(fds));
    socket->n_fds = 0;
    frame_reset(socket);
    socket->operations->frame(socket, payload, size, fds, n_fds);
    close_fds(fds, n_fds);
}

static enum progress read_payload(struct socket *socket)
{
    size_t n = 0;
    enum progress progress;

    if (!payload_grow(socket)) {
        socket_close(socket, "no memory for a frame");
        return PROGRESS_OVER;
    }
    progress = receive(socket, socket->payload + socket->payload_size,
                       socket->payload_capacity - socket->payload_size, false, &n);
    if (progress == PROGRESS_MADE)
        socket->payload_size += n;
    return progress;
}

static unsigned frames_to_read(const struct socket *socket)
{
    return socket->lone_frames < LONE_FRAMES || socket->lone_frames % LONE_LOOK == 0
               ? FRAMES_PER_WAKE
               : 1;
}

/* Exactly a header, exactly its payload: a read that went on into the next frame could bring that
 * frame's descriptors, and nothing would tell whose they are. */
static void socket_read(struct socket *socket)
{
    enum progress progress = PROGRESS_MADE;
    unsigned frames = 0, most = frames_to_read(socket);

    while (frames < most && progress == PROGRESS_MADE) {
        if (!socket_is_reading(socket))
            return;
        progress =
            socket->header_size < FRAME_HEADER_SIZE ? read_header(socket) : read_payload(socket);
        if (progress == PROGRESS_MADE && socket->payload_size > 0 &&
            socket->payload_size == socket->frame.length) {
            deliver(socket);
            frames++;
        }
    }
    socket->lone_frames = frames == 1 ? socket->lone_frames + 1 : 0;
}

/* --- the handle ------------------------------------------------------------------------------ */

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct socket *socket = container_of(poll, struct socket, poll);

    if (status < 0) {
        socket_close(socket, "the peer is gone"); /* POLLERR: it left replies unread */
        return;
    }
    if (events & UV_WRITABLE)
        socket_flush(socket);
    if ((events & UV_READABLE) && socket_is_reading(socket))
        socket_read(socket);
    if ((events & UV_READABLE) && socket_is_open(socket) && socket_has_partial_frame(socket) &&
        socket->operations->partial)
        socket->operations->partial(socket);
    /* Its requests may still be in the kernel's buffer, but nobody is left to take the replies. */
    if ((events & UV_DISCONNECT) && !socket_is_reading(socket))
        socket_close(socket, "the peer hung up");
    socket_watch(socket);
}

int socket_init(struct socket *socket,
                uv_loop_t *loop,
                int fd,
                const struct socket_operations *operations)
{
    int r;

    *socket = (struct socket){.operations = operations, .fd = fd};
    list_init(&socket->queue);
    r = uv_poll_init(loop, &socket->poll, fd);
    if (r < 0)
        return error_origin(r);
    socket_watch(socket);
    return 0;
}
