/*
 * Clients that die at every step of the protocol, thousands of times, with buffers registered and
 * jobs under way: nothing of them stays in the daemon or its worker.
 */
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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *watcher;
static pid_t worker;

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
    watcher = test_daemon_connect(&daemon_);
    worker = test_worker_pid(watcher);
}

static void stop(void)
{
    gemmd_close(watcher);
    test_daemon_stop(&daemon_);
}

TestSuite(churn, .init = start, .fini = stop, .timeout = 100);

struct footprint {
    unsigned front_descriptors, front_mappings, worker_descriptors, worker_mappings;
    unsigned long front_kib, worker_kib;
};

static struct footprint measure(void)
{
    return (struct footprint){
        .front_descriptors = process_descriptors(daemon_.pid),
        .front_mappings = process_mappings(daemon_.pid),
        .worker_descriptors = process_descriptors(worker),
        .worker_mappings = process_mappings(worker),
        .front_kib = process_resident_kib(daemon_.pid),
        .worker_kib = process_resident_kib(worker),
    };
}

static void settle(void)
{
    while (test_status_number(watcher, NULL, "clients") > 1 ||
           test_status_number(watcher, NULL, "jobs") > 0 ||
           test_status_number(watcher, "buffers", "count") > 0)
        ; /* each look is a turn of the daemon's loop */
    cr_expect_eq(test_status_number(watcher, "buffers", "host_bytes"), 0);
    cr_expect_eq(test_status_number(watcher, "buffers", "device_bytes"), 0);
    cr_expect_eq(test_status_number(watcher, "buffers", "staged_bytes"), 0);
    /* What the worker was told to let go it has let go when it answers once more. */
    gemmd_buffer *last = NULL;

    cr_assert_eq(gemmd_buffer_create(watcher, GEMMD_HOST, 4096, NULL, 0, &last), GEMMD_OK);
    gemmd_buffer_free(last);
    (void)poll(NULL, 0, 50);
}

/* The heap's high mark and pages of libraries move a little; a leak of 64 bytes a life is seen. */
static void expect_flat(const struct footprint *before, int lives)
{
    const unsigned long slack = 1024 + (unsigned long)lives / 16;
    struct footprint after = measure();

    cr_expect_leq(after.front_descriptors, before->front_descriptors + test_kernel_descriptors());
    cr_expect_leq(after.worker_descriptors, before->worker_descriptors);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for a while */
    /* Kernels bring threads for the disk, and those stacks. */
    cr_expect_leq(after.front_mappings, before->front_mappings + (test_device_is_cpu() ? 2 : 32));
    cr_expect_leq(after.worker_mappings, before->worker_mappings + 2);
    cr_expect_leq(after.front_kib, before->front_kib + slack, "front: %lu KiB more",
                  after.front_kib - before->front_kib);
    cr_expect_leq(after.worker_kib, before->worker_kib + slack, "worker: %lu KiB more",
                  after.worker_kib - before->worker_kib);
#endif
    (void)slack;
}

/* --- a life, cut at any step ----------------------------------------------------------------- */

enum step {
    STEP_CONNECT,
    STEP_HELLO_SENT,
    STEP_HELLO,
    STEP_CREATE_SENT,
    STEP_CREATE,
    STEP_NAME_SENT,
    STEP_REGISTER_SENT,
    STEP_REGISTER,
    STEP_PRODUCT_SENT,
    STEP_IN_PLACE_SENT,
    STEP_READ_SENT,
    STEP_COPY_SENT,
    STEP_PREWARM_SENT,
    STEP_HALF_A_FRAME,
    STEP_FREE_SENT,
    STEP_COUNT,
};

struct life {
    int fd, memfd;
    uint64_t own, registered;
};

static void send_or_die(struct life *life, const struct request *request, int passed)
{
    cr_assert(raw_request(life->fd, request, passed));
}

static uint64_t buffer_of_reply(struct life *life)
{
    struct raw_reply reply;

    cr_assert(raw_receive(life->fd, &reply));
    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    return reply.buffer.id;
}

static void multiply(struct life *life, uint64_t d)
{
    struct request product = raw_product(20, 16, 16, 16);

    for (int role = 0; role < OPERAND_COUNT; role++)
        product.body.gemm.operand[role] =
            (struct request_operand){.kind = OPERAND_BUFFER, .buffer = life->registered};
    product.body.gemm.operand[OPERAND_D].buffer = d;
    product.body.gemm.operand[OPERAND_D].offset = 4096;
    product.body.gemm.operand[OPERAND_C] = product.body.gemm.operand[OPERAND_D];
    product.body.gemm.problem.beta = 1;
    send_or_die(life, &product, -1);
}

static void half_a_frame(struct life *life)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request request = {
        .id = 9, .method = METHOD_BUFFER_REGISTER, .body.buffer = {.size = 4096}};

    cr_assert_eq(request_encode(&request, 1, &message), 0);
    cr_assert(raw_send(life->fd, message.bytes, message.size - 3, life->memfd));
}

