#include "../../proto/reply.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct reply decode(const struct message *message)
{
    struct frame_header header;
    struct reply reply = {0};

    cr_assert_eq(frame_decode(message->bytes, FRAME_LENGTH_MAX, &header), 0);
    cr_assert_eq(header.length, message->size - FRAME_HEADER_SIZE);
    cr_assert_eq(reply_decode(message->bytes + FRAME_HEADER_SIZE, header.length, &reply), 0);
    return reply;
}

Test(reply, carries_a_fault)
{
    struct message message = MESSAGE_NULL;
    struct fault fault;
    struct reply reply;

    fault_set(&fault, STATUS_INVALID_ARGUMENT, "a.ld", "a.ld is 2; allowed: at least 3");
    cr_assert_eq(reply_encode_fault(UINT32_MAX, &fault, &message), 0);
    reply = decode(&message);
    cr_expect_eq(reply.id, UINT32_MAX);
    cr_expect_eq(reply.fault.status, STATUS_INVALID_ARGUMENT);
    cr_expect_str_eq(reply.fault.argument, "a.ld");
    cr_expect_str_eq(reply.fault.message, fault.message);
    cr_expect_null(reply.result);
    message_deinit(&message);
}

Test(reply, may_be_empty)
{
    struct message message = MESSAGE_NULL;
    struct reply reply;

    cr_assert_eq(reply_encode_empty(5, &message), 0);
    reply = decode(&message);
    cr_expect_eq(reply.id, 5);
    cr_expect_eq(reply.fault.status, STATUS_OK);
    cr_expect_null(reply.result);
    cr_expect_eq(reply_decode_gemm(&reply, &(struct reply_gemm){0}), REPLY_E_MALFORMED);
    message_deinit(&message);
}

Test(reply, brings_hello_back)
{
    struct message message = MESSAGE_NULL;
    const struct reply_hello given = {.version = 1,
                                      .daemon = "0.1.0",
                                      .length_max = FRAME_LENGTH_MAX,
                                      .in_flight_max = 256,
                                      .device = "a device",
                                      .device_kind = "cuda",
                                      .ready = true};
    struct reply_hello got;
    struct reply reply;

    cr_assert_eq(reply_encode_hello(1, &given, &message), 0);
    reply = decode(&message);
    cr_assert_eq(reply_decode_hello(&reply, &got), 0);
    cr_expect(got.version == 1 && got.length_max == FRAME_LENGTH_MAX && got.in_flight_max == 256);
    cr_expect_str_eq(got.daemon, given.daemon);
    cr_expect_str_eq(got.device, given.device);
    cr_expect_str_eq(got.device_kind, given.device_kind);
    cr_expect(got.ready);
    message_deinit(&message);
}

Test(reply, brings_gemm_back_with_and_without_data)
{
    struct message message = MESSAGE_NULL;
    struct reply_gemm given = {.configuration = "cpu.bf16",
                               .epoch = 3,
                               .queued_ns = UINT64_MAX,
                               .device_ns = 5,
                               .compile_seconds = 0.25,
                               .data = "abcd",
                               .size = 4};
    struct reply_gemm got;
    struct reply reply;

    cr_assert_eq(reply_encode_gemm(1, &given, &message), 0);
    reply = decode(&message);
    cr_assert_eq(reply_decode_gemm(&reply, &got), 0);
    cr_expect_str_eq(got.configuration, given.configuration);
    cr_expect(got.epoch == 3 && got.queued_ns == UINT64_MAX && got.device_ns == 5);
    cr_expect_eq(got.compile_seconds, 0.25);
    cr_expect_eq(got.size, 4);
    cr_expect_arr_eq(got.data, "abcd", 4);
    message_deinit(&message);

    given.data = NULL;
    cr_assert_eq(reply_encode_gemm(1, &given, &message), 0);
    reply = decode(&message);
    cr_assert_eq(reply_decode_gemm(&reply, &got), 0);
    cr_expect_null(got.data);
    message_deinit(&message);
}

Test(reply, brings_buffers_back)
{
    struct message message = MESSAGE_NULL;
    struct reply_buffer given = {
        .id = 9, .size = 1ull << 40, .kind = BUFFER_DEVICE, .writable = true};
    struct reply_buffer got;
    struct frame_header header;
    struct reply reply;

    cr_assert_eq(reply_encode_buffer(1, &given, 1, &message), 0);
    cr_assert_eq(frame_decode(message.bytes, FRAME_LENGTH_MAX, &header), 0);
    cr_expect_eq(header.n_fds, 1);
    reply = decode(&message);
    cr_assert_eq(reply_decode_buffer(&reply, &got), 0);
    cr_expect(got.id == 9 && got.size == 1ull << 40 && got.kind == BUFFER_DEVICE && got.writable);
    cr_expect_null(got.data);
    message_deinit(&message);

    given = (struct reply_buffer){.data = "abc", .data_size = 3};
    cr_assert_eq(reply_encode_buffer(1, &given, 0, &message), 0);
    reply = decode(&message);
    cr_assert_eq(reply_decode_buffer(&reply, &got), 0);
    cr_expect_eq(got.data_size, 3);
    cr_expect_arr_eq(got.data, "abc", 3);
    message_deinit(&message);
}

static char *json_of(struct reply_map *map)
{
    struct message message = MESSAGE_NULL;
    struct reply reply;
    char *json = NULL;

    cr_assert_eq(reply_encode_map(1, map, &message), 0);
    reply = decode(&message);
    cr_assert_eq(reply_decode_json(&reply, &json), 0);
    message_deinit(&message);
    reply_map_free(map);
    return json;
}

