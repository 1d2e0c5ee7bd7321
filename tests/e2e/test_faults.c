/*
 * A product that faults the device while others compute: it alone is told so, and nobody loses
 * anything. The faults are real (support/faults.h): on the CPU signals, on a GPU what a wrong
 * kernel does. (Workers that are killed or stopped from outside: test_worker_death.c, _hang.c.)
 */
#include "../support/daemon.h"
#include "../support/faults.h"
#include "../support/products.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 96, NEIGHBOURS = 15, EACH = 6, LARGE = 1024 };

static struct test_daemon daemon_;
static char kernels[64];

static void start(void)
{
    static const char *arguments[] = {"--job-time-limit", "1", NULL, NULL, NULL};

    if (test_device_is_fake()) {
        (void)setenv("FAKE_DRIVER_FAULTS", "1", 1);
        (void)setenv("GEMMD_LIBNVML", getenv("GEMMD_LIBCUDA"), 1);
    } else if (test_device_is_cpu()) {
        if (!faulty_blas_is_possible())
            cr_skip_test("there is no OpenBLAS to be faulty");
        faulty_blas_choose(NULL);
    } else {
        (void)strcpy(kernels, "/tmp/gemmd-faulty-XXXXXX");
        cr_assert_not_null(mkdtemp(kernels));
        cr_assert(faulty_kernels_write(kernels));
        arguments[2] = "--kernels";
        arguments[3] = kernels;
    }
    test_daemon_start(&daemon_, arguments);
}

static void stop(void)
{
    char command[96];

    if (daemon_.pid > 0)
        test_daemon_stop(&daemon_);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", kernels);
    if (kernels[0])
        (void)!system(command);
}

TestSuite(faults, .init = start, .fini = stop, .timeout = 120);

/* Its operands in device memory; D = alpha A @ B, and A is `value` everywhere, B 1/SIZE. */
struct scene {
    gemmd *connection;
    gemmd_buffer *a, *b, *d;
    float value;
};

static gemmd_buffer *filled(gemmd *connection, float value)
{
    static float data[SIZE * SIZE];
    gemmd_buffer *buffer = NULL;

    for (int i = 0; i < SIZE * SIZE; i++)
        data[i] = value;
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_DEVICE, sizeof(data), NULL, 0, &buffer),
                 GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(buffer, 0, data, sizeof(data)), GEMMD_OK);
    return buffer;
}

static struct scene scene_new(float value)
{
    struct scene scene = {.connection = test_daemon_connect(&daemon_), .value = value};

    scene.a = filled(scene.connection, value);
    scene.b = filled(scene.connection, 1);
    scene.d = filled(scene.connection, -1);
    return scene;
}

static gemmd_product product_of(const struct scene *scene, double alpha)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = SIZE;
    product.alpha = alpha;
    product.a.buffer = scene->a;
    product.b.buffer = scene->b;
    product.d.buffer = scene->d;
    return product;
}

static void expect_all(gemmd_buffer *buffer, float value)
{
    static float data[SIZE * SIZE];

    cr_assert_eq(gemmd_buffer_read(buffer, 0, data, sizeof(data)), GEMMD_OK);
    for (int i = 0; i < SIZE * SIZE; i++)
        cr_assert_eq(data[i], value, "element %d is %g, not %g", i, (double)data[i], (double)value);
}

/* Small numbers: every sum is exact. */
static void expect_right(const struct scene *scene)
{
    expect_all(scene->d, SIZE * scene->value);
    expect_all(scene->a, scene->value);
    expect_all(scene->b, 1);
}

