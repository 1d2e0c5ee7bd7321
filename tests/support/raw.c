#include "raw.h"

#include "wire.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int raw_connect(const struct test_daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    (void)strcpy(address.sun_path, daemon->socket);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0, "%s",
                 strerror(errno));
    return fd;
}

int raw_greeted(const struct test_daemon *daemon)
{
    const struct request hello = {
        .id = 1, .method = METHOD_HELLO, .body.hello = {.version = PROTOCOL_VERSION}};
    int fd = raw_connect(daemon);

    cr_assert(raw_request(fd, &hello, -1));
    raw_expect(fd, 1, STATUS_OK);
    return fd;
}

bool raw_send(int fd, const void *bytes, size_t size, int passed)
{
    return wire_transmit(fd, bytes, size, passed);
}

bool raw_request(int fd, const struct request *request, int passed)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;

    cr_assert_eq(request_encode(request, passed >= 0 ? 1 : 0, &message), 0);
    return raw_send(fd, message.bytes, message.size, passed);
}

bool raw_receive(int fd, struct raw_reply *ret_reply)
{
    uint8_t header[FRAME_HEADER_SIZE];
    struct frame_header frame;
    struct reply reply;
    cleanup(freep) uint8_t *payload = NULL;
    cleanup(fd_closep) int passed = -1;

    if (!wire_receive(fd, header, sizeof(header), &passed))
        return false;
    cr_assert_eq(frame_decode(header, FRAME_LENGTH_MAX, &frame), 0);
    payload = malloc(frame.length);
    if (!wire_receive(fd, payload, frame.length, NULL))
        return false;
    cr_assert_eq(reply_decode(payload, frame.length, &reply), 0);
    *ret_reply = (struct raw_reply){.id = reply.id, .fault = reply.fault};
    if (reply.fault.status == STATUS_OK && reply.result)
        (void)reply_decode_buffer(&reply, &ret_reply->buffer);
    ret_reply->buffer.data = NULL;
    return true;
}

void raw_expect(int fd, uint32_t id, enum status status)
{
    struct raw_reply reply;

    cr_assert(raw_receive(fd, &reply), "the connection ended");
    cr_expect_eq(reply.id, id);
    cr_expect_eq(reply.fault.status, status, "%s: %s", status_name(reply.fault.status),
                 reply.fault.message);
}

void raw_expect_all(int fd, uint32_t first, uint32_t count, enum status status)
{
    bool *seen = calloc(count, sizeof(*seen));
    struct raw_reply reply;

    for (uint32_t i = 0; i < count; i++) {
        cr_assert(raw_receive(fd, &reply), "the connection ended");
        cr_assert(reply.id >= first && reply.id - first < count && !seen[reply.id - first],
                  "reply %u was not due", reply.id);
        seen[reply.id - first] = true;
        cr_expect_eq(reply.fault.status, status, "%s: %s", status_name(reply.fault.status),
                     reply.fault.message);
    }
    free(seen);
}

struct raw_reply raw_call(int fd, const struct request *request, int passed)
{
    struct raw_reply reply = {0};

    cr_assert(raw_request(fd, request, passed));
    cr_assert(raw_receive(fd, &reply), "the connection ended");
    cr_expect_eq(reply.id, request->id);
    return reply;
}

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

bool raw_ends(int fd, double seconds)
{
    const double end = now() + seconds;
    char bytes[4096];

    for (double left = seconds; left > 0; left = end - now()) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        if (poll(&ready, 1, (int)(left * 1000) + 1) > 0 &&
            recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
            return true;
    }
    return false;
}

struct request raw_product(uint32_t id, int64_t m, int64_t n, int64_t k)
{
    struct request request = {.id = id, .method = METHOD_GEMM};

    request.body.gemm.problem = (struct problem){
        .input = DTYPE_FP32, .output = DTYPE_FP32, .m = m, .n = n, .k = k, .batch = 1, .alpha = 1};
    for (int i = 0; i < OPERAND_COUNT; i++)
        request.body.gemm.problem.operand[i] =
            (struct problem_operand){.ld = PROBLEM_DEFAULT, .stride = PROBLEM_DEFAULT};
    return request;
}
