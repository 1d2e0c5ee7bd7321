/*
 * Buffers as clients meet them: names, permission, registration, bounds, lifetime.
 */
#include "../support/daemon.h"
#include "../support/products.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *connection;

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

TestSuite(buffer, .init = start, .fini = stop, .timeout = 120);

static gemmd_buffer *make(gemmd_memory memory, uint64_t size, const char *name, unsigned mode)
{
    gemmd_buffer *buffer = NULL;

    cr_assert_eq(gemmd_buffer_create(connection, memory, size, name, mode, &buffer), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return buffer;
}

Test(buffer, is_zero_when_new)
{
    for (gemmd_memory memory = GEMMD_HOST; memory <= GEMMD_DEVICE; memory++) {
        gemmd_buffer *buffer = make(memory, 100000, NULL, 0);
        char *data = malloc(100000);

        cr_assert_eq(gemmd_buffer_read(buffer, 0, data, 100000), GEMMD_OK);
        for (int i = 0; i < 100000; i++)
            cr_assert_eq(data[i], 0);
        free(data);
    }
}

Test(buffer, is_shared_by_name_between_connections)
{
    for (gemmd_memory memory = GEMMD_HOST; memory <= GEMMD_DEVICE; memory++) {
        gemmd *other = test_daemon_connect(&daemon_);
        gemmd_buffer *mine = make(memory, 4096, "weights", 0600), *theirs = NULL;
        int value = 42, seen = 0;

        cr_assert_eq(gemmd_buffer_open(other, "weights", true, &theirs), GEMMD_OK);
        cr_assert_eq(gemmd_buffer_write(mine, 8, &value, sizeof(value)), GEMMD_OK);
        cr_assert_eq(gemmd_buffer_read(theirs, 8, &seen, sizeof(seen)), GEMMD_OK);
        cr_expect_eq(seen, 42);
        gemmd_buffer_free(mine);
        /* The name went with its maker's handle, the memory stays with its users. */
        cr_expect_eq(gemmd_buffer_read(theirs, 8, &seen, sizeof(seen)), GEMMD_OK);
        gemmd_close(other);
    }
}

Test(buffer, outlives_its_maker_when_it_has_a_name)
{
    gemmd *maker = test_daemon_connect(&daemon_);
    gemmd_buffer *made = NULL, *found = NULL;
    int value = 7, seen = 0;

    cr_assert_eq(gemmd_buffer_create(maker, GEMMD_DEVICE, 64, "kept", 0600, &made), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(made, 0, &value, 4), GEMMD_OK);
    gemmd_close(maker);
    cr_assert_eq(gemmd_buffer_open(connection, "kept", false, &found), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_read(found, 0, &seen, 4), GEMMD_OK);
    cr_expect_eq(seen, 7);
    /* Its owner can still remove it, or it would be there for ever. */
    gemmd_buffer_free(found);
    cr_expect_eq(gemmd_buffer_open(connection, "kept", false, &found), GEMMD_NOT_FOUND);
}

Test(buffer, name_is_taken_once)
{
    gemmd_buffer *first = make(GEMMD_HOST, 64, "one", 0600), *second = NULL;

    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, "one", 0600, &second),
                 GEMMD_EXISTS);
    gemmd_buffer_free(first);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 64, "one", 0600, &second), GEMMD_OK);
}

/* Opens as another uid; exits with the status. */
static gemmd_status status_as(uid_t uid, const char *name, bool writable)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        gemmd *own = NULL;
        gemmd_buffer *buffer;

        if (setgid(uid) < 0 || setuid(uid) < 0 ||
            gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK)
            _exit(100);
        _exit((int)gemmd_buffer_open(own, name, writable, &buffer));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    return (gemmd_status)WEXITSTATUS(status);
}

