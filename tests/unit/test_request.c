/*
 * Requests are built here by hand as msgpack text, so that the decoder is held against the format
 * and not against this project's own encoder. test_request_encode.c holds the encoder.
 */
#include "wire_writer.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* Decodes a request that must be good; the wire stays alive for what points into it. */
static struct request
accept_request(struct wire *wire, const char *method, const struct field *f, size_t n)
{
    struct request request = {0};
    struct fault fault = FAULT_NONE;
    int r;

    wire_fields(wire, method, f, n);
    r = wire_decode(wire, &request, &fault);
    cr_assert_eq(r, 0, "%s: %s", method, fault.message);
    cr_assert_eq(request.id, 7);
    cr_assert_str_eq(method_name(request.method), method);
    return request;
}

static void expect_fault(
    const char *method, const struct field *f, size_t n, const char *argument, const char *words)
{
    struct wire wire;
    struct request request = {0};
    struct fault fault = FAULT_NONE;

    wire_fields(&wire, method, f, n);
    cr_assert_eq(wire_decode(&wire, &request, &fault), REQUEST_E_REFUSED, "%s %s", method,
                 argument);
    cr_assert_eq(fault.status, STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(fault.argument, argument);
    cr_assert_not_null(strstr(fault.message, words), "\"%s\" lacks \"%s\"", fault.message, words);
    cr_assert_not_null(strstr(fault.message, "allowed:"), "%s", fault.message);
    cr_assert_eq(request.id, 7, "a refusal must be answerable");
    msgpack_sbuffer_destroy(&wire.bytes);
}

/* --- gemm ------------------------------------------------------------------------------------ */

Test(request, fills_the_defaults_of_a_gemm)
{
    struct wire wire;
    struct request request =
        accept_request(&wire, "gemm",
                       FIELDS({"dtype", "sint8"}, {"m", "i2"}, {"n", "i3"}, {"k", "i4"},
                              {"a.buffer", "i1"}, {"b.data", "b0102"}));
    const struct request_gemm *gemm = &request.body.gemm;

    cr_expect_eq(gemm->problem.input, DTYPE_INT8);
    cr_expect_eq(gemm->problem.output, DTYPE_INT32);
    cr_expect_eq(gemm->problem.batch, 1);
    cr_expect_eq(gemm->problem.alpha, 1.0);
    cr_expect_eq(gemm->problem.beta, 0.0);
    cr_expect_not(gemm->problem.trans_a || gemm->problem.trans_b || gemm->column_major);
    cr_expect_eq(gemm->problem.bias, BIAS_NONE);
    cr_expect_eq(gemm->problem.activation, ACTIVATION_NONE);
    cr_expect_eq(gemm->operand[OPERAND_A].kind, OPERAND_BUFFER);
    cr_expect_eq(gemm->operand[OPERAND_A].offset, 0);
    cr_expect_eq(gemm->operand[OPERAND_B].kind, OPERAND_INLINE);
    cr_expect_eq(gemm->operand[OPERAND_C].kind, OPERAND_ABSENT);
    cr_expect_eq(gemm->operand[OPERAND_D].kind, OPERAND_ABSENT);
    for (int role = OPERAND_A; role < OPERAND_COUNT; role++) {
        cr_expect_eq(gemm->problem.operand[role].ld, PROBLEM_DEFAULT);
        cr_expect_eq(gemm->problem.operand[role].stride, PROBLEM_DEFAULT);
    }
    msgpack_sbuffer_destroy(&wire.bytes);
}

Test(request, reads_every_field_of_a_gemm)
{
    struct wire wire;
    struct request request = accept_request(
        &wire, "gemm",
        FIELDS({"dtype", "sbf16"}, {"dtype_out", "sfp32"}, {"order", "scolumn"}, {"trans_a", "t"},
               {"trans_b", "t"}, {"m", "i2"}, {"n", "i3"}, {"k", "i4"}, {"batch", "i5"},
               {"alpha", "f-0.5"}, {"beta", "i2"}, {"a.buffer", "u18446744073709551615"},
               {"a.offset", "u18446744073709551614"}, {"a.ld", "i6"}, {"a.stride", "i0"},
               {"b.data", "b0102"}, {"b.ld", "i7"}, {"c.buffer", "i9"}, {"d.ld", "i11"},
               {"d.stride", "i12"}, {"deadline_us", "i13"}, {"priority", "i-1"},
               {"activation", "ssilu"}, {"bias.buffer", "i14"}, {"bias.offset", "i16"},
               {"bias.stride", "i0"}, {"bias.per", "srow"}));
    const struct request_gemm *gemm = &request.body.gemm;
    const struct problem *problem = &gemm->problem;

    cr_expect_eq(problem->input, DTYPE_BF16);
    cr_expect_eq(problem->output, DTYPE_FP32);
    cr_expect(gemm->column_major && problem->trans_a && problem->trans_b);
    cr_expect(problem->m == 2 && problem->n == 3 && problem->k == 4 && problem->batch == 5);
    cr_expect_eq(problem->alpha, -0.5);
    cr_expect_eq(problem->beta, 2.0);
    cr_expect_eq(gemm->operand[OPERAND_A].buffer, UINT64_MAX);
    cr_expect_eq(gemm->operand[OPERAND_A].offset, UINT64_MAX - 1);
    cr_expect_eq(problem->operand[OPERAND_A].ld, 6);
    cr_expect_eq(problem->operand[OPERAND_A].stride, 0);
    cr_expect_eq(gemm->operand[OPERAND_B].size, 2);
    cr_expect_arr_eq(gemm->operand[OPERAND_B].data, ((uint8_t[]){1, 2}), 2);
    cr_expect_eq(gemm->operand[OPERAND_C].buffer, 9);
    cr_expect_eq(gemm->operand[OPERAND_D].kind, OPERAND_ABSENT);
    cr_expect_eq(problem->operand[OPERAND_D].ld, 11);
    cr_expect_eq(problem->operand[OPERAND_D].stride, 12);
    cr_expect_eq(gemm->deadline_us, 13);
    cr_expect_eq(gemm->priority, -1);
    cr_expect_eq(problem->activation, ACTIVATION_SILU);
    cr_expect_eq(problem->bias, BIAS_PER_ROW);
    cr_expect_eq(gemm->operand[OPERAND_BIAS].offset, 16);
    cr_expect_eq(problem->operand[OPERAND_BIAS].stride, 0);
    msgpack_sbuffer_destroy(&wire.bytes);
}

/* As in a linear layer. And what an older client does not say changes nothing: see the defaults. */
Test(request, takes_a_bias_as_one_value_for_each_column)
{
    struct wire wire;
    struct request request = accept_request(&wire, "gemm",
                                            FIELDS({"dtype", "sfp32"}, {"m", "i1"}, {"n", "i1"},
                                                   {"k", "i0"}, {"bias.data", "b00000000"}));

    cr_expect_eq(request.body.gemm.problem.bias, BIAS_PER_COLUMN);
    cr_expect_eq(request.body.gemm.operand[OPERAND_BIAS].kind, OPERAND_INLINE);
    msgpack_sbuffer_destroy(&wire.bytes);
}

Test(request, points_inline_data_into_the_payload)
{
    struct wire wire;
    struct request request =
        accept_request(&wire, "buffer.write", FIELDS({"buffer", "i1"}, {"data", "b0a0b0c"}));
    const char *data = request.body.buffer.data;

    cr_expect(data >= wire.bytes.data && data + 3 <= wire.bytes.data + wire.bytes.size);
    cr_expect_arr_eq(data, ((uint8_t[]){10, 11, 12}), 3);
    msgpack_sbuffer_destroy(&wire.bytes);
}

static bool same_group(const char *a, const char *b)
{
    const size_t length = strcspn(a, ".");

    return length == strcspn(b, ".") && strncmp(a, b, length) == 0;
}

/* A good gemm with one field, or an operand's one field, replaced or added. */
static void
expect_gemm_fault(const char *name, const char *value, const char *argument, const char *words)
{
    struct field fields[9] = {
        {"dtype", "sfp32"}, {"m", "i2"},        {"n", "i2"},        {"k", "i2"},
        {"a.buffer", "i1"}, {"b.buffer", "i1"}, {"c.buffer", "i1"}, {"d.buffer", "i1"},
    };
    size_t n = 8, at = 0;

    while (at < n && !same_group(fields[at].name, name))
        at++;
    fields[at] = (struct field){name, value};
    expect_fault("gemm", fields, MAX(n, at + 1), argument, words);
}

Test(request, names_the_argument_of_a_gemm_what_was_given_and_what_is_allowed)
{
    expect_gemm_fault("m", "i-1", "m", "m is -1");
    expect_gemm_fault("m", "u9223372036854775808", "m", "m is 9223372036854775808");
    expect_gemm_fault("m", "u9223372036854775808", "m", "to 9223372036854775807");
    expect_gemm_fault("m", "f2", "m", "m is the float 2");
    expect_gemm_fault("m", "s2", "m", "m is \"2\"");
    expect_gemm_fault("m", "t", "m", "m is true");
    expect_gemm_fault("m", "0", "m", "m is missing");
    expect_gemm_fault("n", "[", "n", "n is an array of 0");
    expect_gemm_fault("k", "{", "k", "k is a map of 0");
    expect_gemm_fault("k", "b00", "k", "k is binary of 1 bytes");
    expect_gemm_fault("batch", "i-3", "batch", "batch is -3");
    expect_gemm_fault("dtype", "sfp8", "dtype", "dtype is \"fp8\"");
    expect_gemm_fault("dtype", "snone", "dtype", "dtype is \"none\"");
    expect_gemm_fault("dtype", "i3", "dtype", "dtype is 3");
    expect_gemm_fault("dtype", "0", "dtype", "dtype is missing");
    expect_gemm_fault("dtype_out", "sFP32", "dtype_out", "\"FP32\"");
    expect_gemm_fault("order", "scol", "order", "\"row\" or \"column\"");
    expect_gemm_fault("trans_a", "i1", "trans_a", "true or false");
    expect_gemm_fault("alpha", "s1", "alpha", "alpha is \"1\"");
    expect_gemm_fault("deadline_us", "i0", "deadline_us", "from 1 to 9007199254740992");
    expect_gemm_fault("priority", "i2", "priority", "from -1 to 1");
    expect_gemm_fault("priority", "i-2", "priority", "priority is -2");
    expect_gemm_fault("priority", "u18446744073709551615", "priority", "from -1 to 1");
    expect_gemm_fault("beta", "u18446744073709551615", "beta", "2^53");
    expect_gemm_fault("activation", "sReLU", "activation", "\"gelu_tanh\" or \"silu\"");
    expect_gemm_fault("activation", "i1", "activation", "activation is 1");
    expect_gemm_fault("bias", "sx", "bias", "a map with buffer");
    expect_gemm_fault("bias", "{", "bias", "bias is missing");
    expect_gemm_fault("bias.per", "sm", "bias.per", "\"row\" or \"column\"");
    expect_gemm_fault("a", "i1", "a", "a is 1");
    expect_gemm_fault("a", "0", "a", "a is missing");
    expect_gemm_fault("a", "{", "a", "unless alpha or k is 0");
    expect_gemm_fault("b", "0", "b", "b is missing");
    expect_gemm_fault("a.buffer", "i-1", "a.buffer", "a.buffer is -1");
    expect_gemm_fault("a.data", "sabc", "a.data", "a.data is \"abc\"");
    expect_gemm_fault("a.offset", "i1", "a.offset", "into a buffer");
    expect_gemm_fault("d.data", "b00", "d.data", "written");
}

Test(request, names_the_ld_and_stride_of_an_operand)
{
    expect_fault("gemm",
                 FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i2"},
                        {"a.buffer", "i1"}, {"a.ld", "i-2"}),
                 "a.ld", "a.ld is -2");
    expect_fault("gemm",
                 FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i2"},
                        {"b.data", "b00"}, {"b.stride", "f0.5"}),
                 "b.stride", "b.stride is the float 0.5");
    expect_fault("gemm",
                 FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i2"},
                        {"c.buffer", "i1"}, {"c.data", "b00"}),
                 "c.data", "either data or buffer");
}

