/*
 * The wire against a real daemon: what a bad message costs, and whom.
 */
#include "../support/process.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct test_daemon daemon_;

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
}

static void stop(void)
{
    test_daemon_stop(&daemon_);
}

TestSuite(protocol, .init = start, .fini = stop, .timeout = 120);

static int greeted(void)
{
    return raw_greeted(&daemon_);
}

/* The daemon is well and serves others. */
static void expect_served(void)
{
    gemmd *other = test_daemon_connect(&daemon_);
    float a = 3, b = 4, d = 0;
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = &a;
    product.b.data = &b;
    product.d.data = &d;
    cr_expect_eq(gemmd_gemm(other, &product, NULL), GEMMD_OK);
    cr_expect_eq(d, 12);
    gemmd_close(other);
}

Test(protocol, wants_hello_first_and_goes_on)
{
    const struct request status = {.id = 5, .method = METHOD_STATUS};
    const struct request hello = {
        .id = 6, .method = METHOD_HELLO, .body.hello = {.version = PROTOCOL_VERSION}};
    int fd = raw_connect(&daemon_);

    cr_assert(raw_request(fd, &status, -1));
    raw_expect(fd, 5, STATUS_PROTOCOL);
    cr_assert(raw_request(fd, &hello, -1));
    raw_expect(fd, 6, STATUS_OK);
    (void)close(fd);
}

Test(protocol, lives_on_after_bad_requests)
{
    int fd = greeted();
    struct request request = {.id = 9, .method = METHOD_GEMM};

    request.body.gemm.problem = (struct problem){
        .input = DTYPE_FP32, .output = DTYPE_FP32, .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1};
    for (int i = 0; i < OPERAND_COUNT; i++)
        request.body.gemm.problem.operand[i] =
            (struct problem_operand){.ld = PROBLEM_DEFAULT, .stride = PROBLEM_DEFAULT};
    cr_assert(raw_request(fd, &request, -1)); /* a is missing */
    raw_expect(fd, 9, STATUS_INVALID_ARGUMENT);
    request.body.gemm.operand[OPERAND_A] =
        (struct request_operand){.kind = OPERAND_BUFFER, .buffer = 77};
    request.body.gemm.operand[OPERAND_B] = request.body.gemm.operand[OPERAND_A];
    cr_assert(raw_request(fd, &request, -1));
    raw_expect(fd, 9, STATUS_NOT_FOUND);
    request.body.gemm.problem.operand[OPERAND_A].ld = 2;
    cr_assert(raw_request(fd, &request, -1));
    raw_expect(fd, 9, STATUS_INVALID_ARGUMENT);
    cr_assert(raw_request(fd, &(struct request){.id = 10, .method = METHOD_STATUS}, -1));
    raw_expect(fd, 10, STATUS_OK);
    (void)close(fd);
}

Test(protocol, malformed_bytes_close_their_connection_only)
{
    static const struct {
        const char *bytes;
        size_t size;
    } wrong[] = {
        {"GET / HTTP/1.0\r\n\r\n", 18},
        {"GMMD\x01\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00", 16},
        {"GMMD\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\xdd\xff\x00\x00\x00", 21},
        {"GMMD\x01\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 17},
        {"GMMD\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 17},
    };

    int bystander = greeted();

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        int fd = greeted();

        cr_assert(raw_send(fd, wrong[i].bytes, wrong[i].size, -1));
        cr_expect(raw_ends(fd, 10), "case %zu", i);
        (void)close(fd);
    }
    cr_assert(raw_request(bystander, &(struct request){.id = 3, .method = METHOD_STATUS}, -1));
    raw_expect(bystander, 3, STATUS_OK);
    (void)close(bystander);
    expect_served();
}

Test(protocol, accepts_a_frame_byte_by_byte)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request request = {.id = 4, .method = METHOD_STATUS};
    int fd = greeted();

    cr_assert_eq(request_encode(&request, 0, &message), 0);
    for (size_t i = 0; i < message.size; i++)
        cr_assert(raw_send(fd, message.bytes + i, 1, -1));
    raw_expect(fd, 4, STATUS_OK);
    (void)close(fd);
}

Test(protocol, refuses_descriptors_that_a_method_does_not_take)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request request = {.id = 4, .method = METHOD_STATUS};
    int fd = greeted(), extra = memfd_create("extra", MFD_CLOEXEC);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part;
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);

    cr_assert_eq(request_encode(&request, 1, &message), 0);
    part = (struct iovec){message.bytes, message.size};
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    (void)memcpy(CMSG_DATA(rights), &extra, sizeof(int));
    cr_assert_gt(sendmsg(fd, &header, MSG_NOSIGNAL), 0);
    raw_expect(fd, 4, STATUS_INVALID_ARGUMENT);
    (void)close(fd);
}

Test(protocol, clients_that_die_at_any_byte_leave_nothing_behind)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request request = {.id = 2,
                                    .method = METHOD_BUFFER_CREATE,
                                    .body.buffer = {.kind = BUFFER_DEVICE, .size = 1 << 16}};
    gemmd *watcher = test_daemon_connect(&daemon_);
    unsigned before;

    expect_served(); /* the staging chunk that is kept */
    before = process_descriptors(daemon_.pid);
    cr_assert_eq(request_encode(&request, 0, &message), 0);
    for (size_t cut = 1; cut <= message.size; cut++) {
        int fd = greeted();

        cr_assert(raw_send(fd, message.bytes, cut, -1));
        (void)close(fd);
    }
    while (test_status_number(watcher, NULL, "clients") > 1 ||
           test_status_number(watcher, "buffers", "count") > 0)
        ; /* each look is a turn of the daemon's loop */
    cr_expect_leq(process_descriptors(daemon_.pid), before);
    cr_expect_eq(test_status_number(watcher, "buffers", "device_bytes"), 0);
    gemmd_close(watcher);
}

/* Its end, if it never reads: test_silence.c. */
Test(protocol, a_client_that_does_not_read_is_not_read_from_and_others_are_served)
{
    enum { MOST = 200000 };

    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request request = {.id = 4, .method = METHOD_STATUS};
    int fd = greeted(), sent = 0;

    cr_assert_eq(request_encode(&request, 0, &message), 0);
    cr_assert_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (sent < MOST && send(fd, message.bytes, message.size, MSG_NOSIGNAL) > 0)
        sent++;
    cr_expect_lt(sent, MOST, "its requests pile up on its own side");
    expect_served();
    (void)close(fd);
}