Test(buffer, mode_decides_who_may_open_it)
{
    if (getuid() != 0)
        cr_skip_test("needs root, to become others");
    (void)make(GEMMD_HOST, 64, "private", 0600);
    (void)make(GEMMD_HOST, 64, "readable", 0644);
    (void)make(GEMMD_HOST, 64, "writable", 0666);
    cr_expect_eq(status_as(1234, "private", false), GEMMD_PERMISSION);
    cr_expect_eq(status_as(1234, "readable", false), GEMMD_OK);
    cr_expect_eq(status_as(1234, "readable", true), GEMMD_PERMISSION);
    cr_expect_eq(status_as(1234, "writable", true), GEMMD_OK);
}

Test(buffer, opened_for_reading_is_not_written)
{
    gemmd_buffer *mine = make(GEMMD_HOST, 4096, "read", 0600), *other = NULL;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    float one = 1;

    (void)mine;
    cr_assert_eq(gemmd_buffer_open(connection, "read", false, &other), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_write(other, 0, &one, 4), GEMMD_PERMISSION);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = product.b.data = &one;
    product.d.buffer = other;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_PERMISSION);
}

static int memfd(size_t size, unsigned flags, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | flags);

    if (fd >= 0) {
        cr_assert_eq(ftruncate(fd, (off_t)size), 0);
        if (seals)
            cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    return fd;
}

Test(buffer, of_a_client_must_be_sealed_and_as_large_as_claimed)
{
    gemmd_buffer *buffer = NULL;
    int unsealed = memfd(8192, MFD_ALLOW_SEALING, 0);
    int small = memfd(4096, MFD_ALLOW_SEALING, F_SEAL_SHRINK);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int right = memfd(8192, MFD_ALLOW_SEALING, F_SEAL_SHRINK);

    cr_expect_eq(gemmd_buffer_register(connection, unsealed, 8192, true, &buffer),
                 GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(gemmd_buffer_register(connection, small, 8192, true, &buffer),
                 GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(gemmd_buffer_register(connection, file, 100, false, &buffer),
                 GEMMD_INVALID_ARGUMENT);
    cr_assert_eq(gemmd_buffer_register(connection, right, 8192, true, &buffer), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    (void)strcpy(gemmd_buffer_data(buffer), "hello");
    char seen[6];
    cr_assert_eq(gemmd_buffer_read(buffer, 0, seen, 6), GEMMD_OK);
    cr_expect_str_eq(seen, "hello");
}

Test(buffer, bounds_hold_against_overflow)
{
    gemmd_buffer *buffer = make(GEMMD_HOST, 1000, NULL, 0);
    gemmd_product product = GEMMD_PRODUCT_INIT;
    float one = 1;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = product.b.data = &one;
    product.d.buffer = buffer;
    static const uint64_t offsets[] = {1000, 997, 1u << 31, UINT64_MAX - 3, UINT64_MAX, 2};

    for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
        product.d.offset = offsets[i];
        cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_INVALID_ARGUMENT);
        cr_expect_str_eq(gemmd_last_error(connection)->argument, "d.offset");
    }
    product.d.offset = 996;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    product.m = product.n = 1 << 20;
    product.a.data = product.b.data = NULL;
    product.a.buffer = product.b.buffer = buffer;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_INVALID_ARGUMENT);
}

static gemmd_status overlap(gemmd_buffer *buffer, uint64_t a, uint64_t c, uint64_t d, int64_t ld)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 4;
    product.beta = 1;
    product.a.buffer = product.b.buffer = product.c.buffer = product.d.buffer = buffer;
    product.a.offset = product.b.offset = a;
    product.c.offset = c;
    product.d.offset = d;
    product.a.ld = product.b.ld = product.c.ld = product.d.ld = ld;
    return gemmd_gemm(connection, &product, NULL);
}

