/*
 * Small device buffers share allocations; nobody notices but by what they cost.
 */
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 1000
#define BYTES 1000

static struct test_daemon daemon_;
static gemmd *connection;
static gemmd_buffer *buffers[COUNT];

static void start(void)
{
    static const char *const arguments[] = {"--mode", "0666", NULL};

    test_daemon_start(&daemon_, arguments);
    (void)chmod(daemon_.directory, 0755);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(slab, .init = start, .fini = stop, .timeout = 120);

static void make_all(gemmd *owner)
{
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(gemmd_buffer_create(owner, GEMMD_DEVICE, BYTES, NULL, 0, &buffers[i]),
                     GEMMD_OK, "%s", gemmd_last_error(owner)->message);
}

static void write_all(void)
{
    unsigned char data[BYTES];

    for (int i = 0; i < COUNT; i++) {
        memset(data, 1 + i % 255, BYTES);
        cr_assert_eq(gemmd_buffer_write(buffers[i], 0, data, BYTES), GEMMD_OK);
    }
}

static void expect_all(bool is_written)
{
    unsigned char data[BYTES];

    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(gemmd_buffer_read(buffers[i], 0, data, BYTES), GEMMD_OK);
        for (int j = 0; j < BYTES; j++)
            cr_assert_eq(data[j], is_written ? 1 + i % 255 : 0, "byte %d of buffer %d", j, i);
    }
}

static int descriptors(void)
{
    char path[64];
    DIR *directory;
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon_.pid);
    directory = opendir(path);
    cr_assert_not_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

Test(slab, small_buffers_keep_apart_what_is_theirs)
{
    make_all(connection);
    write_all();
    expect_all(true);
    for (int i = 0; i < COUNT; i += 2) {
        gemmd_buffer_free(buffers[i]);
        cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, BYTES, NULL, 0, &buffers[i]),
                     GEMMD_OK);
    }
    for (int i = 0; i < COUNT; i += 2) {
        unsigned char data[BYTES];

        cr_assert_eq(gemmd_buffer_read(buffers[i], 0, data, BYTES), GEMMD_OK);
        cr_assert(data[0] == 0 && memcmp(data, data + 1, BYTES - 1) == 0, "buffer %d", i);
        memset(data, 1 + i % 255, BYTES);
        cr_assert_eq(gemmd_buffer_write(buffers[i], 0, data, BYTES), GEMMD_OK);
    }
    expect_all(true);
}

Test(slab, thousand_cost_what_one_does)
{
    int before = descriptors();

    make_all(connection);
    cr_expect_leq(descriptors(), before + 8);
    cr_expect_leq(test_status_number(connection, "buffers", "slabs"), 2);
    cr_expect_eq(test_status_number(connection, "buffers", "device_bytes"), COUNT * 1024);
    for (int i = 0; i < COUNT; i++)
        gemmd_buffer_free(buffers[i]);
    cr_expect_eq(test_status_number(connection, "buffers", "slabs"), 0);
    cr_expect_eq(test_status_number(connection, "buffers", "device_bytes"), 0);
}

Test(slab, they_are_there_for_the_next_worker)
{
    make_all(connection);
    write_all();
    cr_assert_eq(kill(test_worker_pid(connection), SIGKILL), 0);
    expect_all(true);
}

/* What another uid left in the same slab: zeros. */
Test(slab, next_user_of_a_place_finds_zeros)
{
    gemmd_buffer *anchor; /* keeps the slab */
    int status;
    pid_t child;

    if (getuid() != 0)
        cr_skip_test("needs root, to become another");
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 64, NULL, 0, &anchor), GEMMD_OK);
    make_all(connection);
    write_all();
    for (int i = 0; i < COUNT; i++)
        gemmd_buffer_free(buffers[i]);
    child = fork();
    if (child == 0) {
        gemmd *own = NULL;

        if (setgid(1234) < 0 || setuid(1234) < 0 ||
            gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK)
            _exit(100);
        make_all(own);
        expect_all(false);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A client that goes while its buffers are being made leaves nothing. */
Test(slab, goes_with_clients_that_do_not_wait)
{
    for (int i = 0; i < 20; i++) {
        gemmd *other = test_daemon_connect(&daemon_);

        for (int j = 0; j < 5; j++)
            cr_assert_eq(gemmd_buffer_create(other, GEMMD_DEVICE, BYTES, NULL, 0, &buffers[j]),
                         GEMMD_OK);
        gemmd_close(other);
    }
    while (test_status_number(connection, NULL, "clients") > 1)
        ;
    for (int i = 0; i < 60000 && test_status_number(connection, "buffers", "slabs") > 0; i++)
        (void)usleep(1000);
    cr_expect_eq(test_status_number(connection, "buffers", "slabs"), 0);
}
