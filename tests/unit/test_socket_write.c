/*
 * What a socket writes: order, descriptors, back-pressure.
 */
#include "socket_fixture.h"

TestSuite(socket_write, .init = start, .fini = stop, .timeout = 60);

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

Test(socket_write, writes_at_once_when_it_can)
{
    uint8_t bytes[64];

    send_one(8, 'r', -1);
    cr_assert_eq(read(f.peer, bytes, sizeof(bytes)), FRAME_HEADER_SIZE + 8);
    cr_expect_eq(bytes[FRAME_HEADER_SIZE], 'r');
    cr_expect_eq(f.socket.queue_bytes, 0);
    cr_expect_eq(f.socket.sent_bytes, FRAME_HEADER_SIZE + 8);
}

Test(socket_write, keeps_order_and_bytes_through_a_full_buffer)
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

Test(socket_write, sends_a_descriptor_with_its_frames_first_byte)
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

Test(socket_write, sends_queued_descriptors_each_with_its_frame)
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

Test(socket_write, pauses_reading_while_replies_pile_up_and_resumes)
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

static bool holds_up_to_20_mib(struct socket *socket, const struct socket_holdings *holdings)
{
    (void)socket;
    return holdings->output_bytes <= 20u << 20;
}

Test(socket_write, ends_with_the_reply_that_is_more_than_its_owner_grants)
{
    static struct socket_operations bounded;

    bounded = *f.socket.operations;
    bounded.holds = holds_up_to_20_mib;
    f.socket.operations = &bounded;
    send_one(8 << 20, 'r', -1);
    send_one(8 << 20, 'r', -1);
    cr_expect(socket_is_open(&f.socket));
    send_one(8 << 20, 'r', -1);
    cr_expect_not(socket_is_open(&f.socket));
    cr_expect_eq(f.socket.queue_bytes, 0);
    turn();
    cr_expect_not_null(strstr(f.reason, "beyond the uid's limit"));
}

static unsigned stalls;

static void count_stall(struct socket *socket)
{
    (void)socket;
    stalls++;
}

Test(socket_write, says_once_that_replies_pile_up)
{
    static struct socket_operations counting;

    counting = *f.socket.operations;
    counting.stalled = count_stall;
    f.socket.operations = &counting;
    for (unsigned i = 0; i < 4; i++)
        send_one(8 << 20, 'r', -1);
    cr_expect_not(socket_is_stalled(&f.socket));
    send_one(8 << 20, 'r', -1);
    send_one(8 << 20, 'r', -1);
    cr_expect(socket_is_stalled(&f.socket));
    cr_expect_eq(stalls, 1);
    (void)drain();
    cr_expect_not(socket_is_stalled(&f.socket));
}

Test(socket_write, takes_and_frees_what_is_sent_after_the_end)
{
    const unsigned before = open_fds();
    int fd = memfd_create("test", MFD_CLOEXEC);

    socket_close(&f.socket, "over");
    send_one(4, 'x', fd);
    cr_expect_eq(open_fds(), before - 1);
}

Test(socket_write, survives_a_peer_that_vanishes_with_replies_queued)
{
    send_one(4 << 20, 'x', -1);
    close(f.peer);
    f.peer = -1;
    send_one(4, 'x', -1);
    turn();
    cr_expect_eq(f.closed, 1);
}
