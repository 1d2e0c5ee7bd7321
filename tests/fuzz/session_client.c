#include "session_client.h"

#include "../../proto/reply.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static uint8_t data_bytes[2048];

/* --- fields ---------------------------------------------------------------------------------- */

static uint64_t buffer(const struct fuzz_client *client, struct session_input *input)
{
    uint8_t choice = input_byte(input);

    return choice < 250 ? client->buffers[choice % CLIENT_BUFFERS] : input_number(input);
}

static int64_t size_of(struct session_input *input)
{
    uint8_t choice = input_byte(input);

    return choice < 240 ? choice % 20 : (int64_t)(input_number(input) & INT64_MAX);
}

static void make_product(struct request_gemm *gemm,
                         const struct fuzz_client *client,
                         struct session_input *input)
{
    struct problem *problem = &gemm->problem;
    uint8_t flags = input_byte(input);

    *gemm = (struct request_gemm){
        .problem = {.input = (enum dtype)(1 + input_below(input, DTYPE_COUNT - 1)),
                    .m = size_of(input),
                    .n = size_of(input),
                    .k = size_of(input),
                    .batch = 1,
                    .alpha = 1}};
    problem->output = dtype_default_output(problem->input);
    problem->trans_a = flags & 1;
    problem->trans_b = flags & 2;
    gemm->column_major = flags & 4;
    problem->beta = flags & 8 ? 1 : 0;
    gemm->deadline_us = flags & 16 ? input_number(input) : 0;
    gemm->priority = flags & 32 ? (int)input_below(input, 3) - 1 : 0;
    problem->batch = flags & 64 ? size_of(input) : 1;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        uint8_t how = input_byte(input);

        problem->operand[i].ld = how & 64 ? size_of(input) : PROBLEM_DEFAULT;
        problem->operand[i].stride = how & 128 ? size_of(input) : PROBLEM_DEFAULT;
        gemm->operand[i] = (struct request_operand){.kind = (enum operand_kind)(how % 3),
                                                    .buffer = buffer(client, input),
                                                    .offset = 64u * (how & 7),
                                                    .data = data_bytes,
                                                    .size = how & 32 ? input_byte(input) : 0};
    }
}

/* Inputs of the right size, results inline: most draws of make_product() are refused. */
static void make_sound_product(struct request_gemm *gemm, struct session_input *input)
{
    make_product(gemm, &(struct fuzz_client){.fd = -1}, &(struct session_input){NULL, 0});
    gemm->problem.input = DTYPE_FP32;
    gemm->problem.output = DTYPE_FP32;
    gemm->problem.m = 1 + input_below(input, 8);
    gemm->problem.n = 1 + input_below(input, 8);
    gemm->problem.k = 1 + input_below(input, 8);
    gemm->operand[OPERAND_A] = (struct request_operand){
        .kind = OPERAND_INLINE,
        .data = data_bytes,
        .size = (size_t)(gemm->problem.m * gemm->problem.k) * sizeof(float)};
    gemm->operand[OPERAND_B] = (struct request_operand){
        .kind = OPERAND_INLINE,
        .data = data_bytes,
        .size = (size_t)(gemm->problem.k * gemm->problem.n) * sizeof(float)};
    gemm->operand[OPERAND_C] = gemm->operand[OPERAND_D] =
        (struct request_operand){.kind = OPERAND_ABSENT};
}

static void make_buffer_request(struct request_buffer *body,
                                const struct fuzz_client *client,
                                struct session_input *input)
{
    static const char *const names[] = {"one", "two", "a/b", "\x01"};
    uint8_t flags = input_byte(input);

    *body = (struct request_buffer){
        .kind = (enum buffer_kind)(1 + (flags & 1)),
        .size = flags & 2 ? input_number(input) : 4096,
        .mode = flags & 4 ? (uint32_t)input_number(input) : 0600,
        .writable = flags & 8,
        .exportable = flags & 16,
        .id = buffer(client, input),
        .offset = flags & 32 ? input_number(input) : 0,
        .data = data_bytes,
        .length = input_byte(input),
    };
    if (flags & 64) {
        body->name = names[input_below(input, ARRAY_SIZE(names))];
        body->name_size = strlen(body->name);
    }
    if (flags & 128)
        body->handle = data_bytes;
}

