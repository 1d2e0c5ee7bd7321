/*
 * Clients that go while the worker is busy with what they asked for: nothing of theirs piles up in
 * the daemon, and all of it is gone in the end. A worker stopped by a signal is the busiest.
 */
#include "../../daemon/limits.h"
#include "../support/process.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *watcher;

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
    watcher = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(watcher);
    test_daemon_stop(&daemon_);
}

TestSuite(abandon, .init = start, .fini = stop, .timeout = 120);

static void wait_for(const char *group, const char *name, double most)
{
    const struct timespec time = {.tv_nsec = 2000000};

    while (test_status_number(watcher, group, name) > most)
        (void)nanosleep(&time, NULL);
}

/* Asks for as many buffers as a connection may wait for, and goes. */
static void create_and_go(void)
{
    int fd = raw_greeted(&daemon_);

    for (uint32_t i = 0; i < LIMIT_IN_FLIGHT; i++) {
        const struct request create = {
            .id = i + 2,
            .method = METHOD_BUFFER_CREATE,
            .body.buffer = {.kind = BUFFER_HOST, .size = 4096, .mode = 0600, .writable = true}};

        cr_assert(raw_request(fd, &create, -1));
    }
    (void)close(fd);
    wait_for(NULL, "clients", 1);
}

Test(abandon, buffers_under_way_stay_charged_until_the_worker_has_answered)
{
    enum { ROUNDS = 3 * LIMIT_BUFFERS_PER_UID / LIMIT_IN_FLIGHT };

    unsigned before = process_descriptors(daemon_.pid);
    pid_t worker = test_worker_hold(watcher);

    for (int i = 0; i < ROUNDS; i++)
        create_and_go();
    cr_expect_leq(test_status_number(watcher, "buffers", "count"), LIMIT_BUFFERS_PER_UID);
    /* One of its own, one with the message that is queued. */
    cr_expect_leq(process_descriptors(daemon_.pid), before + 2 * LIMIT_BUFFERS_PER_UID);
    (void)kill(worker, SIGCONT); /* on a busy machine it was given up meanwhile */
    wait_for("buffers", "count", 0);
    cr_expect_leq(process_descriptors(daemon_.pid), before + 1);
}

enum {
    ROWS = 1450,
    COLUMNS = 1500
}; /* of fp32: a little more than half a chunk of staged memory */

/* Two products whose inline operands take a chunk each. */
static void multiply_and_go(void)
{
    static uint8_t data[ROWS * COLUMNS * 4];
    struct request product = raw_product(2, ROWS, 1, COLUMNS);
    int fd = raw_greeted(&daemon_);

    product.body.gemm.operand[OPERAND_A] =
        (struct request_operand){.kind = OPERAND_INLINE, .data = data, .size = sizeof(data)};
    product.body.gemm.operand[OPERAND_B] =
        (struct request_operand){.kind = OPERAND_INLINE, .data = data, .size = COLUMNS * 4};
    cr_assert(raw_request(fd, &product, -1));
    product.id++;
    cr_assert(raw_request(fd, &product, -1));
    (void)close(fd);
    wait_for(NULL, "clients", 1);
}

Test(abandon, staged_operands_do_not_pile_up_in_the_queue_to_a_busy_worker)
{
    enum { ROUNDS = 100 }; /* more messages than the socket to the worker holds */

    unsigned before = process_descriptors(daemon_.pid);
    pid_t worker = test_worker_hold(watcher);

    for (int i = 0; i < ROUNDS; i++)
        multiply_and_go();
    cr_expect_leq(process_descriptors(daemon_.pid), before + ROUNDS / 2);
    (void)kill(worker, SIGCONT); /* on a busy machine it was given up meanwhile */
    wait_for(NULL, "jobs", 0);
}
