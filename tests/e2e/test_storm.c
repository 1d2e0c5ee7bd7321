/*
 * A storm of valid, nearly valid and senseless messages with and without descriptors, from several
 * connections at once. After each burst the daemon serves a fresh client right, and when the
 * connections are closed nothing of them is left.
 *
 * Seeded: GEMMD_STORM_SEED repeats a run (it is printed when one fails), GEMMD_STORM_SECONDS is how
 * long it goes on.
 */
#include "../support/process.h"
#include "../support/products.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 6, MESSAGES = 400 };

#define BUFFER_SIZE (256u << 10) /* bounds what a product can cost */

struct peer {
    int fd;
    uint64_t buffers[8]; /* numbers that were seen in replies */
};

static struct test_daemon daemon_;
static struct peer peers[CONNECTIONS];
static unsigned seed;

static unsigned draw(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
}

static uint64_t odd_number(void)
{
    static const uint64_t numbers[] = {
        0,          1,          2,         3,          7,
        8,          16,         64,        255,        4096,
        65535,      65536,      1u << 20,  1u << 31,   UINT32_MAX,
        1ull << 32, 1ull << 40, INT64_MAX, 1ull << 63, UINT64_MAX - 1,
        UINT64_MAX,
    };

    return numbers[draw(ARRAY_SIZE(numbers))];
}

/* --- requests -------------------------------------------------------------------------------- */

static uint64_t some_buffer(const struct peer *peer)
{
    return chance(95) ? peer->buffers[draw(ARRAY_SIZE(peer->buffers))] : odd_number();
}

static int64_t some_size(void)
{
    return chance(90) ? (int64_t)draw(70) : (int64_t)(odd_number() & INT64_MAX);
}

static void make_product(struct request *request, const struct peer *peer)
{
    static uint8_t data[16384];

    static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32, DTYPE_FP64, DTYPE_INT8};
    struct request_gemm *gemm = &request->body.gemm;

    *request = raw_product(request->id, some_size(), some_size(), some_size());
    gemm->problem.input = types[draw(ARRAY_SIZE(types))];
    gemm->problem.output = chance(80) ? dtype_default_output(gemm->problem.input)
                                      : (enum dtype)(1 + draw(DTYPE_COUNT - 1));
    gemm->problem.batch = chance(80) ? 1 : some_size();
    gemm->problem.alpha = draw(3);
    gemm->problem.beta = draw(3);
    gemm->problem.trans_a = chance(50);
    gemm->problem.trans_b = chance(50);
    gemm->column_major = chance(30);
    gemm->deadline_us = chance(10) ? odd_number() : 0;
    gemm->priority = chance(98) ? (int)draw(3) - 1 : 2;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        struct request_operand *operand = &gemm->operand[i];

        operand->kind = (enum operand_kind)draw(i == OPERAND_D ? 2 : 3);
        operand->buffer = some_buffer(peer);
        operand->offset = chance(90) ? 64 * draw(1024) : odd_number();
        operand->data = data;
        operand->size = chance(50) ? draw(sizeof(data)) : 0;
        if (chance(20))
            gemm->problem.operand[i].ld = some_size();
        if (chance(20))
            gemm->problem.operand[i].stride = some_size();
    }
}

/* Ids are REQUEST_PRODUCTS_MAX apart. */
static void make_products(struct request *request, const struct peer *peer)
{
    static struct request_product products[REQUEST_PRODUCTS_MAX + 1];
    struct request one = {.id = request->id};

    request->body.many = (struct request_many){
        .products = products,
        .count = chance(95) ? 1 + draw(6) : draw(2) * ARRAY_SIZE(products),
    };
    for (size_t i = 0; i < request->body.many.count; i++) {
        make_product(&one, peer);
        products[i].gemm = one.body.gemm;
    }
}

static void make_buffer_request(struct request *request, const struct peer *peer)
{
    static uint8_t data[60000];
    static const char *const names[] = {"storm", "gale", "a/b", "", "\x01"};
    struct request_buffer *body = &request->body.buffer;
    const char *name = names[draw(ARRAY_SIZE(names))];

    /* Either little, or more than the daemon will give: the memory of this machine is shared. */
    *body = (struct request_buffer){
        .kind = (enum buffer_kind)(1 + draw(2)),
        .size = chance(85) ? 1 + draw(BUFFER_SIZE) : 1ull << (41 + draw(22)),
        .mode = chance(90) ? 0600 : (uint32_t)odd_number(),
        .writable = chance(70),
        .id = some_buffer(peer),
        .offset = chance(80) ? draw(BUFFER_SIZE) : odd_number(),
        .data = data,
    };
    if (request->method == METHOD_BUFFER_OPEN || chance(30)) {
        body->name = name;
        body->name_size = strlen(name);
    }
    body->length =
        request->method == METHOD_BUFFER_READ && chance(10) ? odd_number() : draw(sizeof(data));
}

