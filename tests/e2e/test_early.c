/*
 * Requests that come before there is a device: they wait for it, but no longer than their deadline.
 */
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE_MS 20000 /* less than that of the daemon with a worker that says no hello */

static struct test_daemon daemon_;
static char directory[64], pipe_path[96];
static int hold = -1, ready = -1, client = -1;

/* The worker reads its BLAS from a pipe, in which nothing comes until the end of the file. It then
 * computes without one. */
static void start(void)
{
    if (!test_device_is_cpu())
        cr_skip_test("no other worker's start is held up by a BLAS");
    (void)strcpy(directory, "/tmp/gemmd-early-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(pipe_path, sizeof(pipe_path), "%s/blas", directory);
    cr_assert_eq(mkfifo(pipe_path, 0600), 0);
    cr_assert_eq(setenv("GEMMD_BLAS", pipe_path, 1), 0);
    ready = test_daemon_launch(&daemon_, NULL);
    hold = open(pipe_path, O_WRONLY | O_CLOEXEC);
    cr_assert_geq(hold, 0);
    client = raw_greeted(&daemon_);
}

static void get_ready(void)
{
    char byte;

    (void)close(hold);
    cr_assert_eq(read(ready, &byte, 1), 1, "the daemon did not get ready");
}

static void stop(void)
{
    (void)close(client);
    (void)close(ready);
    test_daemon_stop(&daemon_);
    (void)unlink(pipe_path);
    (void)rmdir(directory);
}

TestSuite(early, .init = start, .fini = stop, .timeout = 60);

/* Of nothing by nothing: k = 0 reads no operand. */
static struct request product(uint32_t id, uint64_t deadline_us)
{
    struct request request = raw_product(id, 2, 2, 0);

    request.body.gemm.deadline_us = deadline_us;
    return request;
}

static void send(struct request request)
{
    cr_assert(raw_request(client, &request, -1));
}

static void expect_late(uint32_t id)
{
    struct pollfd reply = {.fd = client, .events = POLLIN};

    cr_assert_eq(poll(&reply, 1, PATIENCE_MS), 1, "it is not told that it is late");
    raw_expect(client, id, STATUS_DEADLINE);
}

Test(early, requests_are_served_once_there_is_a_device)
{
    send(product(2, 0));
    send(product(3, 1000ull * 3600 * 1000000));
    get_ready();
    raw_expect_all(client, 2, 2, STATUS_OK);
}

Test(early, request_is_answered_at_its_deadline_and_those_behind_it_are_served)
{
    send(product(2, 10000));
    send(product(3, 1000));
    send(product(4, 0));
    expect_late(2);
    expect_late(3);
    get_ready();
    raw_expect(client, 4, STATUS_OK);
}

Test(early, products_of_one_message_have_a_deadline_each)
{
    struct request_product products[4] = {0};
    struct request many = {.id = 10,
                           .method = METHOD_GEMM_MANY,
                           .body.many = {.products = products, .count = ARRAY_SIZE(products)}};

    for (size_t i = 0; i < ARRAY_SIZE(products); i++)
        products[i].gemm = product(0, i == 3 ? 50000 : i == 1 ? 1000 : 0).body.gemm;
    send(many);
    expect_late(11);
    expect_late(13);
    get_ready();
    for (uint32_t i = 0; i < 2; i++) {
        struct raw_reply reply;

        cr_assert(raw_receive(client, &reply));
        cr_expect(reply.id == 10 || reply.id == 12, "%u was answered", reply.id);
        cr_expect_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    }
    send(product(20, 0));
    raw_expect(client, 20, STATUS_OK);
}
