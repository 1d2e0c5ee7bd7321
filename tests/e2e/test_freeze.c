/*
 * Frozen host buffers: nobody writes them through the daemon, and on a device their products come
 * from a copy there, which is nobody's concern but the bus's.
 */
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIDE  450 /* 810 kB of fp32: a device of 8 MiB lends room for two */
#define BYTES ((uint64_t)SIDE * SIDE * 4)

#define CONFIG "[default]\ndevice-bytes = 2G\n" /* of which two copies are a little */

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    char path[] = "/tmp/gemmd-freeze-XXXXXX";
    int fd = mkstemp(path);
    const char *const arguments[] = {"--mode", "0666", "--config", path, NULL};

    (void)!write(fd, CONFIG, strlen(CONFIG));
    (void)close(fd);
    (void)setenv("FAKE_DRIVER_TOTAL", "8388608", 1);
    test_daemon_start(&daemon_, arguments);
    (void)unlink(path);
    (void)chmod(daemon_.directory, 0755);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(freeze, .init = start, .fini = stop, .timeout = 120);

/* A matrix whose every row is 1, 2, 3, ... times `scale`, in so many bytes. */
static gemmd_buffer *make_in(uint64_t bytes, float scale, const char *name)
{
    gemmd_buffer *buffer = NULL;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, bytes, name, 0666, &buffer), GEMMD_OK);
    for (int i = 0; i < SIDE * SIDE; i++)
        ((float *)gemmd_buffer_data(buffer))[i] = scale * (float)(1 + i % SIDE);
    return buffer;
}

static gemmd_buffer *make(float scale, const char *name)
{
    return make_in(BYTES, scale, name);
}

/* A row of ones times it. */
static void expect_right(gemmd_buffer *buffer, float scale)
{
    static float ones[SIDE], d[SIDE];
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int i = 0; i < SIDE; i++)
        ones[i] = 1;
    product.input = GEMMD_FP32;
    product.m = 1;
    product.n = product.k = SIDE;
    product.a.data = ones;
    product.b.buffer = buffer;
    product.d.data = d;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    for (int i = 0; i < SIDE; i++)
        cr_assert_eq(d[i], scale * (float)(SIDE * (1 + i)), "column %d: %g", i, d[i]);
}

static double copies(const char *what)
{
    return test_status_number(connection, "buffers", what);
}

/* Products until one has come from the copy. */
static void expect_copied(gemmd_buffer *buffer, float scale)
{
    double used = copies("copies_used");

    for (int i = 0; i < 10000 && copies("copies_used") == used; i++)
        expect_right(buffer, scale);
    cr_assert_gt(copies("copies_used"), used);
}

static void need_device(void)
{
    if (test_device_is_cpu())
        cr_skip_test("the CPU computes where the memory is");
}

Test(freeze, nobody_writes_it_any_more)
{
    gemmd_buffer *buffer = make(1, "frozen"), *other = make(1, NULL), *none = NULL;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    float one = 1;

    cr_assert_eq(gemmd_buffer_open(connection, "frozen", true, &none), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_copy(none, 0, other, 0, 4), GEMMD_PERMISSION);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = product.b.data = &one;
    product.d.buffer = none;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_PERMISSION);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "d.buffer");
    cr_expect_eq(gemmd_buffer_write(buffer, 0, &one, 4), GEMMD_PERMISSION);
    cr_expect_eq(gemmd_buffer_open(connection, "frozen", true, &none), GEMMD_PERMISSION);
    cr_expect_eq(gemmd_buffer_open(connection, "frozen", false, &none), GEMMD_OK);
    expect_right(buffer, 1);
    expect_right(none, 1);
}

Test(freeze, is_for_the_owners_host_memory)
{
    gemmd_buffer *device = NULL, *theirs = NULL;
    int status;
    pid_t child;

    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 64, NULL, 0, &device), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_freeze(device), GEMMD_INVALID_ARGUMENT);
    if (getuid() != 0)
        cr_skip_test("needs root, to become another");
    (void)make(1, "mine");
    child = fork();
    if (child == 0) {
        gemmd *own = NULL;

        if (setgid(1234) < 0 || setuid(1234) < 0 ||
            gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK ||
            gemmd_buffer_open(own, "mine", true, &theirs) != GEMMD_OK)
            _exit(100);
        _exit((int)gemmd_buffer_freeze(theirs));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(WEXITSTATUS(status), GEMMD_PERMISSION);
}

