/*
 * See wire.h.
 */
#include "wire.h"

#include <string.h>
#include <sys/socket.h>

bool wire_receive(int fd, void *bytes, size_t size, int *ret_fd)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];

    for (size_t got = 0; got < size;) {
        struct iovec part = {(char *)bytes + got, size - got};
        struct msghdr message = {
            .msg_iov = &part,
            .msg_iovlen = 1,
            .msg_control = control,
            .msg_controllen = sizeof(control),
        };
        ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);

        if (n <= 0)
            return false;
        if (c && ret_fd)
            memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
        got += (size_t)n;
    }
    return true;
}

bool wire_transmit(int fd, const void *bytes, size_t size, int passed)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};

    for (size_t sent = 0; sent < size;) {
        struct iovec part = {(char *)(uintptr_t)bytes + sent, size - sent};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t n;

        if (sent == 0 && passed >= 0) {
            struct cmsghdr *c = (struct cmsghdr *)control;

            *c = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
            memcpy(CMSG_DATA(c), &passed, sizeof(int));
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
        }
        n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0)
            return false; /* the peer left: the next receive sees it */
        sent += (size_t)n;
    }
    return true;
}
