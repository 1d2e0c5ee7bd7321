/*
 * Memory as a hostile client names it: descriptors that are not what they seem, claims and offsets
 * near 2^64, places that overlap. Each is refused by the argument that is wrong, and costs nothing.
 */
#include "../support/process.h"
#include "../support/products.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct test_daemon daemon_;
static int peer;

static void start(void)
{
    test_daemon_start(&daemon_, NULL);
    peer = raw_greeted(&daemon_);
}

static void stop(void)
{
    (void)close(peer);
    test_daemon_stop(&daemon_);
}

TestSuite(memory, .init = start, .fini = stop, .timeout = 120);

static int memfd(unsigned flags, off_t size, int seals)
{
    int fd = memfd_create("memory", MFD_CLOEXEC | flags);

    if (fd >= 0) {
        cr_assert_eq(ftruncate(fd, size), 0);
        if (seals)
            cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    return fd;
}

/* As a daemon would get it from a client that opened it otherwise. */
static int reopened(int fd, int flags)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

static struct raw_reply register_memory(int fd, uint64_t size, bool writable)
{
    const struct request request = {.id = 7,
                                    .method = METHOD_BUFFER_REGISTER,
                                    .body.buffer = {.size = size, .writable = writable}};
    struct raw_reply reply = raw_call(peer, &request, fd);

    (void)close(fd);
    return reply;
}

static void expect_refused(struct raw_reply reply, enum status status, const char *argument)
{
    cr_expect_eq(reply.fault.status, status, "%s: %s", status_name(reply.fault.status),
                 reply.fault.message);
    cr_expect_str_eq(reply.fault.argument, argument, "%s", reply.fault.message);
}

Test(memory, that_is_no_sealed_memfd_is_refused)
{
    static const int shrink = F_SEAL_SHRINK;
    int pair[2], sealed = memfd(MFD_ALLOW_SEALING, 8192, shrink);

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);

    const struct {
        const char *what;
        int fd;
    } wrong[] = {
        {"no seals", memfd(MFD_ALLOW_SEALING, 8192, 0)},
        {"grow sealed only", memfd(MFD_ALLOW_SEALING, 8192, F_SEAL_GROW)},
        {"cannot be sealed", memfd(0, 8192, 0)},
        {"sealed against writing", memfd(MFD_ALLOW_SEALING, 8192, shrink | F_SEAL_WRITE)},
        {"read-only", reopened(sealed, O_RDONLY)},
        {"a path only", reopened(sealed, O_PATH)},
        {"a socket", pair[0]},
        {"a device", open("/dev/zero", O_RDWR | O_CLOEXEC)},
        {"a directory", open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)},
        {"a file", open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600)},
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        if (wrong[i].fd < 0)
            continue; /* this system does not have it */
        struct raw_reply reply = register_memory(wrong[i].fd, 4096, true);

        cr_expect_eq(reply.fault.status, STATUS_INVALID_ARGUMENT, "%s: %s", wrong[i].what,
                     reply.fault.message);
        cr_expect_str_eq(reply.fault.argument, "fd", "%s", wrong[i].what);
    }
    cr_expect_eq(register_memory(sealed, 4096, true).fault.status, STATUS_OK);
    (void)close(pair[1]);
}

Test(memory, on_huge_pages_is_refused)
{
    int fd = memfd(MFD_ALLOW_SEALING | MFD_HUGETLB, 2 << 20, F_SEAL_SHRINK);

    if (fd < 0)
        cr_skip_test("no huge pages here");
    expect_refused(register_memory(fd, 4096, true), STATUS_INVALID_ARGUMENT, "fd");
}

Test(memory, smaller_than_claimed_is_refused)
{
    static const uint64_t claims[] = {4097, 1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(claims); i++)
        expect_refused(
            register_memory(memfd(MFD_ALLOW_SEALING, 4096, F_SEAL_SHRINK), claims[i], true),
            STATUS_INVALID_ARGUMENT, "size");
    expect_refused(register_memory(memfd(MFD_ALLOW_SEALING, 0, F_SEAL_SHRINK), 1, true),
                   STATUS_INVALID_ARGUMENT, "size");
    expect_refused(register_memory(memfd(MFD_ALLOW_SEALING, 4096, F_SEAL_SHRINK), 0, true),
                   STATUS_INVALID_ARGUMENT, "size");
}

static struct raw_reply multiply(uint64_t buffer, int64_t n)
{
    struct request product = raw_product(8, n, n, n);
    const uint64_t item = (uint64_t)(n * n) * 4;

    for (int role = 0; role < OPERAND_COUNT; role++)
        product.body.gemm.operand[role] = (struct request_operand){
            .kind = OPERAND_BUFFER, .buffer = buffer, .offset = role == OPERAND_D ? item : 0};
    return raw_call(peer, &product, -1);
}

