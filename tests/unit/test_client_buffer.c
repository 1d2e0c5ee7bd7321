/*
 * libgemmd: buffers, and products that name them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_fixture.h"

static gemmd_buffer *create(gemmd_memory memory, uint64_t size, const char *name)
{
    gemmd_buffer *buffer;

    cr_assert_eq(gemmd_buffer_create(connection, memory, size, name, 0600, &buffer), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return buffer;
}

static unsigned char *noise(size_t size)
{
    unsigned char *bytes = malloc(size + 1);

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(rand() >> 3);
    return bytes;
}

/* --- bytes in and out ------------------------------------------------------------------------ */

static void expect_round_trip(gemmd_buffer *buffer, uint64_t offset, size_t size)
{
    unsigned char *in = noise(size), *out = calloc(1, size + 2);

    out[size] = 0x77;
    cr_assert_eq(gemmd_buffer_write(buffer, offset, in, size), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    cr_assert_eq(gemmd_buffer_read(buffer, offset, out, size), GEMMD_OK);
    cr_assert_eq(memcmp(in, out, size), 0, "%zu bytes", size);
    cr_assert_eq(out[size], 0x77);
    free(in), free(out);
}

Test(client_buffer, moves_any_number_of_bytes)
{
    static const size_t sizes[] = {0, 1, 4095, 262143, 262144, 262145, 8388608, 33554433};
    gemmd_buffer *device, *host;

    connect_to(NULL);
    device = create(GEMMD_DEVICE, 40 << 20, NULL);
    host = create(GEMMD_HOST, 40 << 20, NULL);
    cr_assert_null(gemmd_buffer_data(device));
    cr_assert_not_null(gemmd_buffer_data(host));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_round_trip(device, 3, sizes[i]);
        expect_round_trip(host, 3, sizes[i]);
    }
    cr_assert_lt(atomic_load(&fake.largest_frame), (256 << 10) + 4096);
    disconnect();
}

Test(client_buffer, keeps_within_the_daemons_message_size)
{
    gemmd_buffer *buffer;

    connect_to(&(struct fake_options){.length_max = 8192});
    buffer = create(GEMMD_DEVICE, 1 << 20, NULL);
    for (size_t size = 4000; size < 9000; size += 100)
        expect_round_trip(buffer, 1, size);
    cr_assert_leq(atomic_load(&fake.largest_frame), 8192);
    disconnect();
}

Test(client_buffer, refuses_bytes_outside_the_buffer)
{
    static const struct {
        uint64_t offset, size;
    } ranges[] = {{0, 101}, {100, 1}, {101, 0}, {UINT64_MAX, 2}, {1, UINT64_MAX}, {50, 51}};

    gemmd_buffer *buffers[2];
    char bytes[256];

    connect_to(NULL);
    buffers[0] = create(GEMMD_HOST, 100, NULL);
    buffers[1] = create(GEMMD_DEVICE, 100, NULL);
    for (size_t i = 0; i < 2 * sizeof(ranges) / sizeof(ranges[0]); i++) {
        gemmd_buffer *buffer = buffers[i % 2];
        uint64_t offset = ranges[i / 2].offset, size = ranges[i / 2].size;

        cr_assert_eq(gemmd_buffer_write(buffer, offset, bytes, size), GEMMD_INVALID_ARGUMENT);
        cr_assert_eq(gemmd_buffer_read(buffer, offset, bytes, size), GEMMD_INVALID_ARGUMENT);
        cr_assert_str_eq(gemmd_last_error(connection)->argument, "offset");
        cr_assert(strstr(gemmd_last_error(connection)->message, "100 bytes"));
    }
    cr_assert_eq(gemmd_buffer_write(buffers[0], 0, NULL, 1), GEMMD_INVALID_ARGUMENT);
    cr_assert_eq(gemmd_buffer_read(NULL, 0, bytes, 1), GEMMD_INVALID_ARGUMENT);
    disconnect();
}

