/*
 * Device memory of clients: products use it where it lies, what it is not is refused, and it goes
 * with its client.
 */
#include "../support/client_memory.h"
#include "../support/daemon.h"
#include "../support/faults.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNIT CLIENT_MEMORY_UNIT

static struct test_daemon daemon_;
static gemmd *connection;

/* Of uids only this one is trusted with legacy handles; NULL: none. */
static void serve(const char *trusted)
{
    char path[] = "/tmp/gemmd-import-XXXXXX";
    int fd = mkstemp(path);
    const char *const arguments[] = {"--mode", "0666", "--config", path, NULL};

    if (trusted)
        dprintf(fd, "[uid %s]\ntrusts-ipc = yes\n", trusted);
    (void)close(fd);
    test_daemon_start(&daemon_, arguments);
    (void)unlink(path);
    (void)chmod(daemon_.directory, 0755);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    if (!connection)
        return;
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(import, .fini = stop, .timeout = 120);

static gemmd_import whole(int fd, uint64_t bytes)
{
    gemmd_import import = GEMMD_IMPORT_INIT;

    import.fd = fd;
    import.bytes = bytes;
    import.writable = true;
    return import;
}

static gemmd_buffer *take(const gemmd_import *import)
{
    gemmd_buffer *buffer = NULL;

    cr_assert_eq(gemmd_buffer_import(connection, import, &buffer), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return buffer;
}

static void expect_refused(const gemmd_import *import, gemmd_status status, const char *argument)
{
    gemmd_buffer *buffer = NULL;

    cr_expect_eq(gemmd_buffer_import(connection, import, &buffer), status);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, argument, "%s",
                     gemmd_last_error(connection)->message);
}

/* d = a * 2, one element each, at a byte offset of both. */
static gemmd_status twice(gemmd_buffer *a, gemmd_buffer *d, uint64_t offset)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    float two = 2;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.buffer = a;
    product.a.offset = offset;
    product.b.data = &two;
    product.d.buffer = d;
    product.d.offset = offset;
    return gemmd_gemm(connection, &product, NULL);
}

static void kill_worker(void)
{
    double deaths = test_status_number(connection, "worker", "deaths");

    cr_assert_eq(kill(test_worker_pid(connection), SIGKILL), 0);
    while (test_status_number(connection, "worker", "deaths") == deaths)
        (void)usleep(1000);
}

Test(import, products_use_the_memory_where_it_lies)
{
    struct client_memory a_memory = client_memory_new(UNIT), d_memory = client_memory_new(UNIT);
    gemmd_import imports[2] = {whole(a_memory.fd, UNIT), whole(d_memory.fd, UNIT)};
    gemmd_buffer *a, *d;

    serve(NULL);
    client_memory_set(&d_memory, 6, 13);
    a = take(&imports[0]);
    d = take(&imports[1]);
    cr_expect_eq(client_memory_get(&d_memory, 6), 13, "what a client lends is not cleared");
    for (int i = 0; i < 3; i++) {
        client_memory_set(&a_memory, 5, 21.0f + (float)i);
        cr_assert_eq(twice(a, d, 20), GEMMD_OK, "%s", gemmd_last_error(connection)->message);
        cr_expect_eq(client_memory_get(&d_memory, 5), 42.0f + 2.0f * (float)i);
    }
    cr_expect_eq(client_memory_get(&d_memory, 6), 13);
}

Test(import, begins_where_the_client_says)
{
    struct client_memory memory = client_memory_new(UNIT);
    gemmd_import import = whole(memory.fd, 1024);
    float seen = 0;
    gemmd_buffer *buffer;

    import.allocation = UNIT;

    serve(NULL);
    client_memory_set(&memory, UNIT / 8, 3);
    import.offset = UNIT / 2;
    buffer = take(&import);
    cr_assert_eq(gemmd_buffer_read(buffer, 0, &seen, 4), GEMMD_OK);
    cr_expect_eq(seen, 3);
    cr_expect_eq(gemmd_buffer_read(buffer, 1022, &seen, 4), GEMMD_INVALID_ARGUMENT);
    import.offset = 128;
    expect_refused(&import, GEMMD_INVALID_ARGUMENT, "offset");
    import.offset = UINT64_MAX - 255;
    expect_refused(&import, GEMMD_INVALID_ARGUMENT, "offset");
    import.offset = UNIT / 2;
    import.allocation = 1024;
    expect_refused(&import, GEMMD_INVALID_ARGUMENT, "allocation");
    import.offset = UNIT - 512;
    import.allocation = 0;
    expect_refused(&import, GEMMD_INVALID_ARGUMENT, "size");
}

