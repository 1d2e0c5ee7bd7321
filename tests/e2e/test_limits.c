/*
 * Every limit of daemon/limits.h is reached, answered by an error that names it, and felt by nobody
 * else. (The two that are times: test_silence.c.)
 *
 * Where work must pile up the worker is stopped by a signal, so that nothing finishes by chance.
 */
#include "../../daemon/limits.h"
#include "../support/process.h"
#include "../support/products.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *watcher;

static void start(void)
{
    static const char *const arguments[] = {"--mode", "0666", NULL};

    test_daemon_start(&daemon_, arguments);
    (void)chmod(daemon_.directory, 0755);
    watcher = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(watcher);
    test_daemon_stop(&daemon_);
}

TestSuite(limits, .init = start, .fini = stop, .timeout = 120);

static void expect_limit(const struct raw_reply *reply, const char *argument, const char *names)
{
    cr_expect_eq(reply->fault.status, STATUS_LIMIT, "%s", status_name(reply->fault.status));
    cr_expect_str_eq(reply->fault.argument, argument);
    cr_expect(strstr(reply->fault.message, names), "no \"%s\" in \"%s\"", names,
              reply->fault.message);
}

static void expect_served(void)
{
    const struct product_case p = {
        .input = DTYPE_FP32, .m = 7, .n = 5, .k = 3, .batch = 1, .alpha = 1, .place = PLACE_HOST};
    gemmd *other = test_daemon_connect(&daemon_);

    product_check(other, &p);
    gemmd_close(other);
}

/* Connections of this uid until one is refused; how many were taken. */
static int connect_until_refused(int fds[], int most, struct raw_reply *ret_refusal)
{
    const struct request hello = {
        .id = 1, .method = METHOD_HELLO, .body.hello = {.version = PROTOCOL_VERSION}};

    for (int i = 0; i < most; i++) {
        fds[i] = raw_connect(&daemon_);
        (void)raw_request(fds[i], &hello, -1);
        if (!raw_receive(fds[i], ret_refusal) || ret_refusal->id == REPLY_ID_LAST) {
            (void)close(fds[i]);
            return i;
        }
    }
    return most;
}

Test(limits, connections_of_one_uid_are_bounded)
{
    int fds[LIMIT_CLIENTS_PER_UID];
    struct raw_reply refusal = {0};
    int taken = connect_until_refused(fds, LIMIT_CLIENTS_PER_UID, &refusal);
    gemmd *late = NULL;
    gemmd_error error;

    cr_expect_eq(taken, LIMIT_CLIENTS_PER_UID - 1, "%d beside the watcher", taken);
    expect_limit(&refusal, "", "connections; the limit is 256");
    cr_expect_eq(gemmd_connect(daemon_.socket, &late, &error), GEMMD_LIMIT);
    cr_expect_eq(test_stats_number(watcher, NULL, "refused_connections"), 2);
    for (int i = 0; i < taken; i++)
        (void)close(fds[i]);
    while (test_status_number(watcher, NULL, "clients") > 1)
        ; /* each look is a turn of the daemon's loop */
    expect_served();
}

/* A child that holds as many connections as another uid may have, until the pipe is closed. */
static pid_t occupy(uid_t uid, int told, int kept)
{
    pid_t child = process_fork();

    if (child == 0) {
        static int fds[LIMIT_CLIENTS];
        struct raw_reply refusal = {0};
        char byte;

        if (setgid(uid) < 0 || setuid(uid) < 0)
            _exit(1);
        int taken = connect_until_refused(fds, LIMIT_CLIENTS, &refusal);

        (void)!write(told, &taken, sizeof(taken));
        (void)!read(kept, &byte, 1);
        _exit(0);
    }
    return child;
}

