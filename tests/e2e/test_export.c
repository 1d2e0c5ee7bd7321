/*
 * Device buffers by descriptor: what a client maps is what products use, and only those get it who
 * may write. On the CPU and the fake driver the descriptor is a memfd, so its bytes can be seen.
 */
#include "../support/daemon.h"
#include "../support/products.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (3ull << 20) /* no multiple of a GPU's unit */

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

TestSuite(export, .init = start, .fini = stop, .timeout = 120);

static gemmd_buffer *make(gemmd_memory memory, uint64_t size, const char *name, unsigned mode)
{
    gemmd_buffer *buffer = NULL;

    cr_assert_eq(gemmd_buffer_create(connection, memory, size, name, mode, &buffer), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return buffer;
}

static gemmd_export take(gemmd_buffer *buffer)
{
    gemmd_export export = {.size = sizeof(export)};

    cr_assert_eq(gemmd_buffer_export(buffer, &export), GEMMD_OK);
    cr_assert_geq(export.fd, 0);
    cr_assert_geq(export.allocation, gemmd_buffer_size(buffer));
    return export;
}

/* NULL on a real GPU, whose memory the CPU does not map. */
static float *map(const gemmd_export *export)
{
    void *data = mmap(NULL, export->allocation, PROT_READ | PROT_WRITE, MAP_SHARED, export->fd, 0);

    return data == MAP_FAILED ? NULL : data;
}

Test(export, descriptor_is_the_memory_that_products_use)
{
    gemmd_buffer *a = make(GEMMD_DEVICE_EXPORTABLE, BYTES, NULL, 0);
    gemmd_buffer *d = make(GEMMD_DEVICE_EXPORTABLE, BYTES, NULL, 0);
    gemmd_export a_export = take(a), d_export = take(d);
    float *a_data = map(&a_export), *d_data = map(&d_export), two = 2, seen = 0;
    gemmd_product product = GEMMD_PRODUCT_INIT;

    if (!a_data || !d_data)
        cr_skip_test("the CPU cannot map this device's memory");
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.buffer = a;
    product.b.data = &two;
    product.d.buffer = d;
    product.d.offset = 8;
    for (int i = 1; i < 4; i++) {
        a_data[0] = (float)i;
        cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
        cr_expect_eq(d_data[2], 2.0f * (float)i);
    }
    cr_assert_eq(gemmd_buffer_read(d, 8, &seen, 4), GEMMD_OK);
    cr_expect_eq(seen, 6);
}

Test(export, memory_outlives_the_buffer_for_whoever_holds_it)
{
    gemmd_buffer *buffer = make(GEMMD_DEVICE_EXPORTABLE, BYTES, NULL, 0);
    gemmd_export export = take(buffer);
    float *data = map(&export), value = 5;

    cr_assert_eq(gemmd_buffer_write(buffer, 0, &value, 4), GEMMD_OK);
    gemmd_buffer_free(buffer);
    cr_assert_eq(gemmd_poll(connection, 0, &(bool){false}), GEMMD_NOT_FOUND); /* still served */
    if (data)
        cr_expect_eq(data[0], 5);
    (void)close(export.fd);
}

Test(export, is_for_those_who_may_write)
{
    gemmd *other = test_daemon_connect(&daemon_);
    gemmd_export export = {.size = sizeof(export)};
    gemmd_buffer *theirs = NULL;

    (void)make(GEMMD_DEVICE_EXPORTABLE, 64, "weights", 0644);
    cr_assert_eq(gemmd_buffer_open(other, "weights", false, &theirs), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_export(theirs, &export), GEMMD_PERMISSION);
    cr_expect_eq(export.fd, -1);
    gemmd_buffer_free(theirs);
    cr_assert_eq(gemmd_buffer_open(other, "weights", true, &theirs), GEMMD_OK);
    cr_expect_eq(gemmd_buffer_export(theirs, &export), GEMMD_OK);
    gemmd_close(other);
}

/* A child of another uid cannot get it by any handle that it can open. */
Test(export, mode_keeps_other_users_from_the_memory)
{
    gemmd_buffer *buffer = NULL;
    gemmd_export export = {.size = sizeof(export)};
    int status;
    pid_t child;

    if (getuid() != 0)
        cr_skip_test("needs root, to become another");
    (void)make(GEMMD_DEVICE_EXPORTABLE, 64, "weights", 0644);
    child = fork();
    if (child == 0) {
        gemmd *own = NULL;

        if (setgid(1234) < 0 || setuid(1234) < 0 ||
            gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK)
            _exit(100);
        if (gemmd_buffer_open(own, "weights", true, &buffer) != GEMMD_PERMISSION ||
            gemmd_buffer_open(own, "weights", false, &buffer) != GEMMD_OK)
            _exit(101);
        _exit((int)gemmd_buffer_export(buffer, &export));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(WEXITSTATUS(status), GEMMD_PERMISSION);
}

Test(export, is_refused_for_what_was_not_made_for_it)
{
    gemmd_export export = {.size = sizeof(export)};
    gemmd_buffer *none = NULL;

    for (gemmd_memory memory = GEMMD_HOST; memory <= GEMMD_DEVICE; memory++) {
        cr_expect_eq(gemmd_buffer_export(make(memory, BYTES, NULL, 0), &export),
                     GEMMD_INVALID_ARGUMENT);
        cr_expect_str_eq(gemmd_last_error(connection)->argument, "buffer");
    }
    cr_expect_eq(gemmd_buffer_create(connection, 4, 64, NULL, 0, &none), GEMMD_INVALID_ARGUMENT);
    export.size = 8;
    cr_expect_eq(gemmd_buffer_export(make(GEMMD_DEVICE_EXPORTABLE, 64, NULL, 0), &export),
                 GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "ret");
}

Test(export, gives_away_what_was_zeroed)
{
    gemmd_export export = take(make(GEMMD_DEVICE_EXPORTABLE, BYTES + 1, NULL, 0));
    const char *data = (const char *)map(&export);
    struct stat status;

    cr_assert_eq(fstat(export.fd, &status), 0);
    if (data)
        cr_expect_eq((uint64_t)status.st_size, export.allocation);

    for (uint64_t i = 0; data && i < export.allocation; i++)
        cr_assert_eq(data[i], 0, "byte %llu", (unsigned long long)i);
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

Test(export, keeps_no_descriptor_in_the_daemon)
{
    gemmd_buffer *buffer = make(GEMMD_DEVICE_EXPORTABLE, BYTES, NULL, 0);
    int before = descriptors();

    for (int i = 0; i < 50; i++) {
        gemmd_export export = take(buffer);
        (void)close(export.fd);
    }
    /* It closes its own a moment after it has sent it. */
    for (int i = 0; i < 60000 && descriptors() != before; i++)
        (void)usleep(1000);
    cr_expect_eq(descriptors(), before);
}