Test(buffer, d_may_lie_in_cs_place_and_over_no_input)
{
    gemmd_buffer *buffer = make(GEMMD_DEVICE, 4096, NULL, 0);

    cr_expect_eq(overlap(buffer, 0, 64, 64, 4), GEMMD_OK);
    cr_expect_eq(overlap(buffer, 0, 64, 68, 4), GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(overlap(buffer, 0, 128, 60, 4), GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(overlap(buffer, 0, 128, 0, 4), GEMMD_INVALID_ARGUMENT);
    /* Blocks of one 8-column matrix side by side: byte ranges interleave, elements do not. */
    cr_expect_eq(overlap(buffer, 0, 16, 16, 8), GEMMD_OK);
    cr_expect_eq(overlap(buffer, 0, 12, 12, 8), GEMMD_INVALID_ARGUMENT);
}

/* By two handles the same rules hold: a memfd registered twice, and the daemon's own memfd that a
 * client registers as if it were its own. */
Test(buffer, d_may_lie_over_no_input_by_another_handle_either)
{
    int fd = memfd(8192, MFD_ALLOW_SEALING, F_SEAL_SHRINK);
    gemmd_buffer *one = NULL, *two = NULL;
    gemmd_product product = GEMMD_PRODUCT_INIT;

    cr_assert_eq(gemmd_buffer_register(connection, fd, 8192, true, &one), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_register(connection, fd, 4096, true, &two), GEMMD_OK);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 4;
    product.a.buffer = product.b.buffer = one;
    product.d.buffer = two;
    product.d.offset = 32;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "d");
    product.d.offset = 64;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_copy(one, 0, two, 100, 200), GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(gemmd_buffer_copy(one, 0, two, 200, 200), GEMMD_OK);
}

Test(buffer, may_be_freed_while_a_job_uses_it)
{
    enum { N = 400 };

    gemmd_buffer *a = make(GEMMD_DEVICE, N * N * 4, NULL, 0),
                 *d = make(GEMMD_HOST, N * N * 4, NULL, 0);
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_job job;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = N;
    product.a.buffer = product.b.buffer = a;
    product.d.buffer = d;
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    gemmd_buffer_free(a);
    cr_expect_eq(gemmd_wait(connection, job, -1, NULL), GEMMD_OK);
    gemmd_buffer_free(d);
    cr_expect_eq(test_status_number(connection, "buffers", "device_bytes"), 0);
}

Test(buffer, is_gone_with_its_connection_when_unnamed)
{
    gemmd *other = test_daemon_connect(&daemon_);
    gemmd_buffer *buffer = NULL;

    cr_assert_eq(gemmd_buffer_create(other, GEMMD_DEVICE, 2 << 20, NULL, 0, &buffer), GEMMD_OK);
    cr_expect_eq(test_status_number(connection, "buffers", "device_bytes"), 2 << 20);
    gemmd_close(other);
    while (test_status_number(connection, NULL, "clients") > 1)
        ; /* each look is a round trip through the daemon's loop */
    cr_expect_eq(test_status_number(connection, "buffers", "device_bytes"), 0);
}

Test(buffer, over_the_limit_is_an_error_for_that_request_only)
{
    gemmd_buffer *buffer = NULL;

    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 65ull << 30, NULL, 0, &buffer),
                 GEMMD_LIMIT);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer), GEMMD_OK);
}

Test(buffer, copies_between_kinds_of_memory_and_refuses_overlap)
{
    gemmd_buffer *host = make(GEMMD_HOST, 4096, NULL, 0),
                 *device = make(GEMMD_DEVICE, 4096, NULL, 0);
    char text[16];

    (void)strcpy(gemmd_buffer_data(host), "to and fro");
    cr_expect_eq(gemmd_buffer_copy(device, 100, host, 0, 16), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_copy(device, 1000, device, 100, 16), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_read(device, 1000, text, 16), GEMMD_OK);
    cr_expect_str_eq(text, "to and fro");
    cr_expect_eq(gemmd_buffer_copy(device, 108, device, 100, 16), GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(gemmd_buffer_copy(device, 4090, host, 0, 16), GEMMD_INVALID_ARGUMENT);
}
