/*
 * Peers that connect and then say nothing, or stop in the middle: ended in their time and told by
 * the log, while one that is only slow is served.
 */
#include "../../daemon/limits.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Peers that differ in how far they came before they fell silent. */
enum {
    MUTE,        /* nothing at all */
    STAMMERER,   /* half of hello */
    HALF_HEADER, /* after hello: a part of a header */
    HALF_BODY,   /* a header and a part of its payload */
    SLOW,        /* the same, but a byte comes now and then */
    IDLE,        /* after hello: nothing, and that is its right */
    COUNT,
};

/* How late a busy machine may be; no limit can be taken for another one even so. */
#define LATE_SECONDS 10
static_assert(LIMIT_HELLO_SECONDS + LATE_SECONDS < LIMIT_PARTIAL_FRAME_SECONDS, "told apart");

static double allowed_seconds(int peer)
{
    return peer == MUTE || peer == STAMMERER          ? LIMIT_HELLO_SECONDS
           : peer == HALF_HEADER || peer == HALF_BODY ? LIMIT_PARTIAL_FRAME_SECONDS
                                                      : -1;
}

static void begin(const struct test_daemon *daemon, const struct message *message, int fds[COUNT])
{
    static const size_t parts[COUNT] = {0, 7, 5, 20, 20, 0};

    for (int i = 0; i < COUNT; i++) {
        fds[i] = i <= STAMMERER ? raw_connect(daemon) : raw_greeted(daemon);
        cr_assert(raw_send(fds[i], message->bytes, parts[i], -1));
    }
}

static bool all_have_ended(const double ended[COUNT])
{
    for (int i = 0; i < COUNT; i++) {
        if (allowed_seconds(i) >= 0 && ended[i] == 0)
            return false;
    }
    return true;
}

/* When each was ended, until all are that are to be; a byte of the slow one's frame goes out every
 * five seconds. */
static void watch(int fds[COUNT], const struct message *message, double ret_ended[COUNT])
{
    const double start = now(), least = start + LIMIT_PARTIAL_FRAME_SECONDS + 3;
    struct pollfd polls[COUNT];
    size_t sent = 20;

    for (int i = 0; i < COUNT; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    while (now() < least || !all_have_ended(ret_ended)) {
        char bytes[4096];

        (void)poll(polls, COUNT, 250);
        for (int i = 0; i < COUNT; i++) {
            if (polls[i].fd >= 0 && polls[i].revents && read(fds[i], bytes, sizeof(bytes)) <= 0) {
                ret_ended[i] = now() - start;
                polls[i].fd = -1;
            }
        }
        if (now() - start > 5.0 * (double)(sent - 19))
            cr_assert(raw_send(fds[SLOW], message->bytes + sent++, 1, -1));
    }
    cr_assert(raw_send(fds[SLOW], message->bytes + sent, message->size - sent, -1));
}

Test(silence, ends_a_connection_only_where_something_is_due, .timeout = 120)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    const struct request request = {.id = 4, .method = METHOD_STATS};
    struct test_daemon daemon = {0};
    double ended[COUNT] = {0};
    int fds[COUNT];

    cr_assert_eq(request_encode(&request, 0, &message), 0);
    test_daemon_start(&daemon, NULL);
    begin(&daemon, &message, fds);
    watch(fds, &message, ended);
    for (int i = 0; i < COUNT; i++) {
        if (allowed_seconds(i) < 0) {
            cr_expect_eq(ended[i], 0, "peer %d was ended after %g s", i, ended[i]);
        } else {
            cr_expect_geq(ended[i], allowed_seconds(i) - 1, "peer %d: %g s", i, ended[i]);
            cr_expect_leq(ended[i], allowed_seconds(i) + LATE_SECONDS, "peer %d: %g s", i,
                          ended[i]);
        }
    }
    raw_expect(fds[SLOW], 4, STATUS_OK);
    cr_assert(raw_request(fds[IDLE], &request, -1));
    raw_expect(fds[IDLE], 4, STATUS_OK);
    for (int i = 0; i < COUNT; i++)
        (void)close(fds[i]);
    test_daemon_stop(&daemon);
}

