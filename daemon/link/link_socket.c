/*
 * Messages on the link's socket. One datagram is one struct link_message, with at most one
 * descriptor. The counters of sent messages lie in shared memory, so that a side that is busy with
 * its ring sees a message without asking the kernel.
 */
#include "../core/error.h"
#include "link.h"
#include "link_memory.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Room for exactly one descriptor, not for the two that CMSG_SPACE would round up to: a second one
 * then shows as MSG_CTRUNC. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(LINK_FDS_MAX * sizeof(int))];
};

static uint64_t *sent_by_us(const struct link *link)
{
    return link->side == LINK_FRONT ? &link->memory->front_messages
                                    : &link->memory->worker_messages;
}

static const uint64_t *sent_by_peer(const struct link *link)
{
    return link->side == LINK_FRONT ? &link->memory->worker_messages
                                    : &link->memory->front_messages;
}

int link_send(struct link *link, const struct link_message *message, const int *fds, size_t n_fds)
{
    struct iovec vector = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    union control control = {0};

    assert(n_fds <= LINK_FDS_MAX);

    if (n_fds > 0) {
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
        header.msg_control = &control;
        header.msg_controllen = control.header.cmsg_len;
    }

    link->system_calls++;
    if (sendmsg(link->fds.socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN)
            return -EAGAIN;
        if (errno == EPIPE || errno == ECONNRESET)
            return LINK_E_CLOSED;
        return error_origin(-errno);
    }

    __atomic_add_fetch(sent_by_us(link), 1, __ATOMIC_RELEASE);
    return 0;
}

bool link_message_waiting(const struct link *link)
{
    const uint64_t sent = __atomic_load_n(sent_by_peer(link), __ATOMIC_ACQUIRE);

    /* Received may be ahead: the socket delivers before the sender counts. */
    return (int64_t)(sent - link->messages_received) > 0;
}

static size_t take_descriptors(struct msghdr *header, int *ret_fds)
{
    struct cmsghdr *entry = CMSG_FIRSTHDR(header);

    if (!entry || entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS ||
        entry->cmsg_len != CMSG_LEN(LINK_FDS_MAX * sizeof(int)))
        return 0;

    memcpy(ret_fds, CMSG_DATA(entry), LINK_FDS_MAX * sizeof(int));
    return LINK_FDS_MAX;
}

/* The peer's texts are printed and compared: each must end. */
static void end_texts(struct link_message *message)
{
    message->configuration[sizeof(message->configuration) - 1] = 0;
    message->entry[sizeof(message->entry) - 1] = 0;
    message->device.name[sizeof(message->device.name) - 1] = 0;
    message->device.uuid[sizeof(message->device.uuid) - 1] = 0;
    message->device.driver[sizeof(message->device.driver) - 1] = 0;
    message->device.note[sizeof(message->device.note) - 1] = 0;
    message->fault.argument[sizeof(message->fault.argument) - 1] = 0;
    message->fault.message[sizeof(message->fault.message) - 1] = 0;
}

static bool
message_is_whole(const struct msghdr *header, size_t size, const struct link_message *message)
{
    return size == sizeof(*message) && !(header->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
           message->kind >= LINK_HELLO && message->kind <= LINK_LOST;
}

int link_receive(struct link *link,
                 struct link_message *ret_message,
                 int *ret_fds,
                 size_t *ret_n_fds)
{
    struct link_message message;
    struct iovec vector = {.iov_base = &message, .iov_len = sizeof(message)};
    union control control = {0};
    struct msghdr header = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = CMSG_LEN(LINK_FDS_MAX * sizeof(int))};
    cleanup(fd_closep) int fd = -1;
    size_t n_fds;
    ssize_t size;

    link->system_calls++;
    size = recvmsg(link->fds.socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return LINK_E_EMPTY;
    if (size == 0 || (size < 0 && errno == ECONNRESET))
        return LINK_E_CLOSED;
    if (size < 0)
        return error_origin(-errno);

    link->messages_received++;
    n_fds = take_descriptors(&header, &fd);
    if (!message_is_whole(&header, (size_t)size, &message))
        return LINK_E_BROKEN;

    end_texts(&message);
    *ret_message = message;
    *ret_n_fds = n_fds;
    if (n_fds > 0)
        ret_fds[0] = steal(fd, -1);
    return 0;
}
