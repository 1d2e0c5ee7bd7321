/*
 * Round trips: what is encoded decodes to the same request.
 */
#include "../../proto/request.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static struct request round_trip(const struct request *request, struct message *message)
{
    struct request decoded = {0};
    struct fault fault = FAULT_NONE;
    struct frame_header header;
    int r;

    cr_assert_eq(request_encode(request, 1, message), 0);
    cr_assert_eq(frame_decode(message->bytes, FRAME_LENGTH_MAX, &header), 0);
    cr_assert_eq(header.length, message->size - FRAME_HEADER_SIZE);
    cr_assert_eq(header.n_fds, 1);
    r = request_decode(message->bytes + FRAME_HEADER_SIZE, header.length, &decoded, &fault);
    cr_assert_eq(r, 0, "%s: %s", method_name(request->method), fault.message);
    cr_assert_eq(decoded.id, request->id);
    cr_assert_eq(decoded.method, request->method);
    return decoded;
}

Test(request_encode, comes_back_from_its_own_encoding)
{
    struct message message = MESSAGE_NULL;
    struct request given = {.id = UINT32_MAX - 1, .method = METHOD_GEMM}, got;
    struct request_gemm *gemm = &given.body.gemm;

    gemm->problem = (struct problem){.input = DTYPE_FP16,
                                     .output = DTYPE_FP32,
                                     .m = INT64_MAX,
                                     .n = 2,
                                     .k = 3,
                                     .batch = 4,
                                     .trans_a = true,
                                     .alpha = -INFINITY,
                                     .beta = 0.1,
                                     .bias = BIAS_PER_ROW,
                                     .activation = ACTIVATION_GELU_TANH};
    gemm->column_major = true;
    gemm->deadline_us = 5;
    gemm->priority = -1;
    for (int role = OPERAND_A; role < OPERAND_COUNT; role++) {
        gemm->operand[role] = (struct request_operand){
            .kind = OPERAND_BUFFER, .buffer = role + 1, .offset = UINT64_MAX - role};
        gemm->problem.operand[role] = (struct problem_operand){.ld = 100 + role, .stride = role};
    }
    gemm->operand[OPERAND_B] =
        (struct request_operand){.kind = OPERAND_INLINE, .data = "abc", .size = 3};
    gemm->operand[OPERAND_D] = (struct request_operand){.kind = OPERAND_ABSENT};

    got = round_trip(&given, &message);
    cr_expect_eq(got.body.gemm.problem.m, INT64_MAX);
    cr_expect_eq(got.body.gemm.problem.input, DTYPE_FP16);
    cr_expect_eq(got.body.gemm.problem.output, DTYPE_FP32);
    cr_expect_eq(got.body.gemm.problem.alpha, -INFINITY);
    cr_expect_eq(got.body.gemm.problem.beta, 0.1);
    cr_expect(got.body.gemm.column_major && got.body.gemm.problem.trans_a);
    cr_expect_eq(got.body.gemm.operand[OPERAND_A].offset, UINT64_MAX);
    cr_expect_eq(got.body.gemm.operand[OPERAND_B].size, 3);
    cr_expect_arr_eq(got.body.gemm.operand[OPERAND_B].data, "abc", 3);
    cr_expect_eq(got.body.gemm.operand[OPERAND_D].kind, OPERAND_ABSENT);
    cr_expect_eq(got.body.gemm.problem.operand[OPERAND_D].ld, 100 + OPERAND_D);
    cr_expect_eq(got.body.gemm.problem.bias, BIAS_PER_ROW);
    cr_expect_eq(got.body.gemm.problem.activation, ACTIVATION_GELU_TANH);
    cr_expect_eq(got.body.gemm.operand[OPERAND_BIAS].buffer, OPERAND_BIAS + 1);
    cr_expect_eq(got.body.gemm.problem.operand[OPERAND_BIAS].stride, OPERAND_BIAS);
    cr_expect_eq(got.body.gemm.deadline_us, 5);
    cr_expect_eq(got.body.gemm.priority, -1);
    message_deinit(&message);
}