/* --- replies that nobody reads --------------------------------------------------------------- */

enum { READ_BYTES = 12 << 20, READS = 4 }; /* together more than is let wait */

static uint64_t big_buffer(int fd)
{
    const struct request create = {.id = 2,
                                   .method = METHOD_BUFFER_CREATE,
                                   .body.buffer = {.kind = BUFFER_HOST, .size = READ_BYTES}};
    struct raw_reply reply = raw_call(fd, &create, -1);

    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    return reply.buffer.id;
}

static void ask_for_much(int fd, uint64_t buffer)
{
    for (uint32_t i = 0; i < READS; i++) {
        const struct request read = {.id = 10 + i,
                                     .method = METHOD_BUFFER_READ,
                                     .body.buffer = {.id = buffer, .length = READ_BYTES}};

        cr_assert(raw_request(fd, &read, -1));
    }
}

static void expect_bytes(int fd, uint32_t id)
{
    struct raw_reply reply;

    cr_assert(raw_receive(fd, &reply), "the connection ended");
    cr_expect_eq(reply.id, id);
    cr_expect_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
}

/* As a machine does that sleeps, or is moved; neither was it the peer's time. */
Test(silence, of_a_machine_that_stands_still_while_the_daemon_drains_cuts_no_answer_off)
{
    struct test_daemon daemon = {0};
    struct request read = {
        .id = 10, .method = METHOD_BUFFER_READ, .body.buffer = {.length = READ_BYTES}};
    gemmd *watcher;
    int client;

    test_daemon_start(&daemon, NULL);
    watcher = test_daemon_connect(&daemon);
    client = raw_greeted(&daemon);
    read.body.buffer.id = big_buffer(client);
    cr_assert(raw_request(client, &read, -1));
    while (test_stats_number(watcher, NULL, "copies") < 1 ||
           test_status_number(watcher, NULL, "jobs") > 0)
        (void)poll(NULL, 0, 1);
    (void)kill(daemon.pid, SIGTERM);
    while (!test_daemon_logged(&daemon, "state=draining"))
        (void)poll(NULL, 0, 1);
    (void)kill(daemon.pid, SIGSTOP);
    (void)poll(NULL, 0, 2500); /* more than an answer may lie unread */
    (void)kill(daemon.pid, SIGCONT);
    expect_bytes(client, 10);
    (void)close(client);
    gemmd_close(watcher);
    cr_expect_eq(test_daemon_wait(&daemon), 0);
    test_daemon_remove(&daemon);
}

Test(silence, drops_who_reads_no_replies_and_nobody_else, .timeout = 120)
{
    struct test_daemon daemon = {0};
    int stuck, slow;
    double start, dropped = 0;
    gemmd *watcher;

    test_daemon_start(&daemon, NULL);
    watcher = test_daemon_connect(&daemon);
    stuck = raw_greeted(&daemon);
    slow = raw_greeted(&daemon);
    ask_for_much(stuck, big_buffer(stuck));
    ask_for_much(slow, big_buffer(slow));
    start = now();
    while (dropped == 0 || now() - start < LIMIT_UNREAD_SECONDS + 5) {
        static char bytes[1 << 17];

        /* A little now and then: that is progress. */
        cr_assert_gt(read(slow, bytes, sizeof(bytes)), 0);
        if (dropped == 0 && test_stats_number(watcher, NULL, "dropped_unread") > 0)
            dropped = now() - start;
        (void)poll(NULL, 0, 1000);
    }
    cr_expect_geq(dropped, LIMIT_UNREAD_SECONDS - 2, "%g s", dropped);
    /* By looks a second apart, of which a machine that stands still now and then has fewer. */
    cr_expect_leq(dropped, 2 * LIMIT_UNREAD_SECONDS, "%g s", dropped);
    cr_expect_eq(test_stats_number(watcher, NULL, "dropped_unread"), 1);
    cr_expect_eq(test_status_number(watcher, NULL, "clients"), 2);
    (void)close(stuck);
    (void)close(slow);
    gemmd_close(watcher);
    test_daemon_stop(&daemon);
}