static void expect_told_to_the_guilty_alone(enum test_fault kind)
{
    struct scene guilty = scene_new(1), neighbours[NEIGHBOURS];
    gemmd_job culprit, jobs[NEIGHBOURS][EACH];
    gemmd_product product = product_of(&guilty, 1);

    cr_assert_eq(gemmd_gemm(guilty.connection, &product, NULL), GEMMD_OK);
    expect_right(&guilty);
    for (int i = 0; i < NEIGHBOURS; i++)
        neighbours[i] = scene_new((float)(2 + i));
    product = product_of(&guilty, TEST_FAULT_ALPHA + kind);
    for (int j = 0; j < EACH; j++) {
        for (int i = 0; i < NEIGHBOURS; i++) {
            gemmd_product good = product_of(&neighbours[i], 1);

            cr_assert_eq(gemmd_submit(neighbours[i].connection, &good, &jobs[i][j]), GEMMD_OK);
        }
        if (j == EACH / 2)
            cr_assert_eq(gemmd_submit(guilty.connection, &product, &culprit), GEMMD_OK);
    }
    cr_expect_eq(gemmd_wait(guilty.connection, culprit, -1, NULL), GEMMD_GPU_FAULT, "%s",
                 test_fault_name(kind));
    for (int i = 0; i < NEIGHBOURS; i++) {
        for (int j = 0; j < EACH; j++)
            cr_expect_eq(gemmd_wait(neighbours[i].connection, jobs[i][j], -1, NULL), GEMMD_OK,
                         "%s: %s", test_fault_name(kind),
                         gemmd_last_error(neighbours[i].connection)->message);
        expect_right(&neighbours[i]);
        gemmd_close(neighbours[i].connection);
    }
    expect_all(guilty.a, 1);
    cr_expect_eq(test_stats_number(guilty.connection, NULL, "faulted"), 1);
    cr_expect_leq(test_status_number(guilty.connection, "worker", "deaths"), 2);
    gemmd_close(guilty.connection);
}

Test(faults, of_a_bad_address_are_told_to_the_guilty_alone)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_ADDRESS);
}

Test(faults, of_a_misaligned_address_are_told_to_the_guilty_alone)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_MISALIGNED);
}

Test(faults, by_a_trap_are_told_to_the_guilty_alone)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_TRAP);
    /* CUDA tells of it after a second, and that is the limit of a job, too. */
    if (test_device_is_fake())
        cr_expect(test_daemon_logged(&daemon_, "reported a fault (Xid)"));
}

Test(faults, of_an_endless_product_are_told_to_the_guilty_alone)
{
    expect_told_to_the_guilty_alone(TEST_FAULT_ENDLESS);
}

/* The driver gives registered memory back when the device rests, which it does not; the worker must
 * not wait there. It is the job that hangs, and is told so after its limit of time. */
Test(faults, of_an_endless_product_are_the_products_though_a_client_goes)
{
    enum { REGISTERED = 8 << 20 }; /* when it is mapped, not when it is used again */

    struct scene guilty, neighbour;
    gemmd_product endless, good;
    gemmd_buffer *host = NULL;
    gemmd_job culprit;

    if (test_device_is_cpu())
        cr_skip_test("a worker of a CPU takes nothing else while it computes");
    guilty = scene_new(1);
    neighbour = scene_new(2);
    good = product_of(&neighbour, 1);
    cr_assert_eq(gemmd_buffer_create(neighbour.connection, GEMMD_HOST, REGISTERED, NULL, 0, &host),
                 GEMMD_OK);
    good.a.buffer = host;
    cr_assert_eq(gemmd_gemm(neighbour.connection, &good, NULL), GEMMD_OK);
    endless = product_of(&guilty, TEST_FAULT_ALPHA + TEST_FAULT_ENDLESS);
    cr_assert_eq(gemmd_submit(guilty.connection, &endless, &culprit), GEMMD_OK);
    good.a.buffer = neighbour.a;
    cr_assert_eq(gemmd_gemm(neighbour.connection, &good, NULL), GEMMD_OK, "it passes the other");
    gemmd_close(neighbour.connection);
    cr_expect_eq(gemmd_wait(guilty.connection, culprit, -1, NULL), GEMMD_GPU_FAULT);
    cr_expect(test_daemon_logged(&daemon_, "a job hangs"));
    cr_expect_not(test_daemon_logged(&daemon_, "its heart stopped"));
    gemmd_close(guilty.connection);
}

