/*
 * What a socket makes of what its peer writes.
 */
#include "socket_fixture.h"

TestSuite(socket, .init = start, .fini = stop, .timeout = 60);

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

Test(socket, takes_many_frames_of_one_write_after_many_that_came_alone)
{
    uint8_t bytes[64 * 32];
    size_t size = 0;

    for (unsigned i = 0; i < 60; i++) {
        send_with(bytes, make_frame(bytes, 4, (uint8_t)i, 0), NULL, 0);
        turn();
        cr_assert_eq(f.frames, i + 1);
    }
    for (unsigned i = 0; i < 50; i++)
        size += make_frame(bytes + size, 1 + i % 5, (uint8_t)i, 0);
    send_with(bytes, size, NULL, 0);
    turn();
    cr_assert_eq(f.frames, 110);
    for (unsigned i = 0; i < 50; i++)
        cr_expect(f.first[60 + i] == i);
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
