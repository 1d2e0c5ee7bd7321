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
                                     .beta = 0.1};
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
    cr_expect_eq(got.body.gemm.problem.operand[OPERAND_D].ld, 103);
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