static struct request_product products[3];

static void
make_body(struct request *request, const struct fuzz_client *client, struct session_input *input)
{
    switch (request->method) {
    case METHOD_HELLO:
        request->body.hello.version = input_below(input, 3);
        break;
    case METHOD_GEMM:
    case METHOD_EXPLAIN:
    case METHOD_TUNE:
        if (input_byte(input) & 1)
            make_sound_product(&request->body.gemm, input);
        else
            make_product(&request->body.gemm, client, input);
        break;
    case METHOD_GEMM_MANY:
        request->body.many.products = products;
        request->body.many.count = 1 + input_below(input, ARRAY_SIZE(products));
        for (size_t i = 0; i < request->body.many.count; i++)
            make_sound_product(&products[i].gemm, input);
        break;
    case METHOD_CANCEL:
        request->body.cancel = request->id - input_below(input, 8);
        break;
    case METHOD_BUFFER_COPY:
        request->body.copy = (struct request_copy){.source = buffer(client, input),
                                                   .destination = buffer(client, input),
                                                   .source_offset = input_byte(input),
                                                   .destination_offset = input_number(input),
                                                   .length = input_byte(input)};
        break;
    case METHOD_CACHE_PREWARM:
    case METHOD_CACHE_PRUNE:
        request->body.cache =
            (struct request_cache){.configuration = "sm80.bf16", .configuration_size = 9};
        break;
    default:
        make_buffer_request(&request->body.buffer, client, input);
    }
}

/* --- descriptors ----------------------------------------------------------------------------- */

static int sealed_memfd(off_t size, int seals)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    /* Out of descriptors or memory there is nothing to send: -1. */
    if (fd >= 0 && ftruncate(fd, size) < 0) {
        (void)close(fd);
        return -1;
    }
    (void)fcntl(fd, F_ADD_SEALS, seals);
    return fd;
}

static int descriptor(struct session_input *input)
{
    int ends[2] = {-1, -1};

    switch (input_below(input, 8)) {
    case 0:
        return sealed_memfd(4096, 0);
    case 1:
        return sealed_memfd(100, F_SEAL_SHRINK);
    case 2:
        return sealed_memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE);
    case 3:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 4:
        if (pipe2(ends, O_CLOEXEC) == 0)
            (void)close(ends[1]);
        return ends[0];
    case 5:
        (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
        (void)close(ends[1]);
        return ends[0];
    default:
        return sealed_memfd(4096, F_SEAL_SHRINK);
    }
}

/* --- sending --------------------------------------------------------------------------------- */