static void make_request(struct request *request, const struct peer *peer, uint32_t id)
{
    *request = (struct request){.id = id, .method = (enum method)draw(METHOD_COUNT)};
    switch (request->method) {
    case METHOD_HELLO:
        request->body.hello.version = chance(80) ? 1 : (uint32_t)odd_number();
        break;
    case METHOD_GEMM:
    case METHOD_EXPLAIN:
    case METHOD_TUNE:
        make_product(request, peer);
        if (chance(90))
            request->method = METHOD_GEMM;
        break;
    case METHOD_GEMM_MANY:
        make_products(request, peer);
        break;
    case METHOD_CANCEL:
        request->body.cancel =
            chance(90) ? id - MIN(id, draw(64) * REQUEST_PRODUCTS_MAX) : (uint32_t)odd_number();
        break;
    case METHOD_BUFFER_COPY:
        request->body.copy = (struct request_copy){
            .source = some_buffer(peer),
            .destination = some_buffer(peer),
            .source_offset = chance(80) ? draw(BUFFER_SIZE) : odd_number(),
            .destination_offset = chance(80) ? draw(BUFFER_SIZE) : odd_number(),
            .length = chance(80) ? draw(4096) : odd_number(),
        };
        break;
    case METHOD_CACHE_PREWARM:
    case METHOD_CACHE_PRUNE:
        request->body.cache = (struct request_cache){
            .configuration = "sm80.bf16", .configuration_size = 9, .max_bytes = odd_number()};
        break;
    default:
        make_buffer_request(request, peer);
    }
}

/* --- descriptors ----------------------------------------------------------------------------- */

