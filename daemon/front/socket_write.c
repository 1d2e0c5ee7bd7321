/*
 * The way out of a socket (socket.h): replies in a queue, as many in one sendmsg as go together.
 */
#include "socket_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BATCH_MAX 16 /* outputs in one sendmsg */

struct socket_output {
    struct list node;
    uint8_t *bytes; /* owned */
    size_t size, sent;
    int fd; /* owned; -1 once it is sent */
};

static void output_free(struct socket_output *output)
{
    list_unlink(&output->node);
    fd_closep(&output->fd);
    free(output->bytes);
    free(output);
}

void socket_outputs_clear(struct socket *socket)
{
    list_for_each_safe(node, following, &socket->queue)
    {
        output_free(container_of(node, struct socket_output, node));
    }
    socket->queue_bytes = 0;
    socket->queue_fds = 0;
}

/* The next outputs as one vector. Descriptors go with the first byte of the vector, so an output
 * that has one starts a vector of its own. */
static size_t gather(const struct socket *socket, struct iovec parts[BATCH_MAX])
{
    size_t n = 0;

    list_for_each(node, &socket->queue)
    {
        const struct socket_output *output = container_of(node, struct socket_output, node);

        if (n == BATCH_MAX || (n > 0 && output->fd >= 0))
            break;
        parts[n].iov_base = output->bytes + output->sent;
        parts[n].iov_len = output->size - output->sent;
        n++;
    }
    return n;
}

static void attach_fd(struct msghdr *message, char *control, size_t size, int fd)
{
    struct cmsghdr *header;

    message->msg_control = control;
    message->msg_controllen = size;
    header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
}

static ssize_t send_some(struct socket *socket)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec parts[BATCH_MAX];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = gather(socket, parts)};
    struct socket_output *first = container_of(socket->queue.next, struct socket_output, node);
    ssize_t n;

    if (first->fd >= 0)
        attach_fd(&message, control, sizeof(control), first->fd);
    do
        n = sendmsg(socket->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0 && first->fd >= 0) {
        fd_closep(&first->fd);
        socket->queue_fds--;
    }
    return n;
}

static void update_pause(struct socket *socket)
{
    const bool was_paused = socket->is_paused;

    socket->is_paused = socket->queue_bytes + socket->expected_bytes > SOCKET_QUEUE_PAUSE;
    if (socket->is_paused && !was_paused && socket->operations->stalled)
        socket->operations->stalled(socket);
}

bool socket_is_stalled(const struct socket *socket)
{
    return !socket->is_closing && socket->is_paused && socket->queue_bytes > 0;
}

static void queue_consume(struct socket *socket, size_t n)
{
    socket->sent_bytes += n;
    socket->queue_bytes -= n;
    while (n > 0) {
        struct socket_output *output = container_of(socket->queue.next, struct socket_output, node);
        const size_t part = MIN(n, output->size - output->sent);

        output->sent += part;
        n -= part;
        if (output->sent == output->size)
            output_free(output);
    }
}

void socket_flush(struct socket *socket)
{
    while (!list_is_empty(&socket->queue)) {
        ssize_t n = send_some(socket);

        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            socket_fail(socket, errno);
            return;
        }
        if (n < 0)
            break;
        queue_consume(socket, (size_t)n);
    }
    (void)socket_is_granted(socket); /* mostly less; socket_send() asks about more */
    update_pause(socket);
}

static bool queue_append(struct socket *socket, struct message *message, int fd)
{
    struct socket_output *output = malloc(sizeof(*output));

    if (output == NULL)
        return false;
    *output = (struct socket_output){
        .bytes = message->bytes,
        .size = message->size,
        .fd = fd,
    };
    *message = MESSAGE_NULL;
    list_append(&socket->queue, &output->node);
    socket->queue_bytes += output->size;
    socket->queue_fds += fd >= 0;
    return true;
}

void socket_send(struct socket *socket, struct message *message, int fd)
{
    const bool was_empty = list_is_empty(&socket->queue);

    if (socket->is_closing || message->size == 0 || !queue_append(socket, message, fd)) {
        if (!socket->is_closing && message->size > 0)
            socket_close(socket, "no memory for a reply");
        message_deinit(message);
        fd_closep(&fd);
        return;
    }
    if (was_empty)
        socket_flush(socket); /* else the kernel's buffer is full */
    else
        update_pause(socket);
    if (!socket->is_closing && !socket_is_granted(socket))
        socket_close(socket, "unread replies beyond the uid's limit");
    socket_watch(socket);
}

void socket_expect(struct socket *socket, size_t bytes)
{
    socket->expected_bytes += bytes;
    update_pause(socket);
    socket_watch(socket);
}

void socket_unexpect(struct socket *socket, size_t bytes)
{
    assert(socket->expected_bytes >= bytes);
    socket->expected_bytes -= bytes;
    update_pause(socket);
    socket_watch(socket);
}