Test(import, what_is_not_such_memory_is_refused_and_nobody_notices)
{
    int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), pipe_fds[2];
    int plain = memfd_create("plain", MFD_CLOEXEC);

    serve(NULL);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert_eq(pipe(pipe_fds), 0);
    cr_assert_eq(ftruncate(plain, UNIT), 0);
    const int wrong[] = {pair[0], null, pipe_fds[0], plain};

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        gemmd_import import = whole(wrong[i], 4096);

        expect_refused(&import, GEMMD_INVALID_ARGUMENT, "fd");
    }
    struct client_memory small = client_memory_new(UNIT);
    gemmd_import large = whole(small.fd, UNIT + 4096);

    expect_refused(&large, GEMMD_INVALID_ARGUMENT, "size");
    large.bytes = 0;
    expect_refused(&large, GEMMD_INVALID_ARGUMENT, "size");
    large = whole(-1, 64);
    expect_refused(&large, GEMMD_INVALID_ARGUMENT, "fd");
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 0);
    cr_expect_eq(test_status_number(connection, "buffers", "count"), 0);
}

Test(import, for_reading_is_not_written)
{
    gemmd_import import = whole(client_memory_new(UNIT).fd, UNIT);
    gemmd_buffer *buffer;

    serve(NULL);
    import.writable = false;
    buffer = take(&import);
    cr_expect_eq(twice(buffer, buffer, 0), GEMMD_PERMISSION);
    cr_expect_eq(gemmd_buffer_write(buffer, 0, "x", 1), GEMMD_PERMISSION);
}

Test(import, name_shares_it_and_goes_with_its_client)
{
    struct client_memory memory = client_memory_new(UNIT);
    gemmd_import import = whole(memory.fd, UNIT);
    float seen = 0;
    gemmd_buffer *lent = NULL, *found = NULL, *none = NULL;
    gemmd *owner;

    serve(NULL);
    owner = test_daemon_connect(&daemon_);
    client_memory_set(&memory, 0, 8);
    import.name = "lent";
    cr_assert_eq(gemmd_buffer_import(owner, &import, &lent), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_open(connection, "lent", false, &found), GEMMD_OK);
    gemmd_close(owner);
    while (test_status_number(connection, NULL, "clients") > 1)
        ;
    cr_expect_eq(gemmd_buffer_open(connection, "lent", false, &none), GEMMD_NOT_FOUND);
    cr_expect_eq(gemmd_buffer_read(found, 0, &seen, 4), GEMMD_OK);
    cr_expect_eq(seen, 8);
    gemmd_buffer_free(found);
    cr_expect_eq(test_status_number(connection, "buffers", "count"), 0);
    cr_expect_eq(test_status_number(connection, "buffers", "host_bytes"), 0);
    cr_expect_eq(test_status_number(connection, "buffers", "imported_bytes"), 0);
}

Test(import, is_charged_with_all_that_is_mapped)
{
    gemmd_import import = whole(client_memory_new(2 * UNIT).fd, 4096);
    const char *kind = test_device_is_cpu() ? "host_bytes" : "imported_bytes";
    gemmd_buffer *buffer;

    serve(NULL);
    import.offset = UNIT;
    buffer = take(&import);
    cr_expect_eq(test_status_number(connection, "buffers", kind),
                 test_device_is_cpu() ? UNIT + 4096 : 2 * UNIT);
    gemmd_buffer_free(buffer);
    cr_expect_eq(test_status_number(connection, "buffers", kind), 0);
}

Test(import, is_there_for_the_next_worker)
{
    struct client_memory memory = client_memory_new(UNIT);
    gemmd_import import = whole(memory.fd, UNIT);
    gemmd_buffer *buffer;
    gemmd_buffer *d = NULL;

    serve(NULL);
    buffer = take(&import);
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, 64, NULL, 0, &d), GEMMD_OK);
    (void)close(memory.fd);
    for (int i = 1; i < 4; i++) {
        float seen = 0;

        client_memory_set(&memory, 0, (float)i);
        kill_worker();
        cr_assert_eq(twice(buffer, d, 0), GEMMD_OK);
        cr_assert_eq(gemmd_buffer_read(d, 0, &seen, 4), GEMMD_OK);
        cr_expect_eq(seen, 2.0f * (float)i);
    }
}

/* --- faults ---------------------------------------------------------------------------------- */

static gemmd_status import_as(uid_t uid, const gemmd_import *import)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        gemmd *own = NULL;
        gemmd_buffer *buffer;

        if (setgid(uid) < 0 || setuid(uid) < 0 ||
            gemmd_connect(daemon_.socket, &own, NULL) != GEMMD_OK)
            _exit(100);
        _exit((int)gemmd_buffer_import(own, import, &buffer));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    return (gemmd_status)WEXITSTATUS(status);
}

Test(import, uid_whose_memory_kills_two_workers_loses_the_right)
{
    gemmd_import bad = whole(client_memory_new(3 * UNIT).fd, 3 * UNIT);
    gemmd_import good = whole(client_memory_new(UNIT).fd, UNIT);

    if (!test_device_is_fake() || getuid() != 0)
        cr_skip_test("needs the fake driver, which crashes when told, and root");
    (void)setenv("FAKE_DRIVER_CRASH_IMPORT_SIZE", "6291456", 1);
    serve(NULL);
    cr_expect_eq(import_as(1234, &good), GEMMD_OK);
    cr_expect_eq(import_as(1234, &bad), GEMMD_GPU_FAULT);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2);
    cr_expect_eq(import_as(1234, &bad), GEMMD_PERMISSION);
    cr_expect_eq(import_as(1234, &good), GEMMD_PERMISSION);
    cr_expect_eq(import_as(1235, &good), GEMMD_OK);
    (void)take(&good);
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 2);
}

