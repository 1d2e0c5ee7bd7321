/*
 * proto/protocol.md says what the code does: its examples, its limits, its methods and fields.
 */
#include "../../daemon/front/socket.h"
#include "../../daemon/limits.h"
#include "../../proto/reply.h"
#include "../../proto/scan.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *page;

static void read_page(void)
{
    FILE *file = fopen(PROTO_SOURCE "/protocol.md", "r");

    cr_assert_not_null(file);
    page = calloc(1, 1 << 20);
    cr_assert_gt(fread(page, 1, (1 << 20) - 1, file), 0);
    fclose(file);
}

static void free_page(void)
{
    free(page);
}

TestSuite(protocol, .init = read_page, .fini = free_page);

/* The bytes of the block that starts with "```hex <name>". */
static size_t example(const char *name, uint8_t *bytes, size_t capacity)
{
    char fence[64];
    const char *at;
    size_t size = 0;
    unsigned byte;
    int length;

    snprintf(fence, sizeof(fence), "```hex %s\n", name);
    at = strstr(page, fence);
    cr_assert_not_null(at, "no example %s", name);
    at += strlen(fence);
    while (size < capacity && sscanf(at, "%2x%n", &byte, &length) == 1) {
        bytes[size++] = (uint8_t)byte;
        at += length;
    }
    return size;
}

static void expect_example(const char *name, const struct request *request)
{
    uint8_t bytes[1024];
    const size_t size = example(name, bytes, sizeof(bytes));
    struct message message = MESSAGE_NULL;

    cr_assert_eq(request_encode(request, 0, &message), 0);
    cr_assert_eq(message.size, size);
    cr_assert_arr_eq(message.bytes, bytes, size);
    message_deinit(&message);
}

Test(protocol, shows_the_hello_that_the_encoder_writes)
{
    expect_example("hello", &(struct request){
                                .id = 1,
                                .method = METHOD_HELLO,
                                .body.hello = {.version = 1, .client = "demo", .client_size = 4},
                            });
}

Test(protocol, shows_the_gemm_that_the_encoder_writes)
{
    static const float a[] = {1, 2}, b[] = {3, 4};
    struct request request = {.id = 2, .method = METHOD_GEMM};
    struct request_gemm *gemm = &request.body.gemm;

    gemm->problem = (struct problem){
        .input = DTYPE_FP32, .m = 1, .n = 1, .k = 2, .batch = 1, .alpha = 1, .beta = 0};
    for (int role = OPERAND_A; role < OPERAND_COUNT; role++)
        gemm->problem.operand[role] =
            (struct problem_operand){.ld = PROBLEM_DEFAULT, .stride = PROBLEM_DEFAULT};
    gemm->operand[OPERAND_A] =
        (struct request_operand){.kind = OPERAND_INLINE, .data = a, .size = sizeof(a)};
    gemm->operand[OPERAND_B] =
        (struct request_operand){.kind = OPERAND_INLINE, .data = b, .size = sizeof(b)};
    expect_example("gemm", &request);
}

Test(protocol, shows_the_result_that_is_right)
{
    const float d = 1 * 3 + 2 * 4;
    uint8_t bytes[4];
    char text[32];

    memcpy(bytes, &d, sizeof(d));
    snprintf(text, sizeof(text), "`%02x %02x %02x %02x`, 11.0", bytes[0], bytes[1], bytes[2],
             bytes[3]);
    cr_expect_not_null(strstr(page, text));
}

Test(protocol, states_the_limits_that_hold)
{
    static const struct {
        const char *name;
        uint64_t value;
    } limits[] = {
        {"length_max", FRAME_LENGTH_MAX},
        {"n_fds", FRAME_FDS_MAX},
        {"depth", SCAN_DEPTH_MAX},
        {"values", SCAN_VALUES_MAX},
        {"inline_max", REQUEST_INLINE_MAX},
        {"in_flight_max", LIMIT_IN_FLIGHT},
        {"name", BUFFER_NAME_MAX},
        {"client", REQUEST_CLIENT_MAX},
        {"configuration", REQUEST_CONFIGURATION_MAX},
        {"hello_seconds", LIMIT_HELLO_SECONDS},
        {"partial_frame_seconds", LIMIT_PARTIAL_FRAME_SECONDS},
        {"unread_seconds", LIMIT_UNREAD_SECONDS},
        {"clients", LIMIT_CLIENTS},
        {"clients_per_uid", LIMIT_CLIENTS_PER_UID},
        {"jobs_per_uid", LIMIT_JOBS_PER_UID},
        {"buffers_per_uid", LIMIT_BUFFERS_PER_UID},
        {"descriptors_per_uid", LIMIT_DESCRIPTORS_PER_UID},
        {"host_bytes_per_uid", LIMIT_HOST_BYTES_PER_UID},
        {"device_bytes_per_uid", LIMIT_DEVICE_BYTES_PER_UID},
        {"imported_bytes_per_uid", LIMIT_IMPORTED_BYTES_PER_UID},
        {"inline_bytes_per_uid", LIMIT_INLINE_BYTES_PER_UID},
        {"message_bytes_per_uid", LIMIT_MESSAGE_BYTES_PER_UID},
        {"output_bytes_per_uid", LIMIT_OUTPUT_BYTES_PER_UID},
    };

    char row[128];

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        snprintf(row, sizeof(row), "\n| %s | %" PRIu64 " |", limits[i].name, limits[i].value);
        cr_expect_not_null(strstr(page, row), "no row \"%s\"", row + 1);
    }
    snprintf(row, sizeof(row), "more than %u MiB of them wait", SOCKET_QUEUE_PAUSE >> 20);
    cr_expect_not_null(strstr(page, row));
    snprintf(row, sizeof(row), "id %" PRIu32 " and the code PROTOCOL", REPLY_ID_LAST);
    cr_expect_not_null(strstr(page, row));
}

Test(protocol, describes_every_method_and_no_other)
{
    unsigned sections = 0;
    char title[64];

    for (int method = 0; method < METHOD_COUNT; method++) {
        snprintf(title, sizeof(title), "\n### `%s`\n", method_name(method));
        cr_expect_not_null(strstr(page, title), "no section for %s", method_name(method));
    }
    for (const char *at = page; (at = strstr(at, "\n### `")) != NULL; at++)
        sections++;
    cr_expect_eq(sections, METHOD_COUNT);
}

/* Fields are found in the encoder's output: every key of every method stands in the page as code
 * or in a table. */
Test(protocol, names_every_field_that_the_encoder_writes)
{
    struct request request = {.id = 1};

    for (int method = 0; method < METHOD_COUNT; method++) {
        struct message message = MESSAGE_NULL;

        request.method = method;
        memset(&request.body, 0, sizeof(request.body));
        if (method == METHOD_BUFFER_OPEN)
            request.body.buffer.name = "";
        if (method == METHOD_CACHE_PREWARM)
            request.body.cache.configuration = "";
        cr_assert_eq(request_encode(&request, 0, &message), 0);
        for (size_t i = FRAME_HEADER_SIZE; i < message.size; i++) {
            const size_t length = message.bytes[i] & 31;
            char word[40];

            if ((message.bytes[i] & 0xe0) != 0xa0 || length < 2 || i + length >= message.size)
                continue;
            snprintf(word, sizeof(word), "%.*s", (int)length, (const char *)&message.bytes[i + 1]);
            i += length;
            cr_expect_not_null(strstr(page, word), "%s: %s is not in the page", method_name(method),
                               word);
        }
        message_deinit(&message);
    }
}