Test(limits, connections_of_all_uids_are_bounded)
{
    static const uid_t uids[] = {1234, 1235, 1236};
    pid_t children[ARRAY_SIZE(uids)];
    int told[2], kept[2], taken, sum = 1; /* the watcher */

    if (getuid() != 0)
        cr_skip_test("needs root, to become others");
    cr_assert_eq(pipe(told), 0);
    cr_assert_eq(pipe(kept), 0);
    for (size_t i = 0; i < ARRAY_SIZE(uids); i++) {
        children[i] = occupy(uids[i], told[1], kept[0]);
        cr_assert_eq(read(told[0], &taken, sizeof(taken)), sizeof(taken));
        cr_expect_leq(taken, LIMIT_CLIENTS_PER_UID);
        sum += taken;
    }
    cr_expect_eq(sum, LIMIT_CLIENTS);
    cr_expect_eq(test_status_number(watcher, NULL, "clients"), LIMIT_CLIENTS);
    for (size_t i = 0; i < ARRAY_SIZE(uids); i++) {
        (void)kill(children[i], SIGKILL);
        (void)waitpid(children[i], NULL, 0);
    }
    while (test_status_number(watcher, NULL, "clients") > 1)
        ;
    expect_served();
}

static void send_small_products(int fd, uint32_t first, uint32_t count, uint64_t buffer)
{
    for (uint32_t i = 0; i < count; i++) {
        struct request product = raw_product(first + i, 1, 1, 1);

        for (int role = 0; role < OPERAND_COUNT; role++)
            product.body.gemm.operand[role] = (struct request_operand){
                .kind = OPERAND_BUFFER, .buffer = buffer, .offset = role == OPERAND_D ? 64 : 0};
        cr_assert(raw_request(fd, &product, -1));
    }
}

static uint64_t create(int fd, enum buffer_kind kind, uint64_t size)
{
    const struct request request = {
        .id = 2,
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {.kind = kind, .size = size, .mode = BUFFER_MODE_DEFAULT}};
    struct raw_reply reply = raw_call(fd, &request, -1);

    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    return reply.buffer.id;
}

Test(limits, requests_in_flight_wait_on_the_clients_side)
{
    enum { MORE = 50 };

    int fd = raw_greeted(&daemon_);
    uint64_t buffer = create(fd, BUFFER_HOST, 4096);
    pid_t worker;

    worker = test_worker_hold(watcher);
    send_small_products(fd, 10, LIMIT_IN_FLIGHT + MORE, buffer);
    while (test_status_number(watcher, NULL, "jobs") < LIMIT_IN_FLIGHT)
        ;
    (void)poll(NULL, 0, 50); /* time for one too many */
    cr_expect_eq(test_status_number(watcher, NULL, "jobs"), LIMIT_IN_FLIGHT);
    test_worker_release(worker);
    raw_expect_all(fd, 10, LIMIT_IN_FLIGHT + MORE, STATUS_OK);
    (void)close(fd);
}

Test(limits, jobs_of_one_uid_are_bounded_over_its_connections)
{
    enum { CONNECTIONS = LIMIT_JOBS_PER_UID / LIMIT_IN_FLIGHT };

    int fds[CONNECTIONS], late = raw_greeted(&daemon_);
    uint64_t buffer = create(late, BUFFER_HOST, 4096);
    struct raw_reply reply = {0};
    pid_t worker;

    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = raw_greeted(&daemon_);
        (void)create(fds[i], BUFFER_HOST, 4096);
    }
    worker = test_worker_hold(watcher);
    for (int i = 0; i < CONNECTIONS; i++)
        send_small_products(fds[i], 10, LIMIT_IN_FLIGHT, buffer);
    while (test_status_number(watcher, NULL, "jobs") < LIMIT_JOBS_PER_UID)
        ;
    send_small_products(late, 7, 1, buffer);
    cr_assert(raw_receive(late, &reply));
    expect_limit(&reply, "", "jobs under way; the limit is 4096");
    test_worker_release(worker);
    for (int i = 0; i < CONNECTIONS; i++) {
        raw_expect_all(fds[i], 10, LIMIT_IN_FLIGHT, STATUS_OK);
        (void)close(fds[i]);
    }
    send_small_products(late, 8, 1, buffer);
    raw_expect(late, 8, STATUS_OK);
    (void)close(late);
}