/* What is registered cannot shrink; what is punched out of it reads as zero. */
Test(memory, that_changes_after_it_was_registered_harms_nobody)
{
    enum { N = 64, ITEM = N * N * 4 };

    int fd = memfd(MFD_ALLOW_SEALING, 2 * ITEM, F_SEAL_SHRINK), kept = dup(fd);
    float *data = mmap(NULL, 2 * ITEM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct raw_reply reply = register_memory(fd, 2 * ITEM, true);

    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    for (int i = 0; i < N * N; i++)
        data[i] = 1;
    cr_expect_lt(ftruncate(kept, 0), 0);
    cr_expect_eq(multiply(reply.buffer.id, N).fault.status, STATUS_OK);
    cr_expect_eq(data[N * N], N);
    cr_assert_eq(fallocate(kept, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * ITEM), 0);
    cr_expect_eq(multiply(reply.buffer.id, N).fault.status, STATUS_OK);
    cr_expect_eq(data[N * N], 0);
    (void)close(kept);
}

/* A later seal takes away the right to write that the worker's mapping has already; the next
 * worker cannot map it any more. That is the client's loss alone. */
Test(memory, that_is_sealed_later_is_lost_to_its_owner_only)
{
    enum { N = 8, ITEM = N * N * 4 };

    int fd = memfd(MFD_ALLOW_SEALING, 2 * ITEM, F_SEAL_SHRINK), kept = dup(fd);
    struct raw_reply reply = register_memory(fd, 2 * ITEM, true);
    gemmd *other = test_daemon_connect(&daemon_);
    const struct product_case p = {
        .input = DTYPE_FP32, .m = 9, .n = 8, .k = 7, .batch = 1, .alpha = 1, .place = PLACE_HOST};

    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    cr_assert_eq(fcntl(kept, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    cr_assert_eq(kill(test_worker_pid(other), SIGKILL), 0);
    product_check(other, &p);
    expect_refused(multiply(reply.buffer.id, N), STATUS_BUFFER_LOST, "a");
    product_check(other, &p);
    gemmd_close(other);
    (void)close(kept);
}

static uint64_t create(uint64_t size)
{
    const struct request request = {
        .id = 2,
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {.kind = BUFFER_DEVICE, .size = size, .mode = BUFFER_MODE_DEFAULT}};
    struct raw_reply reply = raw_call(peer, &request, -1);

    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    return reply.buffer.id;
}

static const uint64_t ends[] = {4093,           4096,          4097,       1ull << 31,
                                1ull << 32,     INT64_MAX - 3, 1ull << 63, UINT64_MAX - 4095,
                                UINT64_MAX - 3, UINT64_MAX};

Test(memory, offsets_near_the_top_do_not_wrap_in_transfers)
{
    static const uint8_t data[4] = {0};
    uint64_t buffer = create(4096);

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        struct request write = {
            .id = 3,
            .method = METHOD_BUFFER_WRITE,
            .body.buffer = {.id = buffer, .offset = ends[i], .data = data, .length = 4}};
        struct request copy = {.id = 4,
                               .method = METHOD_BUFFER_COPY,
                               .body.copy = {.source = buffer,
                                             .destination = buffer,
                                             .destination_offset = ends[i],
                                             .length = 4}};

        expect_refused(raw_call(peer, &write, -1), STATUS_INVALID_ARGUMENT, "offset");
        write.method = METHOD_BUFFER_READ;
        expect_refused(raw_call(peer, &write, -1), STATUS_INVALID_ARGUMENT, "offset");
        expect_refused(raw_call(peer, &copy, -1), STATUS_INVALID_ARGUMENT, "destination_offset");
        copy.body.copy = (struct request_copy){
            .source = buffer, .destination = buffer, .source_offset = ends[i], .length = 4};
        expect_refused(raw_call(peer, &copy, -1), STATUS_INVALID_ARGUMENT, "source_offset");
        copy.body.copy = (struct request_copy){
            .source = buffer, .destination = buffer, .destination_offset = 8, .length = ends[i]};
        expect_refused(raw_call(peer, &copy, -1), STATUS_INVALID_ARGUMENT,
                       ends[i] == 4093 || ends[i] == 4096 ? "destination_offset" : "source_offset");
    }
}

Test(memory, offsets_near_the_top_do_not_wrap_in_products)
{
    static const char *const arguments[] = {"a.offset", "b.offset", "c.offset", "bias.offset",
                                            "d.offset"};
    uint64_t buffer = create(4096);

    for (int wrong = 0; wrong < OPERAND_COUNT; wrong++) {
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
            struct request product = raw_product(5, 1, 1, 1);

            product.body.gemm.problem.beta = 1;
            product.body.gemm.problem.bias = BIAS_PER_ROW;
            for (int role = 0; role < OPERAND_COUNT; role++)
                product.body.gemm.operand[role] =
                    (struct request_operand){.kind = OPERAND_BUFFER,
                                             .buffer = buffer,
                                             .offset = role == wrong ? ends[i] : 16u * role};
            expect_refused(raw_call(peer, &product, -1), STATUS_INVALID_ARGUMENT, arguments[wrong]);
        }
    }
}

/* --- overlaps -------------------------------------------------------------------------------- */

/* A 16 x 16 product of fp32 in one buffer; the operands begin at these elements. */
static struct raw_reply product_at(uint64_t buffer, const uint64_t at[OPERAND_COUNT], bool column)
{
    struct request product = raw_product(6, 16, 16, 16);

    product.body.gemm.column_major = column;
    product.body.gemm.problem.beta = 1;
    product.body.gemm.problem.bias = BIAS_PER_ROW;
    for (int role = 0; role < OPERAND_COUNT; role++)
        product.body.gemm.operand[role] = (struct request_operand){
            .kind = OPERAND_BUFFER, .buffer = buffer, .offset = 4 * at[role]};
    return raw_call(peer, &product, -1);
}

Test(memory, d_over_an_input_is_refused_and_the_input_named)
{
    enum { E = 16 * 16, BIAS = 7 * E };

    static const struct {
        uint64_t at[OPERAND_COUNT];
        const char *names; /* NULL: allowed */
    } cases[] = {
        {{0, E, 2 * E, BIAS, 3 * E}, NULL},
        {{0, 0, E, BIAS, 2 * E}, NULL},                 /* inputs may overlap each other */
        {{0, E, 2 * E, BIAS, 2 * E}, NULL},             /* d in c's place */
        {{0, E, 2 * E, BIAS, 0}, "overlaps a"},         /* d is a */
        {{0, E, 2 * E, BIAS, E}, "overlaps b"},         /* d is b */
        {{0, 3 * E, 5 * E, BIAS, 1}, "overlaps a"},     /* by all but one element */
        {{0, 2 * E, 4 * E, BIAS, E - 1}, "overlaps a"}, /* by one element */
        {{2 * E, 0, 4 * E, BIAS, E + 1}, "overlaps a"}, /* by one at its other end */
        {{0, E, 2 * E, BIAS, 2 * E + 1}, "overlaps c"},
        {{0, E, 3 * E, BIAS, 2 * E + 16}, "overlaps c"},
        {{0, E, 2 * E, 0, 3 * E}, NULL},
        {{0, E, 2 * E, 3 * E, 3 * E}, "overlaps bias"},
        {{0, E, 2 * E, 4 * E - 1, 3 * E}, "overlaps bias"}, /* its first is d's last */
        {{0, E, 2 * E, 4 * E, 3 * E}, NULL},
    };

    uint64_t buffer = create(8 * E * 4);

    for (int column = 0; column < 2; column++) {
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            struct raw_reply reply = product_at(buffer, cases[i].at, column);

            cr_expect_eq(reply.fault.status, cases[i].names ? STATUS_INVALID_ARGUMENT : STATUS_OK,
                         "case %zu: %s", i, reply.fault.message);
            if (!cases[i].names)
                continue;
            cr_expect_str_eq(reply.fault.argument, "d");
            cr_expect(strstr(reply.fault.message, cases[i].names), "case %zu: %s", i,
                      reply.fault.message);
        }
    }
}

Test(memory, results_of_a_batch_over_each_other_are_refused)
{
    static const struct {
        int64_t stride, ld;
        bool is_right;
    } cases[] = {
        {16, 4, true},  {15, 4, false}, {1, 4, false},  {0, 4, false},   {4, 12, true},
        {3, 12, false}, {4, 11, false}, {52, 16, true}, {51, 16, false},
    };

    uint64_t buffer = create(1 << 16);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct request product = raw_product(6, 4, 4, 4);

        product.body.gemm.problem.batch = 3;
        for (int role = 0; role < OPERAND_COUNT; role++)
            product.body.gemm.operand[role] = (struct request_operand){
                .kind = OPERAND_BUFFER, .buffer = buffer, .offset = 4096u * role};
        product.body.gemm.problem.operand[OPERAND_D] =
            (struct problem_operand){.ld = cases[i].ld, .stride = cases[i].stride};
        struct raw_reply reply = raw_call(peer, &product, -1);

        if (cases[i].is_right)
            cr_expect_eq(reply.fault.status, STATUS_OK, "case %zu: %s", i, reply.fault.message);
        else
            expect_refused(reply, STATUS_INVALID_ARGUMENT, "d.stride");
    }
}