static int memfd(off_t size, int seals)
{
    int fd = memfd_create("storm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    cr_assert_eq(ftruncate(fd, size), 0);
    (void)fcntl(fd, F_ADD_SEALS, seals);
    return fd;
}

static int some_descriptor(void)
{
    switch (draw(6)) {
    case 0:
        return memfd(BUFFER_SIZE, 0);
    case 1:
        return memfd(100, F_SEAL_SHRINK);
    case 2:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 3:
        return memfd(1ll << 40, F_SEAL_SHRINK);
    default:
        return memfd(BUFFER_SIZE, F_SEAL_SHRINK);
    }
}

/* --- sending --------------------------------------------------------------------------------- */

static void reconnect(struct peer *peer)
{
    const struct request hello = {
        .id = 1, .method = METHOD_HELLO, .body.hello = {.version = PROTOCOL_VERSION}};

    if (peer->fd >= 0)
        (void)close(peer->fd);
    peer->fd = raw_connect(&daemon_);
    if (chance(95))
        (void)raw_request(peer->fd, &hello, -1);
}

static void send_bytes(struct peer *peer, const uint8_t *bytes, size_t size, int n_fds)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[8];

    for (int i = 0; i < n_fds; i++)
        fds[i] = some_descriptor();
    if (n_fds > 0) {
        struct cmsghdr *c = (struct cmsghdr *)control;

        *c = (struct cmsghdr){CMSG_LEN((size_t)n_fds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
    }
    if (sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < (ssize_t)size)
        reconnect(peer); /* it was ended, or does not read because we do not */
    for (int i = 0; i < n_fds; i++)
        (void)close(fds[i]);
}

static void damage(struct message *message)
{
    for (unsigned n = 1 + draw(4); n > 0; n--) {
        size_t at = draw(2) ? FRAME_HEADER_SIZE + draw((unsigned)message->size - FRAME_HEADER_SIZE)
                            : draw((unsigned)message->size);

        message->bytes[at] = chance(50) ? (uint8_t)draw(256) : message->bytes[at] ^ (1u << draw(8));
    }
}

static void send_one(struct peer *peer, uint32_t id)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    struct request request;
    bool wants_fd;
    int n_fds;

    make_request(&request, peer, id);
    wants_fd = request.method == METHOD_BUFFER_REGISTER || request.method == METHOD_BUFFER_IMPORT;
    n_fds = chance(95) ? wants_fd : (int)draw(8);
    cr_assert_eq(request_encode(&request, chance(95) ? (uint16_t)n_fds : 1, &message), 0);
    /* A damaged name would stay: who knows it could remove it. */
    if (chance(15) && !(request.method == METHOD_BUFFER_CREATE && request.body.buffer.name))
        damage(&message);
    if (chance(3))
        message.size -= draw((unsigned)message.size); /* what follows completes it, badly */
    if (message.size > 0)
        send_bytes(peer, message.bytes, message.size, n_fds);
    if (chance(2))
        reconnect(peer);
}

/* What has arrived, without waiting for more. Numbers of buffers are remembered. */
static void take_replies(struct peer *peer)
{
    struct pollfd ready = {.fd = peer->fd, .events = POLLIN};

    while (poll(&ready, 1, 0) > 0) {
        struct raw_reply reply;

        if (!raw_receive(peer->fd, &reply)) {
            reconnect(peer);
            return;
        }
        if (reply.fault.status == STATUS_OK && reply.buffer.id != 0)
            peer->buffers[draw(ARRAY_SIZE(peer->buffers))] = reply.buffer.id;
    }
}

/* --- the storm ------------------------------------------------------------------------------- */

static void expect_served(void)
{
    const struct product_case p = {
        .input = DTYPE_FP32, .m = 19, .n = 23, .k = 29, .batch = 2, .alpha = 1, .beta = 1};
    gemmd *fresh = test_daemon_connect(&daemon_);

    product_check(fresh, &p);
    gemmd_close(fresh);
}

static void forget_names(gemmd *watcher)
{
    static const char *const names[] = {"storm", "gale"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        gemmd_buffer *left = NULL;

        if (gemmd_buffer_open(watcher, names[i], false, &left) == GEMMD_OK)
            gemmd_buffer_free(left);
    }
}

static void expect_nothing_left(gemmd *watcher, unsigned descriptors)
{
    for (int i = 0; i < CONNECTIONS; i++)
        (void)close(steal(peers[i].fd, -1));
    while (test_status_number(watcher, NULL, "clients") > 1)
        ; /* each look is a turn of the daemon's loop */
    forget_names(watcher);
    for (int i = 0; i < 60000 && (test_status_number(watcher, NULL, "jobs") > 0 ||
                                  test_status_number(watcher, "buffers", "count") > 0);
         i++)
        (void)poll(NULL, 0, 1); /* what the worker has begun, it ends */
    cr_assert_eq(test_status_number(watcher, NULL, "jobs"), 0);
    cr_assert_eq(test_status_number(watcher, "buffers", "count"), 0);
    cr_assert_eq(test_status_number(watcher, "buffers", "host_bytes"), 0);
    cr_assert_eq(test_status_number(watcher, "buffers", "device_bytes"), 0);
    cr_assert_leq(process_descriptors(daemon_.pid), descriptors + test_kernel_descriptors());
}

static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text ? strtoul(text, NULL, 10) : otherwise;
}

Test(storm, is_weathered, .timeout = 280)
{
    const time_t end = time(NULL) + (time_t)setting("GEMMD_STORM_SECONDS", 10);
    unsigned burst = (unsigned)setting("GEMMD_STORM_SEED", 1), descriptors;
    gemmd *watcher;

    test_daemon_start(&daemon_, NULL);
    watcher = test_daemon_connect(&daemon_);
    expect_served();
    descriptors = process_descriptors(daemon_.pid);
    for (int i = 0; i < CONNECTIONS; i++)
        peers[i].fd = -1;
    for (; time(NULL) < end; burst++) {
        seed = burst;
        (void)fprintf(stderr, "\rGEMMD_STORM_SEED=%u ", burst);
        for (int i = 0; i < CONNECTIONS; i++)
            reconnect(&peers[i]);
        for (uint32_t i = 0; i < MESSAGES; i++) {
            struct peer *peer = &peers[draw(CONNECTIONS)];

            send_one(peer, i * REQUEST_PRODUCTS_MAX);
            if (chance(60))
                take_replies(peer);
        }
        expect_served();
        expect_nothing_left(watcher, descriptors);
        cr_assert_eq(test_status_number(watcher, "worker", "deaths"), 0);
    }
    gemmd_close(watcher);
    test_daemon_stop(&daemon_);
}