Test(limits, buffers_of_one_uid_are_bounded)
{
    const struct request one_more = {
        .id = 9, .method = METHOD_BUFFER_CREATE, .body.buffer = {.kind = BUFFER_HOST, .size = 1}};
    int fd = raw_greeted(&daemon_);
    struct raw_reply reply;

    int made = -1;

    do {
        reply = raw_call(fd, &one_more, -1);
        made++;
    } while (reply.fault.status == STATUS_OK);
    expect_limit(&reply, "", "buffers; the limit is ");
    /* Fewer where descriptors are scarce. */
    cr_expect_leq(made, LIMIT_BUFFERS_PER_UID);
    cr_expect_geq(made, 64);
    (void)close(fd);
    while (test_status_number(watcher, "buffers", "count") > 0)
        ;
    cr_expect_eq(test_status_number(watcher, "buffers", "host_bytes"), 0);
    expect_served();
}

/* A handle costs a place in a table, whoever pays for the buffer. */
Test(limits, handles_of_a_connection_are_bounded)
{
    gemmd *connection = test_daemon_connect(&daemon_);
    gemmd_buffer *buffer = NULL;
    gemmd_status status;
    int opened = 0;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 64, "one", 0600, &buffer), GEMMD_OK);
    do {
        status = gemmd_buffer_open(connection, "one", false, &buffer);
        opened += status == GEMMD_OK;
    } while (status == GEMMD_OK && opened <= LIMIT_BUFFERS_PER_UID);
    cr_expect_eq(status, GEMMD_LIMIT);
    cr_expect_eq(opened, LIMIT_BUFFERS_PER_UID - 1);
    gemmd_close(connection);
}