Test(request, needs_only_the_operands_that_are_read)
{
    struct wire wire;

    accept_request(&wire, "gemm",
                   FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i0"}));
    msgpack_sbuffer_destroy(&wire.bytes);
    accept_request(
        &wire, "gemm",
        FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i2"}, {"alpha", "i0"}));
    msgpack_sbuffer_destroy(&wire.bytes);
    accept_request(&wire, "gemm",
                   FIELDS({"dtype", "sfp32"}, {"m", "i0"}, {"n", "i2"}, {"k", "i2"}));
    msgpack_sbuffer_destroy(&wire.bytes);
    accept_request(&wire, "explain",
                   FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i2"}));
    msgpack_sbuffer_destroy(&wire.bytes);
    expect_fault("gemm",
                 FIELDS({"dtype", "sfp32"}, {"m", "i2"}, {"n", "i2"}, {"k", "i0"}, {"beta", "f1"}),
                 "c", "unless beta is 0");
}

Test(request, ignores_fields_it_does_not_know)
{
    struct wire wire;

    accept_request(&wire, "status", FIELDS({"colour", "sred"}, {"depth", "{"}, {"m", "i-1"}));
    msgpack_sbuffer_destroy(&wire.bytes);

    wire_start(&wire, "status", 2); /* keys of other types */
    msgpack_pack_int(&wire.packer, 5);
    msgpack_pack_int(&wire.packer, 6);
    msgpack_pack_nil(&wire.packer);
    msgpack_pack_nil(&wire.packer);
    cr_expect_eq(wire_decode(&wire, &(struct request){0}, &(struct fault){0}), 0);
    msgpack_sbuffer_destroy(&wire.bytes);
}

Test(request, refuses_a_field_given_twice)
{
    expect_fault("buffer.free", FIELDS({"buffer", "i1"}, {"buffer", "i1"}), "buffer",
                 "more than once");
    expect_fault("buffer.free", FIELDS({"buffer", "i1"}, {"buffer", "0"}), "buffer",
                 "more than once");
}

Test(request, does_not_take_a_name_with_a_zero_for_a_shorter_one)
{
    struct wire wire;
    struct request request;
    struct fault fault = FAULT_NONE;

    wire_start(&wire, "buffer.free", 1);
    msgpack_pack_str_with_body(&wire.packer, "buffer\0", 7);
    msgpack_pack_int(&wire.packer, 1);
    cr_expect_eq(wire_decode(&wire, &request, &fault), REQUEST_E_REFUSED);
    cr_expect_str_eq(fault.argument, "buffer");
    msgpack_sbuffer_destroy(&wire.bytes);
}

Test(request, keeps_control_bytes_and_length_out_of_messages)
{
    char value[256] = "s";
    struct fault fault = FAULT_NONE;
    struct request request;
    struct wire wire;

    memset(value + 1, '\n', 200);
    wire_fields(&wire, "gemm", FIELDS({"dtype", value}));
    cr_assert_eq(wire_decode(&wire, &request, &fault), REQUEST_E_REFUSED);
    cr_expect_null(strchr(fault.message, '\n'));
    cr_expect_not_null(strstr(fault.message, "...\""));
    msgpack_sbuffer_destroy(&wire.bytes);
}

/* --- buffers and the rest -------------------------------------------------------------------- */

Test(request, reads_the_buffer_methods)
{
    struct wire wire;
    struct request request;

    request = accept_request(
        &wire, "buffer.create",
        FIELDS({"kind", "sdevice"}, {"size", "i4096"}, {"name", "sweights"}, {"mode", "i0640"}));
    cr_expect_eq(request.body.buffer.kind, BUFFER_DEVICE);
    cr_expect_eq(request.body.buffer.size, 4096);
    cr_expect_eq(request.body.buffer.name_size, 7);
    cr_expect_arr_eq(request.body.buffer.name, "weights", 7);
    cr_expect_eq(request.body.buffer.mode, 0640);
    msgpack_sbuffer_destroy(&wire.bytes);

    request = accept_request(&wire, "buffer.create", FIELDS({"kind", "shost"}, {"size", "i1"}));
    cr_expect_eq(request.body.buffer.kind, BUFFER_HOST);
    cr_expect_null(request.body.buffer.name);
    cr_expect_eq(request.body.buffer.mode, BUFFER_MODE_DEFAULT);
    msgpack_sbuffer_destroy(&wire.bytes);

    request = accept_request(
        &wire, "buffer.read",
        FIELDS({"buffer", "i5"}, {"offset", "u18446744073709551615"}, {"length", "i16"}));
    cr_expect_eq(request.body.buffer.id, 5);
    cr_expect_eq(request.body.buffer.offset, UINT64_MAX);
    cr_expect_eq(request.body.buffer.length, 16);
    msgpack_sbuffer_destroy(&wire.bytes);
}

Test(request, names_the_argument_of_the_other_methods)
{
    char long_text[400] = "s", many[32];

    memset(long_text + 1, 'x', 300);
    snprintf(many, sizeof(many), "i%u", REQUEST_INLINE_MAX + 1);
    expect_fault("hello", FIELDS({"client", "sx"}), "version", "version is missing");
    expect_fault("hello", FIELDS({"version", "i0"}), "version", "from 1");
    expect_fault("hello", FIELDS({"version", "i1"}, {"client", long_text}), "client", "128 bytes");
    expect_fault("buffer.create", FIELDS({"size", "i1"}), "kind", "kind is missing");
    expect_fault("buffer.create", FIELDS({"kind", "sgpu"}, {"size", "i1"}), "kind", "\"device\"");
    expect_fault("buffer.create", FIELDS({"kind", "shost"}, {"size", "i0"}), "size", "size is 0");
    expect_fault("buffer.create", FIELDS({"kind", "shost"}, {"size", "i1"}, {"mode", "i01000"}),
                 "mode", "to 511");
    expect_fault("buffer.create", FIELDS({"kind", "shost"}, {"size", "i1"}, {"name", "sa/b"}),
                 "name", "and \"/\"");
    expect_fault("buffer.open", FIELDS({"name", "sa b"}), "name", "without space");
    expect_fault("buffer.create", FIELDS({"kind", "shost"}, {"size", "i1"}, {"name", long_text}),
                 "name", "1 to 64 bytes");
    expect_fault("buffer.open", FIELDS({"name", "s"}), "name", "1 to 64 bytes");
    expect_fault("buffer.open", FIELDS({"name", "sa\nb"}), "name", "printable");
    expect_fault("buffer.register", FIELDS({"writable", "t"}), "size", "missing");
    expect_fault("buffer.write", FIELDS({"buffer", "i1"}), "data", "data is missing");
    expect_fault("buffer.write", FIELDS({"buffer", "i1"}, {"data", "stext"}), "data",
                 "msgpack bin");
    expect_fault("buffer.read", FIELDS({"buffer", "i1"}, {"length", many}), "length", "allowed");
    expect_fault("buffer.copy", FIELDS({"source", "i1"}, {"length", "i1"}), "destination",
                 "missing");
    expect_fault("cache.prewarm", FIELDS({"configuration", long_text}), "configuration",
                 "95 bytes");
    expect_fault("cache.prune", FIELDS({"max_bytes", "i-1"}), "max_bytes", "-1");
}

Test(request, says_which_methods_there_are)
{
    struct wire wire;
    struct request request;
    struct fault fault = FAULT_NONE;

    wire_start(&wire, "gemv", 0);
    cr_assert_eq(wire_decode(&wire, &request, &fault), REQUEST_E_REFUSED);
    cr_expect_eq(fault.status, STATUS_NOT_FOUND);
    cr_expect_str_eq(fault.argument, "method");
    cr_expect_not_null(strstr(fault.message, "\"gemv\""));
    for (int method = 0; method < METHOD_COUNT; method++)
        cr_expect_not_null(strstr(fault.message, method_name(method)), "%s", method_name(method));
    cr_expect_eq(request.id, 7);
    msgpack_sbuffer_destroy(&wire.bytes);
}

/* --- the envelope ---------------------------------------------------------------------------- */

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static int decode_bytes(const uint8_t *bytes, size_t size)
{
    struct request request;
    struct fault fault;

    return request_decode(bytes, size, &request, &fault);
}

Test(request, tells_what_is_no_request_at_all)
{
    cr_expect_eq(decode_bytes(BYTES(0xdd, 0xff, 0, 0, 0)), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0xc0)), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x90)), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x93, 0, 1, 0xa1, 'x')), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 1, 1, 0xc0, 0xc0)), REQUEST_E_MALFORMED); /* a reply */
    cr_expect_eq(decode_bytes(BYTES(0x93, 2, 0xa1, 'x', 0x90)), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 0xff, 0xa1, 'x', 0x90)), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 5, 0x90)), REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0, 0xa1, 'x', 0x90)),
                 REQUEST_E_MALFORMED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 0xce, 0xff, 0xff, 0xff, 0xff, 0xa1, 'x', 0x90)),
                 REQUEST_E_MALFORMED); /* the id of the daemon's last message */
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 0xa6, 's', 't', 'a', 't', 'u', 's', 0x90, 0xc0)),
                 REQUEST_E_MALFORMED); /* something behind it */
}

Test(request, takes_params_of_one_map_or_of_nothing)
{
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 0xa6, 's', 't', 'a', 't', 'u', 's', 0x90)), 0);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 0xa6, 's', 't', 'a', 't', 'u', 's', 0x91, 0x80)),
                 0);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 0xa6, 's', 't', 'a', 't', 'u', 's', 0x80)),
                 REQUEST_E_REFUSED);
    cr_expect_eq(decode_bytes(BYTES(0x94, 0, 1, 0xa6, 's', 't', 'a', 't', 'u', 's', 0x91, 5)),
                 REQUEST_E_REFUSED);
    cr_expect_eq(
        decode_bytes(BYTES(0x94, 0, 1, 0xa6, 's', 't', 'a', 't', 'u', 's', 0x92, 0x80, 0x80)),
        REQUEST_E_REFUSED);
}