static struct reply_map *map_new(void)
{
    struct reply_map *map = NULL;

    cr_assert_eq(reply_map_new(&map), 0);
    return map;
}

Test(reply, turns_a_tree_into_json_in_the_order_of_the_calls)
{
    struct reply_map *map = map_new();
    char *json;

    reply_map_text(map, "device", "cpu");
    reply_map_open(map, "jobs");
    reply_map_unsigned(map, "done", UINT64_MAX);
    reply_map_real(map, "rate", 0.1);
    reply_map_close(map);
    reply_map_open_array(map, "workers");
    reply_map_open(map, NULL);
    reply_map_bool(map, "ready", true);
    reply_map_close(map);
    reply_map_unsigned(map, NULL, 3);
    reply_map_close(map);
    json = json_of(map);
    cr_expect_str_eq(json, "{\"device\": \"cpu\", \"jobs\": {\"done\": 18446744073709551615, "
                           "\"rate\": 0.1}, \"workers\": [{\"ready\": true}, 3]}");
    free(json);
}

Test(reply, can_be_encoded_from_an_empty_tree_and_twice)
{
    struct reply_map *map = map_new();
    struct message first = MESSAGE_NULL, second = MESSAGE_NULL;
    char *json;

    cr_assert_eq(reply_encode_map(1, map, &first), 0);
    cr_assert_eq(reply_encode_map(1, map, &second), 0);
    cr_expect_eq(first.size, second.size);
    message_deinit(&first);
    message_deinit(&second);
    json = json_of(map);
    cr_expect_str_eq(json, "{}");
    free(json);
}

/* Headers change their width at 16 values; the bytes behind them move. */
Test(reply, keeps_its_values_when_a_container_grows)
{
    static const unsigned counts[] = {14, 15, 16, 17, 300};

    for (size_t c = 0; c < ARRAY_SIZE(counts); c++) {
        struct reply_map *map = map_new();
        size_t at = 0;
        char *json, expected[8192];

        at += snprintf(expected + at, sizeof(expected) - at, "{");
        for (unsigned i = 0; i < counts[c]; i++) {
            char name[16];

            snprintf(name, sizeof(name), "n%u", i);
            reply_map_open_array(map, name);
            reply_map_unsigned(map, NULL, i);
            reply_map_close(map);
            at += snprintf(expected + at, sizeof(expected) - at, "%s\"n%u\": [%u]",
                           i > 0 ? ", " : "", i, i);
        }
        snprintf(expected + at, sizeof(expected) - at, "}");
        json = json_of(map);
        cr_expect_str_eq(json, expected);
        free(json);
    }
}

Test(reply, writes_json_that_is_valid_whatever_the_text)
{
    struct reply_map *map = map_new();
    char *json;

    reply_map_text(map, "a", "quote \" back \\ line \n");
    reply_map_text(map, "b", "gr\xc3\xbc\xc3\x9f");
    reply_map_text(map, "c", "cut \xc3");
    reply_map_text(map, "d", "overlong \xc0\xaf surrogate \xed\xa0\x80");
    reply_map_real(map, "e", NAN);
    reply_map_real(map, "f", -INFINITY);
    json = json_of(map);
    cr_expect_str_eq(json, "{\"a\": \"quote \\\" back \\\\ line \\u000a\", "
                           "\"b\": \"gr\xc3\xbc\xc3\x9f\", \"c\": \"cut \\ufffd\", "
                           "\"d\": \"overlong \\ufffd\\ufffd surrogate \\ufffd\\ufffd\\ufffd\", "
                           "\"e\": null, \"f\": null}");
    free(json);
}

Test(reply, writes_reals_that_read_back_as_the_same_number)
{
    static const double values[] = {0, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789012345678.0, -2.5};

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        struct reply_map *map = map_new();
        char *json;

        reply_map_real(map, "x", values[i]);
        json = json_of(map);
        cr_expect_eq(strtod(json + strlen("{\"x\": "), NULL), values[i], "%s", json);
        free(json);
    }
}

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static int decode_bytes(const uint8_t *bytes, size_t size)
{
    struct reply reply;

    return reply_decode(bytes, size, &reply);
}

Test(reply, tells_what_is_no_reply)
{
    cr_expect_eq(decode_bytes(NULL, 0), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0xc0)), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0xc0, 0xc0)), 0);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0xc0, 0xc0, 0xc0)), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 0xc0, 0xc0)), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 0xff, 0xc0, 0xc0)), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0x05, 0xc0)), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0x80, 0xc0)), REPLY_E_MALFORMED); /* no code */
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0xc0, 0x05)), REPLY_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0xdd, 0xff, 0, 0, 0)), REPLY_E_MALFORMED);
}

Test(reply, takes_an_unlisted_code_for_a_fault_of_the_daemon)
{
    static const uint8_t bytes[] = {0x94, 1,   1,    0x81, 0xa4, 'c', 'o',
                                    'd',  'e', 0xcd, 3,    0xe8, 0xc0};
    struct reply reply;

    cr_assert_eq(reply_decode(bytes, sizeof(bytes), &reply), 0);
    cr_expect_eq(reply.fault.status, STATUS_INTERNAL);
}

Test(reply, misses_a_field_of_hello)
{
    static const uint8_t bytes[] = {0x94, 1,   1,   0xc0, 0x81, 0xa7, 'v',
                                    'e',  'r', 's', 'i',  'o',  'n',  1};
    struct reply reply;

    cr_assert_eq(reply_decode(bytes, sizeof(bytes), &reply), 0);
    cr_expect_eq(reply_decode_hello(&reply, &(struct reply_hello){0}), REPLY_E_MALFORMED);
}