/* Its panels are queued in steps, beside other commands; the fault is in one of them. */
Test(faults, of_a_product_that_streams_from_host_memory_are_told_to_it_alone)
{
    struct scene guilty = scene_new(1), neighbour = scene_new(2);
    gemmd_product product = product_of(&guilty, TEST_FAULT_ALPHA + TEST_FAULT_ADDRESS);
    gemmd_product good = product_of(&neighbour, 1);
    gemmd_buffer *host = NULL;
    gemmd_job culprit, jobs[EACH];
    const uint64_t bytes = LARGE * LARGE * sizeof(float);

    cr_assert_eq(gemmd_buffer_create(guilty.connection, GEMMD_HOST, 3 * bytes, NULL, 0, &host),
                 GEMMD_OK);
    product.m = product.n = product.k = LARGE;
    product.a.buffer = product.b.buffer = product.d.buffer = host;
    product.b.offset = bytes;
    product.d.offset = 2 * bytes;
    cr_assert_eq(gemmd_submit(guilty.connection, &product, &culprit), GEMMD_OK);
    for (int i = 0; i < EACH; i++)
        cr_assert_eq(gemmd_submit(neighbour.connection, &good, &jobs[i]), GEMMD_OK);
    cr_expect_eq(gemmd_wait(guilty.connection, culprit, -1, NULL), GEMMD_GPU_FAULT);
    for (int i = 0; i < EACH; i++)
        cr_expect_eq(gemmd_wait(neighbour.connection, jobs[i], -1, NULL), GEMMD_OK);
    expect_right(&neighbour);
    cr_expect_leq(test_status_number(guilty.connection, "worker", "deaths"), 2);
    gemmd_close(guilty.connection);
    gemmd_close(neighbour.connection);
}

/* And one whose operands came in the message: the daemon's copy of them is there for a replay. */
Test(faults, of_a_product_on_plain_memory_are_told_to_it_alone)
{
    static float data[SIZE * SIZE], d[SIZE * SIZE];
    struct scene neighbour = scene_new(2);
    gemmd *connection = test_daemon_connect(&daemon_);
    gemmd_product product = product_of(&neighbour, TEST_FAULT_ALPHA + TEST_FAULT_MISALIGNED);
    gemmd_product good = product_of(&neighbour, 1);

    product.a.buffer = product.b.buffer = product.d.buffer = NULL;
    product.a.data = product.b.data = data;
    product.d.data = d;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_GPU_FAULT);
    cr_expect_eq(gemmd_gemm(neighbour.connection, &good, NULL), GEMMD_OK);
    expect_right(&neighbour);
    product.alpha = 1;
    cr_expect_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    gemmd_close(connection);
    gemmd_close(neighbour.connection);
}

/* Again and again, by one who does not learn: the others are delayed, no more. */
Test(faults, repeated_by_one_client_end_nobody_else)
{
    struct scene guilty = scene_new(1), other = scene_new(3);

    for (int i = 0; i < 6; i++) {
        gemmd_product bad = product_of(&guilty, TEST_FAULT_ALPHA + TEST_FAULT_ADDRESS),
                      good = product_of(&other, 1);

        cr_expect_eq(gemmd_gemm(guilty.connection, &bad, NULL), GEMMD_GPU_FAULT);
        cr_expect_eq(gemmd_gemm(other.connection, &good, NULL), GEMMD_OK);
        expect_right(&other);
    }
    gemmd_close(guilty.connection);
    gemmd_close(other.connection);
}

/* An ordinary daemon knows no such thing. */
Test(faults, are_unknown_to_a_daemon_that_was_not_told)
{
    struct test_daemon faulty = daemon_;
    struct scene scene;

    (void)unsetenv("GEMMD_BLAS");
    (void)unsetenv("FAKE_DRIVER_FAULTS");
    daemon_ = (struct test_daemon){0};
    test_daemon_start(&daemon_, NULL);
    scene = scene_new(1);
    for (int fault = 0; fault < TEST_FAULT_COUNT; fault++) {
        gemmd_product product = product_of(&scene, TEST_FAULT_ALPHA + fault);

        cr_expect_eq(gemmd_gemm(scene.connection, &product, NULL), GEMMD_OK);
        expect_all(scene.d, (float)(SIZE * (TEST_FAULT_ALPHA + fault)));
    }
    cr_expect_eq(test_status_number(scene.connection, "worker", "deaths"), 0);
    gemmd_close(scene.connection);
    test_daemon_stop(&daemon_);
    daemon_ = faulty;
}