Test(client_buffer, copies_between_buffers)
{
    gemmd_buffer *from, *to;
    char bytes[8] = {0};

    connect_to(NULL);
    from = create(GEMMD_HOST, 64, NULL);
    to = create(GEMMD_DEVICE, 64, NULL);
    strcpy((char *)gemmd_buffer_data(from) + 8, "abcdef");
    cr_assert_eq(gemmd_buffer_copy(to, 16, from, 8, 7), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_read(to, 16, bytes, 7), GEMMD_OK);
    cr_assert_str_eq(bytes, "abcdef");
    cr_assert_eq(gemmd_buffer_copy(to, 60, from, 0, 8), GEMMD_INVALID_ARGUMENT);
    cr_assert_str_eq(gemmd_last_error(connection)->argument, "length");
    disconnect();
}

/* --- order with jobs ------------------------------------------------------------------------- */

Test(client_buffer, lets_jobs_finish_before_it_touches_mapped_memory)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_buffer *a, *d;
    float two = 2, three = 3, nine = 9, got = 0;
    gemmd_job job;

    connect_to(&(struct fake_options){.delay_ms = 50});
    a = create(GEMMD_HOST, 4, NULL);
    d = create(GEMMD_HOST, 4, NULL);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.buffer = a, product.b.data = &three, product.d.buffer = d;
    cr_assert_eq(gemmd_buffer_write(a, 0, &two, 4), GEMMD_OK);
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_write(a, 0, &nine, 4), GEMMD_OK, "not before the job read it");
    cr_assert_eq(gemmd_wait(connection, job, -1, NULL), GEMMD_OK);
    cr_assert_eq(gemmd_submit(connection, &product, &job), GEMMD_OK);
    cr_assert_eq(*(float *)gemmd_buffer_data(d), 6, "read directly: no order");
    cr_assert_eq(gemmd_buffer_read(d, 0, &got, 4), GEMMD_OK, "not before the job wrote it");
    cr_assert_eq(got, 27);
    cr_assert_eq(gemmd_wait(connection, job, -1, NULL), GEMMD_OK);
    disconnect();
}

/* --- handles --------------------------------------------------------------------------------- */

Test(client_buffer, opens_by_name_and_minds_who_may_write)
{
    gemmd_buffer *owner, *reader;
    char bytes[8] = {0};

    connect_to(NULL);
    owner = create(GEMMD_HOST, 64, "weights");
    cr_assert_eq(gemmd_buffer_write(owner, 0, "shared", 7), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_open(connection, "weights", false, &reader), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_read(reader, 0, bytes, 7), GEMMD_OK);
    cr_assert_str_eq(bytes, "shared");
    cr_assert_str_eq((char *)gemmd_buffer_data(reader), "shared");
    cr_assert_eq(gemmd_buffer_write(reader, 0, "x", 1), GEMMD_PERMISSION);
    cr_assert_eq(gemmd_buffer_open(connection, "nothing", false, &reader), GEMMD_NOT_FOUND);
    cr_assert_null(reader);
    cr_assert_eq(gemmd_buffer_open(connection, NULL, false, &reader), GEMMD_INVALID_ARGUMENT);
    disconnect();
}

Test(client_buffer, registers_the_callers_memory)
{
    int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    gemmd_buffer *buffer;

    cr_assert_eq(ftruncate(fd, 4096), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    connect_to(NULL);
    cr_assert_eq(gemmd_buffer_register(connection, fd, 4096, true, &buffer), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    expect_round_trip(buffer, 5, 1000);
    cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC, "the descriptor stays the caller's");
    gemmd_buffer_free(buffer);
    (void)close(fd);
    cr_assert_eq(gemmd_buffer_register(connection, fd, 4096, true, &buffer),
                 GEMMD_INVALID_ARGUMENT);
    cr_assert_str_eq(gemmd_last_error(connection)->argument, "memfd");
    cr_assert_null(buffer);
    disconnect();
}

Test(client_buffer, maps_nothing_longer_than_its_file)
{
    gemmd_buffer *buffer;

    connect_to(&(struct fake_options){.misdeed = FAKE_LIES_ABOUT_THE_SIZE});
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer),
                 GEMMD_PROTOCOL);
    cr_assert_null(buffer);
    cr_assert_eq(gemmd_last_error(connection)->status, GEMMD_PROTOCOL);
    cr_assert_eq(atomic_load(&fake.requests[METHOD_BUFFER_FREE]), 1, "given back");
    disconnect();
}