static void step(struct life *life, enum step step)
{
    const struct request hello = {
        .id = 1, .method = METHOD_HELLO, .body.hello = {.version = PROTOCOL_VERSION}};
    const struct request create = {
        .id = 2,
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {.kind = BUFFER_DEVICE, .size = 1 << 16, .mode = 0600}};
    const struct request named = {
        .id = 3,
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {
            .kind = BUFFER_HOST, .size = 100000, .mode = 0600, .name = "churn", .name_size = 5}};
    const struct request reg = {.id = 4,
                                .method = METHOD_BUFFER_REGISTER,
                                .body.buffer = {.size = 1 << 16, .writable = true}};
    const struct request read = {
        .id = 5, .method = METHOD_BUFFER_READ, .body.buffer = {.id = life->own, .length = 60000}};
    const struct request copy = {
        .id = 6,
        .method = METHOD_BUFFER_COPY,
        .body.copy = {.source = life->own, .destination = life->registered, .length = 30000}};
    const struct request prewarm = {
        .id = 7,
        .method = METHOD_CACHE_PREWARM,
        .body.cache = {.configuration = "no.such.configuration", .configuration_size = 21}};
    const struct request release = {
        .id = 8, .method = METHOD_BUFFER_FREE, .body.buffer = {.id = life->registered}};

    switch (step) {
    case STEP_CONNECT:
        life->fd = raw_connect(&daemon_);
        break;
    case STEP_HELLO_SENT:
        send_or_die(life, &hello, -1);
        break;
    case STEP_HELLO:
        raw_expect(life->fd, 1, STATUS_OK);
        break;
    case STEP_CREATE_SENT:
        send_or_die(life, &create, -1);
        break;
    case STEP_CREATE:
        life->own = buffer_of_reply(life);
        break;
    case STEP_NAME_SENT: /* OK or EXISTS: a life that was cut here left the name */
        send_or_die(life, &named, -1);
        break;
    case STEP_REGISTER_SENT:
        send_or_die(life, &reg, life->memfd);
        break;
    case STEP_REGISTER:
        for (struct raw_reply reply = {0}; reply.id != 4;) {
            cr_assert(raw_receive(life->fd, &reply));
            life->registered = reply.buffer.id;
        }
        break;
    case STEP_PRODUCT_SENT:
        multiply(life, life->own);
        break;
    case STEP_IN_PLACE_SENT:
        multiply(life, life->registered);
        break;
    case STEP_READ_SENT:
        send_or_die(life, &read, -1);
        break;
    case STEP_COPY_SENT:
        send_or_die(life, &copy, -1);
        break;
    case STEP_PREWARM_SENT:
        send_or_die(life, &prewarm, -1);
        break;
    case STEP_FREE_SENT:
        send_or_die(life, &release, -1);
        break;
    default:
        half_a_frame(life);
    }
}

static void live_until(enum step last)
{
    struct life life = {.fd = -1, .memfd = memfd_create("life", MFD_CLOEXEC | MFD_ALLOW_SEALING)};

    cr_assert_eq(ftruncate(life.memfd, 1 << 16), 0);
    cr_assert_eq(fcntl(life.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (enum step now = STEP_CONNECT; now <= last; now++) {
        if (now != STEP_HALF_A_FRAME || last == STEP_HALF_A_FRAME)
            step(&life, now);
    }
    (void)close(life.fd);
    (void)close(life.memfd);
}

/* All of them are gone; the name that they left behind is its owner's to remove. */
static void bury(void)
{
    gemmd_buffer *left = NULL;

    while (test_status_number(watcher, NULL, "clients") > 1)
        ;
    if (gemmd_buffer_open(watcher, "churn", false, &left) == GEMMD_OK)
        gemmd_buffer_free(left);
}

Test(churn, clients_that_die_at_any_step_leave_nothing)
{
    enum { WARM = 20 * STEP_COUNT, LIVES = 300 * STEP_COUNT, A_BURIAL = 100 };

    struct footprint before;

    for (int i = 0; i < WARM; i++)
        live_until((enum step)(i % STEP_COUNT));
    bury();
    settle();
    before = measure();
    for (int i = 0; i < LIVES; i++) {
        live_until((enum step)(i % STEP_COUNT));
        if (i % A_BURIAL == 0)
            bury();
    }
    bury();
    settle();
    expect_flat(&before, LIVES);
    cr_expect_eq(test_status_number(watcher, "worker", "deaths"), 0);
}

/* --- whole processes ------------------------------------------------------------------------- */

static void client_process(void)
{
    gemmd *own = NULL;

    if (gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK)
        _exit(1);
    for (unsigned i = 1;; i++) {
        struct product_case p = {.input = DTYPE_FP32,
                                 .m = 1 + i % 50,
                                 .n = 1 + i % 40,
                                 .k = 1 + i % 30,
                                 .batch = 1,
                                 .alpha = 1,
                                 .place = (enum place)(i % PLACE_COUNT)};

        product_check(own, &p);
    }
}

Test(churn, processes_killed_at_any_instant_leave_nothing)
{
    enum { PROCESSES = 120, AT_ONCE = 6 };

    pid_t pids[AT_ONCE];
    struct footprint before;
    unsigned seed = 7;

    for (int i = -AT_ONCE; i < PROCESSES; i += AT_ONCE) {
        if (i == 0) {
            settle();
            before = measure();
        }
        for (int j = 0; j < AT_ONCE; j++) {
            pids[j] = process_fork();
            if (pids[j] == 0)
                client_process();
        }
        for (int j = 0; j < AT_ONCE; j++) {
            (void)poll(NULL, 0, rand_r(&seed) % 6);
            (void)kill(pids[j], SIGKILL);
            (void)waitpid(pids[j], NULL, 0);
        }
    }
    settle();
    expect_flat(&before, PROCESSES);
    cr_expect_eq(test_status_number(watcher, "worker", "deaths"), 0);
}
