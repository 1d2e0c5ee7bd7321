/*
 * Every bound that a client can reach from outside, reached: an error for that client, and service
 * for the others.
 */
#include "../../daemon/limits.h"
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct test_daemon daemon_;

static void start(void)
{
    struct rlimit limit;

    test_daemon_start(&daemon_, NULL);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void stop(void)
{
    test_daemon_stop(&daemon_);
}

TestSuite(limits, .init = start, .fini = stop, .timeout = 120);

Test(limits, connections_of_a_uid)
{
    gemmd *connections[LIMIT_CLIENTS_PER_UID] = {0}, *more = NULL;
    gemmd_error error;

    for (int i = 0; i < LIMIT_CLIENTS_PER_UID; i++)
        connections[i] = test_daemon_connect(&daemon_);
    cr_expect_neq(gemmd_connect(daemon_.socket, &more, &error), GEMMD_OK);
    cr_expect_not_null(strstr(error.message, "256"), "%s", error.message);
    gemmd_close(connections[0]);
    /* Its place is free once the daemon has seen it go. */
    while (test_status_number(connections[1], NULL, "clients") >= LIMIT_CLIENTS_PER_UID)
        ;
    connections[0] = test_daemon_connect(&daemon_);
    for (int i = 0; i < LIMIT_CLIENTS_PER_UID; i++)
        gemmd_close(connections[i]);
}

Test(limits, buffers_of_a_uid)
{
    gemmd *connection = test_daemon_connect(&daemon_);
    gemmd_buffer *buffer = NULL, *last = NULL;
    gemmd_status status = GEMMD_OK;
    int made = 0;

    while (status == GEMMD_OK && made <= LIMIT_BUFFERS_PER_UID) {
        status = gemmd_buffer_create(connection, GEMMD_HOST, 64, NULL, 0, &buffer);
        made += status == GEMMD_OK;
        last = status == GEMMD_OK ? buffer : last;
    }
    cr_expect_eq(made, LIMIT_BUFFERS_PER_UID);
    cr_expect_eq(status, GEMMD_LIMIT);
    gemmd_buffer_free(last);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, NULL, 0, &buffer), GEMMD_OK);
    gemmd_close(connection);
}

Test(limits, handles_of_a_connection)
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

Test(limits, bytes_of_a_uid)
{
    gemmd *connection = test_daemon_connect(&daemon_);
    gemmd_buffer *buffer = NULL;

    cr_expect_eq(
        gemmd_buffer_create(connection, GEMMD_HOST, LIMIT_HOST_BYTES_PER_UID + 1, NULL, 0, &buffer),
        GEMMD_LIMIT);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, LIMIT_DEVICE_BYTES_PER_UID + 1, NULL,
                                     0, &buffer),
                 GEMMD_LIMIT);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer), GEMMD_OK);
    gemmd_close(connection);
}

static int raw_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)strcpy(address.sun_path, daemon_.socket);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Seconds until the daemon ends the connection. */
static double seconds_to_end(int fd, double patience)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    struct timespec begin, end;
    char byte;

    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    while (poll(&wait, 1, (int)(patience * 1000)) == 1 && read(fd, &byte, 1) == 1)
        ;
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

Test(limits, silence_before_hello)
{
    int fd = raw_connect();
    double seconds = seconds_to_end(fd, LIMIT_HELLO_SECONDS + 5);

    cr_expect_geq(seconds, LIMIT_HELLO_SECONDS - 1);
    cr_expect_leq(seconds, LIMIT_HELLO_SECONDS + 2);
    (void)close(fd);
}

Test(limits, half_a_frame_then_silence_ends_that_connection_only)
{
    /* hello by hand: [0, 1, "hello", [{"version": 1}]] */
    static const char hello[] = "GMMD\x01\x00\x00\x00\x14\x00\x00\x00\x00\x00\x00\x00"
                                "\x94\x00\x01\xa5hello\x91\x81\xa7version\x01";
    gemmd *other = test_daemon_connect(&daemon_);
    int fd = raw_connect();
    double seconds;
    char reply[4096];

    cr_assert_eq(write(fd, hello, sizeof(hello) - 1), (ssize_t)sizeof(hello) - 1);
    cr_assert_gt(read(fd, reply, sizeof(reply)), 0);
    cr_assert_eq(write(fd, hello, 20), 20);
    seconds = seconds_to_end(fd, LIMIT_PARTIAL_FRAME_SECONDS + 5);
    cr_expect_geq(seconds, LIMIT_PARTIAL_FRAME_SECONDS - 1);
    cr_expect_leq(seconds, LIMIT_PARTIAL_FRAME_SECONDS + 2);
    cr_expect_eq(test_status_number(other, NULL, "clients"), 1);
    (void)close(fd);
    gemmd_close(other);
}