Test(client_buffer, takes_no_other_memory_than_it_asked_for)
{
    static const enum fake_misdeed misdeeds[] = {FAKE_CUTS_THE_BUFFER, FAKE_CONFUSES_THE_KIND};

    for (size_t i = 0; i < ARRAY_SIZE(misdeeds); i++) {
        gemmd_buffer *buffer;

        connect_to(&(struct fake_options){.misdeed = misdeeds[i]});
        cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer),
                     GEMMD_PROTOCOL);
        cr_assert_null(buffer);
        cr_assert_eq(atomic_load(&fake.requests[METHOD_BUFFER_FREE]), 1, "given back");
        disconnect();
    }
}

Test(client_buffer, minds_a_missing_descriptor)
{
    gemmd_buffer *buffer;

    connect_to(&(struct fake_options){.misdeed = FAKE_FORGETS_THE_DESCRIPTOR});
    cr_assert_eq(gemmd_buffer_create(connection, GEMMD_HOST, 4096, NULL, 0, &buffer),
                 GEMMD_PROTOCOL);
    disconnect();
}

Test(client_buffer, gives_memory_back)
{
    connect_to(NULL);
    /* Four times what the fake has places for. */
    for (int i = 0; i < 4 * FAKE_BUFFERS_MAX; i++)
        gemmd_buffer_free(create(i % 2 ? GEMMD_HOST : GEMMD_DEVICE, 4096, NULL));
    disconnect();
}

Test(client_buffer, stays_with_its_connection)
{
    static struct fake_daemon other_fake;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_buffer *elsewhere, *here;
    float one = 1, d;
    gemmd *other;

    connect_to(NULL);
    fake_daemon_start(&other_fake, NULL);
    cr_assert_eq(gemmd_connect(other_fake.path, &other, NULL), GEMMD_OK);
    here = create(GEMMD_HOST, 64, NULL);
    cr_assert_eq(gemmd_buffer_create(other, GEMMD_HOST, 64, NULL, 0, &elsewhere), GEMMD_OK);

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.buffer = elsewhere, product.b.data = &one, product.d.data = &d;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_INVALID_ARGUMENT);
    cr_assert_str_eq(gemmd_last_error(connection)->argument, "a");
    cr_assert_eq(gemmd_buffer_copy(here, 0, elsewhere, 0, 1), GEMMD_INVALID_ARGUMENT);
    cr_assert_str_eq(gemmd_last_error(connection)->argument, "source");

    gemmd_close(other);
    fake_daemon_stop(&other_fake);
    disconnect();
}

/* --- products that name them ----------------------------------------------------------------- */

Test(client_buffer, serves_as_any_operand)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_buffer *a, *d;
    float values[4] = {1, 2, 3, 4}, identity[4] = {1, 0, 0, 1}, got[4];

    connect_to(NULL);
    a = create(GEMMD_DEVICE, 64, NULL);
    d = create(GEMMD_DEVICE, 64, NULL);
    cr_assert_eq(gemmd_buffer_write(a, 20, values, sizeof(values)), GEMMD_OK);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 2;
    product.a.buffer = a, product.a.offset = 20;
    product.b.data = identity;
    product.d.buffer = d, product.d.offset = 12;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    cr_assert_eq(gemmd_buffer_read(d, 12, got, sizeof(got)), GEMMD_OK);
    cr_assert_arr_eq(got, values, sizeof(got));
    disconnect();
}