Test(freeze, products_come_from_a_copy_on_the_device)
{
    gemmd_buffer *buffer = make(3, NULL), *thawed = make(1, NULL);

    need_device();
    for (int i = 0; i < 5; i++)
        expect_right(thawed, 1);
    cr_expect_eq(copies("copies_made"), 0);
    cr_assert_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    expect_copied(buffer, 3);
    expect_copied(buffer, 3);
    cr_expect_eq(copies("copies_made"), 1);
    cr_expect_geq(copies("copied_bytes"), BYTES);
    gemmd_buffer_free(buffer);
    cr_expect_eq(copies("copied_bytes"), 0);
    cr_expect_eq(copies("device_bytes"), 0);
}

Test(freeze, copy_outlives_the_worker)
{
    gemmd_buffer *buffer = make(2, NULL);

    need_device();
    cr_assert_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    expect_copied(buffer, 2);
    cr_assert_eq(kill(test_worker_pid(connection), SIGKILL), 0);
    expect_copied(buffer, 2);
    cr_expect_eq(copies("copies_made"), 1);
}

Test(freeze, longest_unused_copies_go_first)
{
    gemmd_buffer *buffers[3];

    need_device();
    if (!test_device_is_fake())
        cr_skip_test("a real device has room for all");
    for (int i = 0; i < 3; i++) {
        buffers[i] = make((float)(1 + i), NULL);
        cr_assert_eq(gemmd_buffer_freeze(buffers[i]), GEMMD_OK);
        expect_copied(buffers[i], (float)(1 + i));
        cr_expect_leq(copies("copied_bytes"), 2 << 20);
    }
    cr_expect_eq(copies("copies_made"), 3);
    expect_copied(buffers[1], 2);
    expect_copied(buffers[2], 3);
    cr_expect_eq(copies("copies_made"), 3); /* the first was displaced, not these */
    expect_right(buffers[0], 1);
}

/* 2 GiB, as the uid may have, if it were not for its copy. */
Test(freeze, own_copies_are_no_reason_to_be_refused)
{
    gemmd_buffer *buffer = make(4, NULL), *large = NULL;

    need_device();
    if (!test_device_is_fake())
        cr_skip_test("fills no real device");
    cr_assert_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    expect_copied(buffer, 4);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, (2ull << 30) + 1, NULL, 0, &large),
                 GEMMD_LIMIT);
    cr_expect_eq(copies("copied_bytes"), 0);
    expect_copied(buffer, 4);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 2ull << 30, NULL, 0, &large),
                 GEMMD_OUT_OF_MEMORY); /* the quota let it pass */
}

Test(freeze, copies_go_when_memory_is_short)
{
    gemmd_buffer *buffer = make(5, NULL), *large = NULL;

    need_device();
    if (!test_device_is_fake())
        cr_skip_test("fills no real device");
    cr_assert_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    expect_copied(buffer, 5);
    cr_expect_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 3ull << 29, NULL, 0, &large),
                 GEMMD_OUT_OF_MEMORY);
    cr_expect_eq(copies("copied_bytes"), 0);
    expect_copied(buffer, 5);
}

/* They wait for one slab, which is refused until the copy has gone. */
Test(freeze, copies_go_for_all_small_ones_that_wait)
{
    enum { CREATIONS = 3 };

    gemmd_buffer *buffer;
    pid_t worker;
    int client;

    need_device();
    if (!test_device_is_fake())
        cr_skip_test("fills no real device");
    stop();
    (void)setenv("FAKE_DRIVER_ROOM", "1", 1);
    start();
    buffer = make_in(3 << 19, 6, NULL); /* its copy is in no slab */
    cr_assert_eq(gemmd_buffer_freeze(buffer), GEMMD_OK);
    expect_copied(buffer, 6);
    client = raw_greeted(&daemon_);
    worker = test_worker_hold(connection);
    for (uint32_t i = 0; i < CREATIONS; i++) {
        const struct request create = {.id = 2 + i,
                                       .method = METHOD_BUFFER_CREATE,
                                       .body.buffer = {.kind = BUFFER_DEVICE, .size = 64}};

        cr_assert(raw_request(client, &create, -1));
    }
    while (test_status_number(connection, "buffers", "count") < 1 + CREATIONS)
        (void)usleep(1000);
    test_worker_release(worker);
    raw_expect_all(client, 2, CREATIONS, STATUS_OK);
    cr_expect_eq(copies("copied_bytes"), 0);
    (void)close(client);
}

/* The daemon's own end, with nobody there to free them. */
Test(freeze, named_ones_and_their_copies_end_with_the_daemon)
{
    gemmd_buffer *first = make(1, "first"), *second = make(2, "second");

    need_device();
    cr_assert_eq(gemmd_buffer_freeze(second), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_freeze(first), GEMMD_OK);
    expect_copied(second, 2);
    expect_copied(first, 1);
}
