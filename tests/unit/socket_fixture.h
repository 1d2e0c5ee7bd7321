/*
 * The socket on a real loop and a socketpair; the test is the peer and writes what it likes.
 */
#pragma once

#include "../../daemon/front/socket.h"
#include "../../proto/reply.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAMES_MAX 256

static struct fixture {
    uv_loop_t loop;
    struct socket socket;
    int peer;
    /* what came */
    unsigned frames;
    size_t sizes[FRAMES_MAX];
    uint8_t first[FRAMES_MAX]; /* first byte of the payload */
    size_t n_fds[FRAMES_MAX];
    ino_t inodes[FRAMES_MAX]; /* of the first descriptor */
    unsigned closed;
    const char *reason;
    /* what the callee does */
    bool close_in_frame;
    unsigned hold_after;
} f;

static void on_frame(struct socket *socket, uint8_t *payload, size_t size, int *fds, size_t n_fds)
{
    struct stat status;

    cr_assert_lt(f.frames, FRAMES_MAX);
    f.sizes[f.frames] = size;
    f.first[f.frames] = payload[0];
    f.n_fds[f.frames] = n_fds;
    for (size_t i = 0; i < n_fds; i++) {
        cr_assert_eq(fstat(fds[i], &status), 0);
        cr_assert_eq(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
        if (i == 0)
            f.inodes[f.frames] = status.st_ino;
    }
    payload[0] = 0; /* it is writable */
    f.frames++;
    if (f.close_in_frame)
        socket_close(socket, "closed in frame");
    if (f.hold_after == f.frames)
        socket_hold(socket, true);
}

static void on_closed(struct socket *socket, const char *reason)
{
    (void)socket;
    f.closed++;
    f.reason = reason;
}

static const struct socket_operations operations = {.frame = on_frame, .closed = on_closed};

static inline void start(void)
{
    int pair[2];

    cr_assert_eq(uv_loop_init(&f.loop), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    f.peer = pair[1];
    cr_assert_eq(socket_init(&f.socket, &f.loop, pair[0], &operations), 0);
}

static inline void turn(void)
{
    for (int i = 0; i < 40; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
}

/* Ends everything and holds that nothing is left behind. */
static inline void stop(void)
{
    socket_close(&f.socket, "end of test");
    turn();
    cr_assert_eq(f.closed, 1, "closed() ran %u times", f.closed);
    cr_assert_eq(uv_loop_close(&f.loop), 0);
    if (f.peer >= 0)
        close(f.peer);
}

static inline unsigned open_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;

    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static inline void send_with(const void *bytes, size_t size, const int *fds, size_t n_fds)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (n_fds > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, n_fds * sizeof(int));
    }
    cr_assert_eq(sendmsg(f.peer, &message, MSG_NOSIGNAL), (ssize_t)size);
}

/* A frame of `size` payload bytes, each `fill`. */
static inline size_t make_frame(uint8_t *bytes, uint32_t size, uint8_t fill, uint16_t n_fds)
{
    frame_encode(bytes, size, n_fds);
    memset(bytes + FRAME_HEADER_SIZE, fill, size);
    return FRAME_HEADER_SIZE + size;
}

static inline ino_t inode_of(int fd)
{
    struct stat status;

    cr_assert_eq(fstat(fd, &status), 0);
    return status.st_ino;
}
