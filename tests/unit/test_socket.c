/*
 * The socket on a real loop and a socketpair; the test is the peer and writes what it likes.
 */
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

static void start(void)
{
    int pair[2];

    cr_assert_eq(uv_loop_init(&f.loop), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    f.peer = pair[1];
    cr_assert_eq(socket_init(&f.socket, &f.loop, pair[0], &operations), 0);
}

static void turn(void)
{
    for (int i = 0; i < 40; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
}

/* Ends everything and holds that nothing is left behind. */
static void stop(void)
{
    socket_close(&f.socket, "end of test");
    turn();
    cr_assert_eq(f.closed, 1, "closed() ran %u times", f.closed);
    cr_assert_eq(uv_loop_close(&f.loop), 0);
    if (f.peer >= 0)
        close(f.peer);
}

TestSuite(socket, .init = start, .fini = stop, .timeout = 60);

static unsigned open_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;

    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void send_with(const void *bytes, size_t size, const int *fds, size_t n_fds)
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
static size_t make_frame(uint8_t *bytes, uint32_t size, uint8_t fill, uint16_t n_fds)
{
    frame_encode(bytes, size, n_fds);
    memset(bytes + FRAME_HEADER_SIZE, fill, size);
    return FRAME_HEADER_SIZE + size;
}

static ino_t inode_of(int fd)
{
    struct stat status;

    cr_assert_eq(fstat(fd, &status), 0);
    return status.st_ino;
}

/* --- reading --------------------------------------------------------------------------------- */

Test(socket, takes_a_frame_however_it_is_split)
{
    uint8_t bytes[FRAME_HEADER_SIZE + 8];
    const size_t size = make_frame(bytes, 8, 'x', 0);

    for (size_t split = 1; split < size; split++) {
        send_with(bytes, split, NULL, 0);
        turn();
        cr_assert_eq(f.frames, split - 1);
        cr_assert(socket_has_partial_frame(&f.socket));
        send_with(bytes + split, size - split, NULL, 0);
        turn();
        cr_assert_eq(f.frames, split);
        cr_assert_eq(f.sizes[split - 1], 8);
        cr_assert_not(socket_has_partial_frame(&f.socket));
    }
}

Test(socket, takes_a_frame_byte_by_byte_with_its_descriptor)
{
    uint8_t bytes[FRAME_HEADER_SIZE + 3];
    const size_t size = make_frame(bytes, 3, 'x', 1);
    int fd = memfd_create("test", MFD_CLOEXEC);

    send_with(bytes, 1, &fd, 1);
    for (size_t at = 1; at < size; at++) {
        turn();
        send_with(bytes + at, 1, NULL, 0);
    }
    turn();
    cr_assert_eq(f.frames, 1);
    cr_expect_eq(f.inodes[0], inode_of(fd));
    close(fd);
}

Test(socket, takes_many_frames_of_one_write)
{
    uint8_t bytes[64 * 32];
    size_t size = 0;

    for (unsigned i = 0; i < 50; i++)
        size += make_frame(bytes + size, 1 + i % 5, (uint8_t)i, 0);
    send_with(bytes, size, NULL, 0);
    turn();
    cr_assert_eq(f.frames, 50);
    for (unsigned i = 0; i < 50; i++)
        cr_expect(f.first[i] == i && f.sizes[i] == 1 + i % 5);
}

Test(socket, keeps_each_descriptor_with_its_frame)
{
    const unsigned count = 100, before = open_fds();
    ino_t expected[100];
    uint8_t bytes[64];

    for (unsigned i = 0; i < count; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC);

        expected[i] = inode_of(fd);
        send_with(bytes, make_frame(bytes, 4, 'x', 1), &fd, 1);
        send_with(bytes, make_frame(bytes, 4, 'y', 0), NULL, 0);
        close(fd);
        if (i % 50 == 49)
            turn();
    }
    cr_assert_eq(f.frames, 2 * count);
    for (unsigned i = 0; i < count; i++) {
        cr_expect(f.n_fds[2 * i] == 1 && f.inodes[2 * i] == expected[i]);
        cr_expect_eq(f.n_fds[2 * i + 1], 0);
    }
    cr_expect_eq(open_fds(), before, "descriptors that nobody took stay open");
}

Test(socket, takes_the_largest_frame)
{
    uint8_t *bytes = malloc(FRAME_HEADER_SIZE + FRAME_LENGTH_MAX);
    const size_t size = make_frame(bytes, FRAME_LENGTH_MAX, 'z', 0);
    size_t at = 0;

    while (at < size) {
        const ssize_t n = write(f.peer, bytes + at, size - at);

        at += n > 0 ? (size_t)n : 0;
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    turn();
    cr_assert_eq(f.frames, 1);
    cr_expect_eq(f.sizes[0], FRAME_LENGTH_MAX);
    free(bytes);
}

Test(socket, spends_little_on_a_claim_without_a_body)
{
    uint8_t bytes[FRAME_HEADER_SIZE + 1] = {0};

    frame_encode(bytes, FRAME_LENGTH_MAX, 0);
    send_with(bytes, sizeof(bytes), NULL, 0);
    turn();
    cr_expect_leq(f.socket.payload_capacity, 64u << 10);
    cr_expect(socket_has_partial_frame(&f.socket));
    cr_expect_eq(f.socket.received_bytes, sizeof(bytes));
}

/* The last message before the end, as a client sees it. */
static void expect_refusal(const char *words)
{
    uint8_t bytes[2048];
    ssize_t n;
    struct frame_header header;
    struct reply reply = {0};

    turn();
    cr_assert_eq(f.closed, 1);
    cr_assert_not_null(strstr(f.reason, words), "\"%s\" lacks \"%s\"", f.reason, words);
    n = read(f.peer, bytes, sizeof(bytes));
    cr_assert_gt(n, FRAME_HEADER_SIZE);
    cr_assert_eq(frame_decode(bytes, FRAME_LENGTH_MAX, &header), 0);
    cr_assert_eq(reply_decode(bytes + FRAME_HEADER_SIZE, header.length, &reply), 0);
    cr_assert_eq(reply.id, REPLY_ID_LAST);
    cr_assert_eq(reply.fault.status, STATUS_PROTOCOL);
    cr_assert_str_eq(reply.fault.message, f.reason);
}

Test(socket, refuses_a_wrong_header_and_says_why)
{
    uint8_t bytes[FRAME_HEADER_SIZE];

    frame_encode(bytes, 5, 0);
    bytes[0] = 'X';
    send_with(bytes, sizeof(bytes), NULL, 0);
    expect_refusal("GMMD");
    cr_expect_eq(f.frames, 0);
}

Test(socket, refuses_a_length_over_the_bound)
{
    uint8_t bytes[FRAME_HEADER_SIZE];

    frame_encode(bytes, FRAME_LENGTH_MAX + 1, 0);
    send_with(bytes, sizeof(bytes), NULL, 0);
    expect_refusal("length");
}

static void send_mismatch(uint16_t claimed, size_t sent)
{
    uint8_t bytes[64];
    int fds[16];

    for (size_t i = 0; i < sent; i++)
        fds[i] = f.peer;
    frame_encode(bytes, 4, claimed);
    send_with(bytes, FRAME_HEADER_SIZE, fds, sent);
}

Test(socket, refuses_descriptors_that_were_not_announced)
{
    const unsigned before = open_fds();

    send_mismatch(0, 1);
    expect_refusal("n_fds");
    cr_expect_eq(open_fds(), before - 1, "only the socket's own descriptor is gone");
}

Test(socket, refuses_announced_descriptors_that_did_not_come)
{
    send_mismatch(2, 1);
    expect_refusal("n_fds");
}

Test(socket, refuses_more_descriptors_than_fit)
{
    const unsigned before = open_fds();

    send_mismatch(FRAME_FDS_MAX, 16);
    expect_refusal("more descriptors");
    cr_expect_eq(open_fds(), before - 1);
}

Test(socket, refuses_descriptors_in_the_middle_of_a_frame)
{
    const unsigned before = open_fds();
    uint8_t bytes[64];

    make_frame(bytes, 8, 'x', 0);
    send_with(bytes, FRAME_HEADER_SIZE, NULL, 0);
    turn();
    send_with(bytes + FRAME_HEADER_SIZE, 8, &f.peer, 1);
    expect_refusal("apart");
    cr_expect_eq(open_fds(), before - 1);
    cr_expect_eq(f.frames, 0);
}

Test(socket, ends_at_end_of_file)
{
    shutdown(f.peer, SHUT_WR);
    turn();
    cr_expect_str_eq(f.reason, "end of file");
}

Test(socket, ends_at_end_of_file_within_a_frame)
{
    send_with("GMM", 3, NULL, 0);
    shutdown(f.peer, SHUT_WR);
    turn();
    cr_expect_str_eq(f.reason, "end of file within a frame");
}

Test(socket, may_be_closed_by_the_callee)
{
    uint8_t bytes[64];

    f.close_in_frame = true;
    send_with(bytes, make_frame(bytes, 4, 'x', 0), NULL, 0);
    send_with(bytes, make_frame(bytes, 4, 'y', 0), NULL, 0);
    turn();
    cr_expect_eq(f.frames, 1);
    cr_expect_str_eq(f.reason, "closed in frame");
    cr_expect_not(socket_is_open(&f.socket));
}

Test(socket, keeps_the_first_reason)
{
    socket_close(&f.socket, "first");
    socket_close(&f.socket, "second");
    turn();
    cr_expect_str_eq(f.reason, "first");
}

Test(socket, reads_nothing_while_it_is_held)
{
    uint8_t bytes[64];

    f.hold_after = 1;
    for (unsigned i = 0; i < 3; i++)
        send_with(bytes, make_frame(bytes, 4, 'x', 0), NULL, 0);
    turn();
    cr_assert_eq(f.frames, 1);
    socket_hold(&f.socket, false);
    turn();
    cr_assert_eq(f.frames, 3);
}

Test(socket, notices_while_it_is_held_that_the_peer_is_gone)
{
    uint8_t bytes[64];

    f.hold_after = 1;
    send_with(bytes, make_frame(bytes, 4, 'x', 0), NULL, 0);
    turn();
    close(f.peer);
    f.peer = -1;
    turn();
    cr_expect_eq(f.closed, 1);
}

/* --- writing --------------------------------------------------------------------------------- */

static struct message make_message(size_t payload, uint8_t fill)
{
    struct message message = {.bytes = malloc(FRAME_HEADER_SIZE + payload)};

    message.size = message.capacity = make_frame(message.bytes, (uint32_t)payload, fill, 0);
    return message;
}

static void send_one(size_t payload, uint8_t fill, int fd)
{
    struct message message = make_message(payload, fill);

    socket_send(&f.socket, &message, fd);
    cr_assert_null(message.bytes, "the message was not taken");
}

/* Reads everything that comes and holds that the fills come in order and whole. */
static size_t drain(void)
{
    uint8_t *bytes = malloc(1 << 20);
    size_t total = 0;
    int quiet = 0;

    while (quiet < 3) {
        const ssize_t n = read(f.peer, bytes, 1 << 20);

        uv_run(&f.loop, UV_RUN_NOWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        total += n > 0 ? (size_t)n : 0;
    }
    free(bytes);
    return total;
}

Test(socket, writes_at_once_when_it_can)
{
    uint8_t bytes[64];

    send_one(8, 'r', -1);
    cr_assert_eq(read(f.peer, bytes, sizeof(bytes)), FRAME_HEADER_SIZE + 8);
    cr_expect_eq(bytes[FRAME_HEADER_SIZE], 'r');
    cr_expect_eq(f.socket.queue_bytes, 0);
    cr_expect_eq(f.socket.sent_bytes, FRAME_HEADER_SIZE + 8);
}

Test(socket, keeps_order_and_bytes_through_a_full_buffer)
{
    uint8_t *all = malloc(64 << 20);
    size_t total = 0, at = 0;

    for (unsigned i = 0; i < 60; i++)
        send_one(100000 + i, (uint8_t)i, -1);
    cr_assert_gt(f.socket.queue_bytes, 0);
    for (int quiet = 0; quiet < 3;) {
        const ssize_t n = read(f.peer, all + total, (64 << 20) - total);

        uv_run(&f.loop, UV_RUN_NOWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        total += n > 0 ? (size_t)n : 0;
    }
    for (unsigned i = 0; i < 60; i++) {
        struct frame_header header;

        cr_assert_eq(frame_decode(all + at, FRAME_LENGTH_MAX, &header), 0);
        cr_assert_eq(header.length, 100000 + i);
        for (size_t j = 0; j < header.length; j++)
            cr_assert_eq(all[at + FRAME_HEADER_SIZE + j], i);
        at += FRAME_HEADER_SIZE + header.length;
    }
    cr_expect_eq(at, total);
    cr_expect_eq(f.socket.queue_bytes, 0);
    free(all);
}

static int receive_fd(size_t size)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    uint8_t bytes[256];
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int fd = -1;

    cr_assert_eq(recvmsg(f.peer, &message, MSG_CMSG_CLOEXEC), (ssize_t)size);
    if (CMSG_FIRSTHDR(&message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

Test(socket, sends_a_descriptor_with_its_frames_first_byte)
{
    const unsigned before = open_fds();
    int fd = memfd_create("test", MFD_CLOEXEC), got;
    const ino_t expected = inode_of(fd);

    send_one(4, 'a', -1);
    send_one(4, 'b', fd);
    send_one(4, 'c', -1);
    cr_expect_eq(receive_fd(FRAME_HEADER_SIZE + 4), -1);
    got = receive_fd(FRAME_HEADER_SIZE + 4);
    cr_assert_geq(got, 0);
    cr_expect_eq(inode_of(got), expected);
    close(got);
    cr_expect_eq(receive_fd(FRAME_HEADER_SIZE + 4), -1);
    cr_expect_eq(open_fds(), before, "the sent descriptor is closed here");
}

Test(socket, sends_queued_descriptors_each_with_its_frame)
{
    uint8_t *bytes = malloc(8 << 20);
    ino_t expected[3];

    send_one(4 << 20, 'x', -1); /* fills the kernel's buffer */
    for (unsigned i = 0; i < 3; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC);

        expected[i] = inode_of(fd);
        send_one(4, 'a' + i, fd);
    }
    cr_assert_gt(f.socket.queue_bytes, 0);
    for (size_t left = FRAME_HEADER_SIZE + (4 << 20); left > 0;) {
        const ssize_t n = read(f.peer, bytes, left);

        uv_run(&f.loop, UV_RUN_NOWAIT);
        left -= n > 0 ? (size_t)n : 0;
    }
    turn();
    for (unsigned i = 0; i < 3; i++) {
        int got = receive_fd(FRAME_HEADER_SIZE + 4);

        cr_assert_geq(got, 0);
        cr_expect_eq(inode_of(got), expected[i]);
        close(got);
    }
    free(bytes);
}

Test(socket, pauses_reading_while_replies_pile_up_and_resumes)
{
    uint8_t bytes[64];

    for (unsigned i = 0; i < 5; i++)
        send_one(8 << 20, 'r', -1);
    cr_assert_gt(f.socket.queue_bytes, SOCKET_QUEUE_PAUSE);
    send_with(bytes, make_frame(bytes, 4, 'x', 0), NULL, 0);
    turn();
    cr_expect_eq(f.frames, 0, "a client that does not read may not go on asking");
    cr_expect_eq(f.closed, 0, "a client that is busy for a while is not dropped");
    cr_expect_eq(drain(), 5 * (FRAME_HEADER_SIZE + (8u << 20)));
    turn();
    cr_expect_eq(f.frames, 1);
}

Test(socket, drops_a_client_that_never_reads_its_replies)
{
    for (unsigned i = 0; i < 20 && socket_is_open(&f.socket); i++)
        send_one(8 << 20, 'r', -1);
    cr_expect_not(socket_is_open(&f.socket));
    cr_expect_eq(f.socket.queue_bytes, 0);
    turn();
    cr_expect_not_null(strstr(f.reason, "does not read"));
}

Test(socket, takes_and_frees_what_is_sent_after_the_end)
{
    const unsigned before = open_fds();
    int fd = memfd_create("test", MFD_CLOEXEC);

    socket_close(&f.socket, "over");
    send_one(4, 'x', fd);
    cr_expect_eq(open_fds(), before - 1);
}

Test(socket, survives_a_peer_that_vanishes_with_replies_queued)
{
    send_one(4 << 20, 'x', -1);
    close(f.peer);
    f.peer = -1;
    send_one(4, 'x', -1);
    turn();
    cr_expect_eq(f.closed, 1);
}