static void send_with(
    const struct fuzz_client *client, const void *bytes, size_t size, const int *fds, size_t n)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (n > 0) {
        struct cmsghdr *header;

        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n * sizeof(int));
        header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n * sizeof(int));
    }
    /* What does not fit is not sent: then the rest of a frame is missing, which is an input too. */
    (void)!sendmsg(client->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_request(struct fuzz_client *client, const struct request *request, int fd)
{
    struct message message = MESSAGE_NULL;

    if (request_encode(request, fd >= 0 ? 1 : 0, &message) == 0)
        send_with(client, message.bytes, message.size, &fd, fd >= 0 ? 1 : 0);
    message_deinit(&message);
}

void fuzz_client_hello(struct fuzz_client *client)
{
    const struct request request = {
        .id = client->next_id++, .method = METHOD_HELLO, .body.hello = {.version = 1}};

    send_request(client, &request, -1);
}

static bool takes_descriptor(const struct request *request)
{
    return request->method == METHOD_BUFFER_REGISTER ||
           (request->method == METHOD_BUFFER_IMPORT && !request->body.buffer.handle);
}

/* A request, whole; or with a byte of it changed, or in two parts, or only the first of them. */
static void send_some_request(struct fuzz_client *client, struct session_input *input)
{
    struct request request = {.id = client->next_id,
                              .method = (enum method)input_below(input, METHOD_COUNT)};
    struct message message = MESSAGE_NULL;
    uint8_t how = input_byte(input);
    bool has_fd;
    int fd = -1;
    size_t first;

    client->next_id += 4; /* more than gemm_many's products */
    make_body(&request, client, input);
    has_fd = takes_descriptor(&request) != (how >= 240);
    if (request_encode(&request, has_fd ? 1 : 0, &message) != 0)
        return;
    if (has_fd)
        fd = descriptor(input);
    if (how % 8 == 1)
        message.bytes[(size_t)input_byte(input) * 7 % message.size] = input_byte(input);
    first = how % 8 == 2 || how % 8 == 3 ? (size_t)input_byte(input) * 3 % message.size + 1
                                         : message.size;
    send_with(client, message.bytes, first, &fd, fd >= 0 ? 1 : 0);
    if (how % 8 == 2 && first < message.size)
        send_with(client, message.bytes + first, message.size - first, NULL, 0);
    message_deinit(&message);
    fd_closep(&fd);
}

static void send_bytes(struct fuzz_client *client, struct session_input *input)
{
    size_t size = MIN((size_t)input_byte(input), input->size);
    int fds[3];
    size_t n = input_below(input, 4);

    size = MIN(size, input->size);
    for (size_t i = 0; i < n; i++)
        fds[i] = descriptor(input);
    size = MIN(size, input->size);
    if (size > 0)
        send_with(client, input->data, size, fds, n);
    input->data += size;
    input->size -= size;
    for (size_t i = 0; i < n; i++)
        fd_closep(&fds[i]);
}

void fuzz_client_act(struct fuzz_client *client, struct session_input *input)
{
    switch (input_below(input, 16)) {
    case 0:
        send_bytes(client, input);
        break;
    case 1:
        fuzz_client_hello(client);
        break;
    case 2:
        (void)shutdown(client->fd, input_byte(input) & 1 ? SHUT_WR : SHUT_RD);
        break;
    default:
        send_some_request(client, input);
    }
}

/* --- reading --------------------------------------------------------------------------------- */

static void take_reply(struct fuzz_client *client, const uint8_t *payload, size_t size)
{
    struct reply reply;
    struct reply_buffer made;

    if (reply_decode(payload, size, &reply) != 0)
        abort(); /* the daemon said something that is no reply */
    if (reply.fault.status == STATUS_OK && reply_decode_buffer(&reply, &made) == 0 && made.id != 0)
        client->buffers[client->buffers_seen++ % CLIENT_BUFFERS] = made.id;
}

/* Replies over the size of the room are passed over: only their head is looked at. */
static void take_replies(struct fuzz_client *client)
{
    size_t at = 0;
    struct frame_header header;

    while (client->replies_size - at >= FRAME_HEADER_SIZE) {
        if (frame_decode(client->replies + at, FRAME_LENGTH_MAX, &header) != 0)
            abort();
        if (client->replies_size - at < FRAME_HEADER_SIZE + header.length)
            break;
        take_reply(client, client->replies + at + FRAME_HEADER_SIZE, header.length);
        at += FRAME_HEADER_SIZE + header.length;
    }
    client->replies_size -= at;
    memmove(client->replies, client->replies + at, client->replies_size);
}

static void close_received(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            (void)close(fd);
        }
    }
}

void fuzz_client_read(struct fuzz_client *client)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
    struct iovec part = {.iov_base = client->replies + client->replies_size,
                         .iov_len = sizeof(client->replies) - client->replies_size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ssize_t n;

    if (part.iov_len == 0)
        return; /* a reply that is larger: nothing more is read, as by a client that is stuck */
    n = recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return;
    close_received(&message);
    client->replies_size += (size_t)n;
    take_replies(client);
}

void fuzz_client_close(struct fuzz_client *client)
{
    fd_closep(&client->fd);
}