/* Memory that goes away under a job looks like a faulty product: whoever lent it is held to it. */
Test(import, uid_whose_memory_was_in_two_guilty_products_loses_the_right)
{
    gemmd_import import = whole(client_memory_new(UNIT).fd, UNIT);
    gemmd_product product = GEMMD_PRODUCT_INIT;
    float data[64 * 64] = {0};

    if (!test_device_is_cpu() || getuid() != 0 || !faulty_blas_is_possible())
        cr_skip_test("needs a BLAS to be faulty, on the CPU, and root");
    faulty_blas_choose(NULL);
    serve(NULL);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 64;
    product.alpha = TEST_FAULT_ALPHA + TEST_FAULT_TRAP;
    product.b.data = product.d.data = data;
    for (int i = 0; i < 2; i++) {
        product.a.buffer = take(&import);
        cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_GPU_FAULT);
    }
    expect_refused(&import, GEMMD_PERMISSION, "");
    cr_expect_eq(import_as(1235, &import), GEMMD_OK);
    product.alpha = 1;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK); /* what it has it keeps */
}

/* --- legacy handles -------------------------------------------------------------------------- */

static gemmd_import legacy(const uint8_t handle[64], uint64_t bytes)
{
    gemmd_import import = whole(-1, bytes);

    import.ipc_handle = handle;
    return import;
}

Test(import, legacy_handle_is_for_those_who_are_trusted)
{
    struct client_memory memory = client_memory_new_plain(UNIT);
    uint8_t handle[64];
    gemmd_import import = legacy(handle, UNIT);

    serve("4000");
    client_memory_handle(&memory, handle);
    expect_refused(&import, GEMMD_PERMISSION, "handle");
    cr_expect_eq(test_status_number(connection, "buffers", "count"), 0);
}

static const char *my_uid(void)
{
    static char text[16];

    (void)snprintf(text, sizeof(text), "%u", (unsigned)getuid());
    return text;
}

Test(import, legacy_handle_opens_the_exporters_memory)
{
    struct client_memory memory = client_memory_new_plain(UNIT);
    uint8_t handle[64];
    gemmd_import import = legacy(handle, 4096);
    gemmd_buffer *buffer;

    serve(my_uid());
    client_memory_handle(&memory, handle);
    if (test_device_is_cpu()) {
        expect_refused(&import, GEMMD_UNSUPPORTED, "handle");
        return;
    }
    import.offset = 8192;
    buffer = take(&import);
    client_memory_set(&memory, 2048, 4);
    client_memory_set(&memory, 2049, 9);
    cr_assert_eq(twice(buffer, buffer, 0), GEMMD_INVALID_ARGUMENT);
    kill_worker(); /* opened again: handle and offset are kept */
    float seen = 0;
    cr_assert_eq(gemmd_buffer_read(buffer, 4, &seen, 4), GEMMD_OK);
    cr_expect_eq(seen, 9);
    import.bytes = UNIT;
    expect_refused(&import, GEMMD_INVALID_ARGUMENT, "size");
    memset(handle, 0xee, sizeof(handle));
    expect_refused(&import, GEMMD_INVALID_ARGUMENT, "handle");
    cr_expect_eq(test_status_number(connection, "worker", "deaths"), 1);
}

/* Its own process, which makes the memory, too; the handle comes through the pipe. */
static pid_t start_exporter(uint8_t ret_handle[64])
{
    int ends[2];
    pid_t exporter;

    cr_assert_eq(pipe(ends), 0);
    exporter = process_fork();
    if (exporter == 0) {
        struct client_memory memory = client_memory_new_plain(UNIT);
        uint8_t handle[64];

        client_memory_handle(&memory, handle);
        (void)!write(ends[1], handle, sizeof(handle));
        for (;;)
            pause();
    }
    (void)close(ends[1]);
    cr_assert_eq(read(ends[0], ret_handle, 64), 64, "the exporter has no handle");
    (void)close(ends[0]);
    return exporter;
}

Test(import, legacy_handle_of_a_dead_exporter_is_lost_with_the_worker)
{
    uint8_t handle[64];
    gemmd_import import = legacy(handle, UNIT);
    gemmd_buffer *buffer;
    char seen;
    pid_t exporter;

    if (test_device_is_cpu())
        cr_skip_test("the CPU has no such handles");
    serve(my_uid());
    exporter = start_exporter(handle);
    buffer = take(&import);
    cr_assert_eq(gemmd_buffer_read(buffer, 0, &seen, 1), GEMMD_OK);
    (void)kill(exporter, SIGKILL);
    (void)waitpid(exporter, NULL, 0);
    kill_worker();
    cr_expect_eq(gemmd_buffer_read(buffer, 0, &seen, 1), GEMMD_BUFFER_LOST);
}