Test(limits, claims_are_charged_before_anything_is_mapped)
{
    const uint64_t claim = 100ull << 30;
    const struct request request = {
        .id = 3,
        .method = METHOD_BUFFER_REGISTER,
        .body.buffer = {.size = claim, .writable = true},
    };
    cleanup(fd_closep) int sparse = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = raw_greeted(&daemon_);
    struct raw_reply reply;

    cr_assert_eq(ftruncate(sparse, (off_t)claim), 0);
    cr_assert_eq(fcntl(sparse, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (int i = 0; i < 3; i++) {
        reply = raw_call(fd, &request, sparse);
        expect_limit(&reply, "size", "bytes of host memory; the limit is");
    }
    struct stat status;

    cr_assert_eq(fstat(sparse, &status), 0);
    cr_expect_eq(status.st_blocks, 0);
    cr_expect_eq(test_status_number(watcher, "buffers", "host_bytes"), 0);
    (void)close(fd);
    expect_served();
}

Test(limits, bytes_of_device_memory_are_bounded)
{
    const struct request request = {
        .id = 3,
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {.kind = BUFFER_DEVICE, .size = LIMIT_DEVICE_BYTES_PER_UID + 1},
    };
    int fd = raw_greeted(&daemon_);
    struct raw_reply reply = raw_call(fd, &request, -1);

    expect_limit(&reply, "size", "bytes of device memory; the limit is");
    (void)close(fd);
    expect_served();
}

static struct request read_request(uint32_t id, uint64_t buffer, uint64_t length)
{
    return (struct request){
        .id = id, .method = METHOD_BUFFER_READ, .body.buffer = {.id = buffer, .length = length}};
}

Test(limits, inline_bytes_of_one_uid_are_bounded)
{
    enum { FIT = LIMIT_INLINE_BYTES_PER_UID / REQUEST_INLINE_MAX };

    int fds[FIT + 1];
    uint64_t buffers[FIT + 1];
    struct raw_reply reply = {0};
    pid_t worker;

    for (int i = 0; i <= FIT; i++) {
        fds[i] = raw_greeted(&daemon_);
        buffers[i] = create(fds[i], BUFFER_HOST, REQUEST_INLINE_MAX);
    }
    worker = test_worker_hold(watcher);
    for (int i = 0; i <= FIT; i++) {
        const struct request read = read_request(4, buffers[i], REQUEST_INLINE_MAX);

        cr_assert(raw_request(fds[i], &read, -1));
        while (i < FIT && test_status_number(watcher, NULL, "jobs") < i + 1)
            ;
    }
    cr_assert(raw_receive(fds[FIT], &reply));
    expect_limit(&reply, "", "bytes of inline operands; the limit is");
    test_worker_release(worker);
    for (int i = 0; i < FIT; i++)
        raw_expect(fds[i], 4, STATUS_OK);
    for (int i = 0; i <= FIT; i++)
        (void)close(fds[i]);
}

/* What a client may have under way fits into what waits for it: being busy costs it nothing. */
Test(limits, a_client_that_is_busy_for_two_seconds_loses_nothing)
{
    enum { READS = 12 };

    int fd = raw_greeted(&daemon_);
    uint64_t buffer = create(fd, BUFFER_HOST, REQUEST_INLINE_MAX);

    for (uint32_t i = 0; i < READS; i++) {
        const struct request read = read_request(10 + i, buffer, REQUEST_INLINE_MAX);

        cr_assert(raw_request(fd, &read, -1));
    }
    (void)poll(NULL, 0, 2000); /* busy */
    raw_expect_all(fd, 10, READS, STATUS_OK);
    (void)close(fd);
}

Test(limits, bytes_of_unfinished_frames_are_bounded_over_the_connections_of_one_uid)
{
    enum { PART = 15 << 20, FIT = LIMIT_MESSAGE_BYTES_PER_UID / FRAME_LENGTH_MAX, MOST = FIT + 4 };

    uint8_t *frame = calloc(1, FRAME_HEADER_SIZE + PART);
    int fds[MOST], n = 0;
    struct raw_reply reply = {0};

    frame_encode(frame, FRAME_LENGTH_MAX, 0);
    do {
        fds[n] = raw_greeted(&daemon_);
    } while (raw_send(fds[n], frame, FRAME_HEADER_SIZE + PART, -1) && ++n < MOST);
    cr_expect_geq(n, FIT - 1);
    cr_assert_lt(n, MOST, "all were taken");
    cr_assert(raw_receive(fds[n], &reply));
    cr_expect_eq(reply.id, REPLY_ID_LAST);
    expect_limit(&reply, "", "unfinished frames");
    cr_expect_eq(test_status_number(watcher, NULL, "clients"), 1 + n, "the others stay");
    for (int i = 0; i <= n; i++)
        (void)close(fds[i]);
    free(frame);
    expect_served();
}

/* With few descriptors in all, one uid's buffers leave enough for the others. */
Test(limits, buffers_leave_descriptors_for_others)
{
    struct rlimit limit = {.rlim_cur = 256, .rlim_max = 256};
    struct test_daemon small = {0};
    gemmd *mine, *other;
    gemmd_buffer *buffer;

    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    test_daemon_start(&small, NULL);
    mine = test_daemon_connect(&small);
    while (gemmd_buffer_create(mine, GEMMD_HOST, 64, NULL, 0, &buffer) == GEMMD_OK)
        ;
    cr_expect_eq(gemmd_last_error(mine)->status, GEMMD_LIMIT);
    other = test_daemon_connect(&small);
    const struct product_case p = {
        .input = DTYPE_FP32, .m = 3, .n = 5, .k = 7, .batch = 1, .alpha = 1};

    product_check(other, &p);
    gemmd_close(mine);
    gemmd_close(other);
    test_daemon_stop(&small);
}

/* Whatever it asks for: what waits for it stays bounded, and the others are served meanwhile. */
Test(limits, a_client_that_never_reads_is_bounded_and_others_are_served)
{
    enum { READS = 200, BOUND_MIB = 64 };

    int fd = raw_greeted(&daemon_);
    uint64_t buffer = create(fd, BUFFER_HOST, REQUEST_INLINE_MAX);
    unsigned long before = process_resident_kib(daemon_.pid), most = 0;

    for (uint32_t i = 0; i < READS; i++) {
        const struct request read = read_request(10 + i, buffer, REQUEST_INLINE_MAX);

        cr_assert(raw_request(fd, &read, -1));
    }
    for (int i = 0; i < 100; i++) {
        most = MAX(most, process_resident_kib(daemon_.pid));
        expect_served();
        (void)poll(NULL, 0, 5);
    }
    /* Twice: the same bytes lie in shared staging memory while they are copied. */
    cr_expect_leq(most, before + 2 * BOUND_MIB * 1024, "%lu MiB", (most - before) >> 10);
    (void)close(fd);
    while (test_status_number(watcher, NULL, "clients") > 1)
        ;
    cr_expect_eq(test_status_number(watcher, "buffers", "staged_bytes"), 0);
}