Test(request_encode, comes_back_for_every_method_of_buffers_and_cache)
{
    struct message message = MESSAGE_NULL;
    struct request given = {.id = 1}, got;

    for (int method = METHOD_BUFFER_CREATE; method <= METHOD_BUFFER_READ; method++) {
        given.method = method;
        given.body.buffer = (struct request_buffer){.kind = BUFFER_DEVICE,
                                                    .size = 5,
                                                    .name = "n",
                                                    .name_size = 1,
                                                    .mode = 0644,
                                                    .writable = true,
                                                    .id = 9,
                                                    .offset = 10,
                                                    .data = "xyz",
                                                    .length = 3};
        got = round_trip(&given, &message);
        if (method == METHOD_BUFFER_OPEN)
            cr_expect(got.body.buffer.writable && got.body.buffer.name[0] == 'n');
        if (method == METHOD_BUFFER_READ || method == METHOD_BUFFER_WRITE)
            cr_expect(got.body.buffer.id == 9 && got.body.buffer.offset == 10 &&
                      got.body.buffer.length == 3);
        message_deinit(&message);
    }
    given.method = METHOD_BUFFER_CREATE;
    given.body.buffer.exportable = true;
    cr_expect(round_trip(&given, &message).body.buffer.exportable);
    message_deinit(&message);
    given.method = METHOD_BUFFER_IMPORT;
    given.body.buffer.handle = (const uint8_t[REQUEST_HANDLE_SIZE]){7};
    given.body.buffer.allocation = 99;
    cr_expect_eq(request_descriptors(&given), 0);
    got = round_trip(&given, &message);
    cr_assert_not_null(got.body.buffer.handle);
    cr_expect(got.body.buffer.handle[0] == 7 && got.body.buffer.mode == 0644 &&
              got.body.buffer.offset == 10 && got.body.buffer.allocation == 99 &&
              got.body.buffer.name[0] == 'n');
    message_deinit(&message);
    given.body.buffer.handle = NULL;
    cr_expect_eq(request_descriptors(&given), 1);
    given.method = METHOD_BUFFER_FREEZE;
    given.body.buffer.id = 13;
    cr_expect_eq(round_trip(&given, &message).body.buffer.id, 13);
    message_deinit(&message);
    given.method = METHOD_BUFFER_EXPORT;
    given.body.buffer.id = 12;
    cr_expect_eq(round_trip(&given, &message).body.buffer.id, 12);
    message_deinit(&message);
    given.method = METHOD_BUFFER_COPY;
    given.body.copy = (struct request_copy){1, 2, 3, 4, 5};
    got = round_trip(&given, &message);
    cr_expect_arr_eq(&got.body.copy, &given.body.copy, sizeof(given.body.copy));
    message_deinit(&message);
    given.method = METHOD_CANCEL;
    given.body.cancel = 77;
    got = round_trip(&given, &message);
    cr_expect_eq(got.body.cancel, 77);
    message_deinit(&message);
    given.method = METHOD_CACHE_PRUNE;
    given.body.cache = (struct request_cache){.max_bytes = UINT64_MAX};
    got = round_trip(&given, &message);
    cr_expect_eq(got.body.cache.max_bytes, UINT64_MAX);
    message_deinit(&message);
}

Test(request_encode, is_not_encoded_over_the_frames_bound)
{
    struct message message = MESSAGE_NULL;
    uint8_t *data = calloc(1, FRAME_LENGTH_MAX);
    struct request request = {
        .method = METHOD_BUFFER_WRITE,
        .body.buffer = {.data = data, .length = REQUEST_INLINE_MAX},
    };

    cr_expect_eq(request_encode(&request, 0, &message), 0);
    message_deinit(&message);
    request.body.buffer.length = FRAME_LENGTH_MAX;
    cr_expect_eq(request_encode(&request, 0, &message), -EMSGSIZE);
    cr_expect_null(message.bytes);
    free(data);
}

/* --- many in one message --------------------------------------------------------------------- */

static struct request_product small_product(int64_t m)
{
    return (struct request_product){
        .gemm.problem = {.input = DTYPE_FP32, .output = DTYPE_FP32, .m = m, .batch = 1}};
}

static int
decode_many(size_t count, uint32_t id, int64_t m_of_last, struct request *ret, struct fault *fault)
{
    static struct request_product products[REQUEST_PRODUCTS_MAX + 1];
    struct request given = {.id = id, .method = METHOD_GEMM_MANY};
    struct message message = MESSAGE_NULL;
    int r;

    for (size_t i = 0; i < count; i++)
        products[i] = small_product(i + 1 == count ? m_of_last : (int64_t)i);
    given.body.many = (struct request_many){products, count};
    cr_assert_eq(request_encode(&given, 0, &message), 0);
    r = request_decode(message.bytes + FRAME_HEADER_SIZE, message.size - FRAME_HEADER_SIZE, ret,
                       fault);
    message_deinit(&message);
    return r;
}

Test(request_encode, many_products_come_back_in_order)
{
    struct fault fault = FAULT_NONE;
    struct request got;

    cr_assert_eq(decode_many(REQUEST_PRODUCTS_MAX, 5, 99, &got, &fault), 0, "%s", fault.message);
    cr_assert_eq(request_count(&got), REQUEST_PRODUCTS_MAX);
    for (int i = 0; i < REQUEST_PRODUCTS_MAX; i++) {
        cr_expect_eq(got.body.many.products[i].fault.status, STATUS_OK);
        cr_expect_eq(got.body.many.products[i].gemm.problem.m,
                     i + 1 == REQUEST_PRODUCTS_MAX ? 99 : i);
    }
    request_deinit(&got);
    cr_expect_eq(request_count(&got), 1);
}

Test(request_encode, a_wrong_product_among_many_is_refused_alone)
{
    struct fault fault = FAULT_NONE;
    struct request got;

    cr_assert_eq(decode_many(3, 5, -1, &got, &fault), 0);
    cr_expect_eq(got.body.many.products[0].fault.status, STATUS_OK);
    cr_expect_eq(got.body.many.products[1].fault.status, STATUS_OK);
    cr_expect_eq(got.body.many.products[2].fault.status, STATUS_INVALID_ARGUMENT);
    cr_expect_str_eq(got.body.many.products[2].fault.argument, "m");
    request_deinit(&got);
}

Test(request_encode, none_or_too_many_products_are_refused_as_one)
{
    static const struct {
        size_t count;
        uint32_t id;
    } cases[] = {{0, 5}, {REQUEST_PRODUCTS_MAX + 1, 5}, {2, UINT32_MAX - 1}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fault fault = FAULT_NONE;
        struct request got;

        cr_expect_eq(decode_many(cases[i].count, cases[i].id, 1, &got, &fault), REQUEST_E_REFUSED);
        cr_expect_str_eq(fault.argument, "products");
        cr_expect_eq(request_count(&got), 1);
        request_deinit(&got);
    }
}
