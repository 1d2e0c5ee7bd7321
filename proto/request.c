/*
 * From a frame's payload to a struct request. Two kinds of wrong: what has no id that could be
 * answered, or is no [0, id, method, params] at all, is malformed; everything else is refused with
 * a fault.
 */
#include "request.h"

#include "../daemon/core/error.h"
#include "fields.h"
#include "reply.h"
#include "request_buffer.h"
#include "scan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct field_range range_any = {0, UINT64_MAX};
static const struct field_range range_signed = {0, INT64_MAX};

static void decode_hello(struct fields *fields, struct request *request)
{
    struct request_hello *hello = &request->body.hello;
    msgpack_object_str client = {0};
    uint64_t version = 0;

    fields_unsigned(fields, "version", FIELD_REQUIRED, (struct field_range){1, UINT32_MAX},
                    &version);
    fields_text(fields, "client", FIELD_OPTIONAL, (struct field_range){0, REQUEST_CLIENT_MAX},
                &client);
    hello->version = (uint32_t)version;
    hello->client = client.ptr;
    hello->client_size = client.size;
}

/* --- gemm ------------------------------------------------------------------------------------ */

static void
decode_dtype(struct fields *fields, const char *name, enum presence presence, enum dtype *ret)
{
    const msgpack_object *object = fields_find(fields, name);
    const char *allowed = "\"bf16\", \"fp16\", \"fp32\", \"fp64\", \"int8\", as output \"int32\"";
    enum dtype dtype = DTYPE_NONE;

    if (object == NULL) {
        if (presence == FIELD_REQUIRED)
            fields_refuse(fields, name, NULL, allowed);
        return;
    }
    if (object->type != MSGPACK_OBJECT_STR ||
        !dtype_from_name(object->via.str.ptr, object->via.str.size, &dtype) || dtype == DTYPE_NONE)
        fields_refuse(fields, name, object, allowed);
    else
        *ret = dtype;
}

static void decode_order(struct fields *fields, bool *ret_column_major)
{
    const msgpack_object *object = fields_find(fields, "order");

    if (object == NULL)
        return;
    if (object->type == MSGPACK_OBJECT_STR && text_is(&object->via.str, "row"))
        *ret_column_major = false;
    else if (object->type == MSGPACK_OBJECT_STR && text_is(&object->via.str, "column"))
        *ret_column_major = true;
    else
        fields_refuse(fields, "order", object, "\"row\" or \"column\"");
}

static void
decode_size(struct fields *fields, const char *name, enum presence presence, int64_t *ret)
{
    uint64_t value = 0;

    if (presence == FIELD_OPTIONAL && fields_find(fields, name) == NULL)
        return;
    fields_unsigned(fields, name, presence, range_signed, &value);
    *ret = (int64_t)value;
}

static void decode_activation(struct fields *fields, enum activation *ret)
{
    const msgpack_object *object = fields_find(fields, "activation");

    if (object != NULL && (object->type != MSGPACK_OBJECT_STR ||
                           !activation_from_name(object->via.str.ptr, object->via.str.size, ret)))
        fields_refuse(fields, "activation", object,
                      "\"none\", \"relu\", \"gelu\", \"gelu_tanh\" or \"silu\"");
}

/* What the values of a bias that is there belong to. */
static void decode_per(struct fields *fields, enum bias *ret)
{
    const msgpack_object *object = fields_find(fields, "per");

    if (object == NULL)
        *ret = BIAS_PER_COLUMN;
    else if (object->type == MSGPACK_OBJECT_STR && text_is(&object->via.str, "row"))
        *ret = BIAS_PER_ROW;
    else if (object->type == MSGPACK_OBJECT_STR && text_is(&object->via.str, "column"))
        *ret = BIAS_PER_COLUMN;
    else
        fields_refuse(fields, "per", object, "\"row\" or \"column\"");
}

/* Where the operand lies: in a buffer, in the message, or nowhere. */
static void
decode_place(struct fields *fields, enum operand_role role, struct request_operand *operand)
{
    const msgpack_object *buffer = fields_find(fields, "buffer");
    const msgpack_object *data = fields_find(fields, "data");
    const msgpack_object *offset = fields_find(fields, "offset");
    msgpack_object_bin bytes;

    if (data != NULL && role == OPERAND_D)
        fields_refuse(fields, "data", data, "nothing: d is written, not read");
    if (data != NULL && buffer != NULL)
        fields_refuse(fields, "data", data, "either data or buffer");
    if (offset != NULL && buffer == NULL)
        fields_refuse(fields, "offset", offset, "an offset into a buffer, and none is given");

    if (buffer != NULL) {
        operand->kind = OPERAND_BUFFER;
        fields_unsigned(fields, "buffer", FIELD_REQUIRED, range_any, &operand->buffer);
        fields_unsigned(fields, "offset", FIELD_OPTIONAL, range_any, &operand->offset);
    } else if (fields_bytes(fields, "data", &bytes)) {
        operand->kind = OPERAND_INLINE;
        operand->data = bytes.ptr;
        operand->size = bytes.size;
    }
}

static void decode_operand(struct fields *outer, enum operand_role role, struct request_gemm *gemm)
{
    const char *name = operand_name(role);
    const msgpack_object *object = fields_find(outer, name);
    struct problem_operand *shape = &gemm->problem.operand[role];

    gemm->operand[role] = (struct request_operand){.kind = OPERAND_ABSENT};
    *shape = (struct problem_operand){.ld = PROBLEM_DEFAULT, .stride = PROBLEM_DEFAULT};
    if (object == NULL)
        return;
    if (object->type != MSGPACK_OBJECT_MAP) {
        fields_refuse(outer, name, object, "a map with buffer and offset, or data");
        return;
    }

    struct fields fields = {.map = &object->via.map, .prefix = name, .fault = outer->fault};

    decode_place(&fields, role, &gemm->operand[role]);
    decode_size(&fields, "ld", FIELD_OPTIONAL, &shape->ld);
    decode_size(&fields, "stride", FIELD_OPTIONAL, &shape->stride);
    if (role == OPERAND_BIAS)
        decode_per(&fields, &gemm->problem.bias);
}

static void decode_problem(struct fields *fields, struct problem *problem)
{
    *problem = (struct problem){.batch = 1, .alpha = 1.0, .beta = 0.0};
    decode_dtype(fields, "dtype", FIELD_REQUIRED, &problem->input);
    problem->output = dtype_default_output(problem->input);
    decode_dtype(fields, "dtype_out", FIELD_OPTIONAL, &problem->output);
    fields_bool(fields, "trans_a", FIELD_OPTIONAL, &problem->trans_a);
    fields_bool(fields, "trans_b", FIELD_OPTIONAL, &problem->trans_b);
    decode_size(fields, "m", FIELD_REQUIRED, &problem->m);
    decode_size(fields, "n", FIELD_REQUIRED, &problem->n);
    decode_size(fields, "k", FIELD_REQUIRED, &problem->k);
    decode_size(fields, "batch", FIELD_OPTIONAL, &problem->batch);
    fields_real(fields, "alpha", FIELD_OPTIONAL, &problem->alpha);
    fields_real(fields, "beta", FIELD_OPTIONAL, &problem->beta);
    decode_activation(fields, &problem->activation);
}

static void decode_explain(struct fields *fields, struct request *request)
{
    struct request_gemm *gemm = &request->body.gemm;

    gemm->column_major = false;
    decode_problem(fields, &gemm->problem);
    decode_order(fields, &gemm->column_major);
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        decode_operand(fields, role, gemm);
}

static void decode_tune(struct fields *fields, struct request *request)
{
    uint64_t keep = REQUEST_KEEP_DEFAULT;

    decode_explain(fields, request);
    fields_unsigned(fields, "keep", FIELD_OPTIONAL, (struct field_range){1, REQUEST_KEEP_MAX},
                    &keep);
    request->body.gemm.keep = (uint32_t)keep;
}

static void decode_gemm(struct fields *fields, struct request *request)
{
    static const char *const allowed[OPERAND_D] = {
        "present unless alpha or k is 0",
        "present unless alpha or k is 0",
        "present unless beta is 0",
        "a map with buffer and offset, or data",
    };
    struct request_gemm *gemm = &request->body.gemm;
    int64_t priority = 0;

    decode_explain(fields, request);
    fields_unsigned(fields, "deadline_us", FIELD_OPTIONAL,
                    (struct field_range){1, REQUEST_DEADLINE_MAX}, &gemm->deadline_us);
    fields_signed(fields, "priority", FIELD_OPTIONAL, -REQUEST_PRIORITY_MAX, REQUEST_PRIORITY_MAX,
                  &priority);
    gemm->priority = (int)priority;
    for (enum operand_role role = OPERAND_A; role < OPERAND_D; role++) {
        if (gemm->operand[role].kind == OPERAND_ABSENT && problem_reads(&gemm->problem, role))
            fields_refuse(fields, operand_name(role), NULL, allowed[role]);
    }
}

/* Each product by itself: a wrong one is refused alone. */
static bool decode_product(const msgpack_object *object, struct request_product *product)
{
    struct request one = {.method = METHOD_GEMM};

    product->fault = FAULT_NONE;
    if (object->type != MSGPACK_OBJECT_MAP)
        return false;

    struct fields fields = {.map = &object->via.map, .prefix = "", .fault = &product->fault};

    decode_gemm(&fields, &one);
    product->gemm = one.body.gemm;
    return true;
}

static void decode_many(struct fields *fields, struct request *request)
{
    struct request_many *many = &request->body.many;
    const msgpack_object *object = fields_find(fields, "products");
    const char *allowed = "an array of 1 to 32 maps, whose ids stay under 4294967295";
    bool is_right = object && object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size >= 1 &&
                    object->via.array.size <= REQUEST_PRODUCTS_MAX &&
                    request->id <= REPLY_ID_LAST - object->via.array.size;

    static_assert(REQUEST_PRODUCTS_MAX == 32, "the sentence says so");
    if (is_right) {
        many->products = malloc(object->via.array.size * sizeof(*many->products));
        if (!many->products) {
            (void)fault_set(fields->fault, STATUS_OUT_OF_MEMORY, "products",
                            "no memory for %u products", object->via.array.size);
            return;
        }
        many->count = object->via.array.size;
    }
    for (size_t i = 0; is_right && i < many->count; i++)
        is_right = decode_product(&object->via.array.ptr[i], &many->products[i]);
    if (!is_right)
        fields_refuse(fields, "products", object, allowed);
}

size_t request_count(const struct request *request)
{
    return request->method == METHOD_GEMM_MANY && request->body.many.count > 0
               ? request->body.many.count
               : 1;
}

size_t request_descriptors(const struct request *request)
{
    if (request->method == METHOD_BUFFER_IMPORT)
        return request->body.buffer.handle ? 0 : 1;
    return request->method == METHOD_BUFFER_REGISTER ? 1 : 0;
}

void request_deinit(struct request *request)
{
    if (request->method != METHOD_GEMM_MANY)
        return;
    free(request->body.many.products);
    request->body.many = (struct request_many){0};
}

/* --- the rest -------------------------------------------------------------------------------- */

static void decode_prewarm(struct fields *fields, struct request *request)
{
    const struct field_range range = {1, REQUEST_CONFIGURATION_MAX};
    msgpack_object_str text = {0};

    fields_text(fields, "configuration", FIELD_REQUIRED, range, &text);
    if (!text_is_printable(&text))
        fields_refuse(fields, "configuration", fields_find(fields, "configuration"),
                      "printable ASCII");
    request->body.cache.configuration = text.ptr;
    request->body.cache.configuration_size = text.size;
}

static void decode_cancel(struct fields *fields, struct request *request)
{
    uint64_t id = 0;

    fields_unsigned(fields, "request", FIELD_REQUIRED, (struct field_range){0, REPLY_ID_LAST - 1},
                    &id);
    request->body.cancel = (uint32_t)id;
}

static void decode_prune(struct fields *fields, struct request *request)
{
    fields_unsigned(fields, "max_bytes", FIELD_REQUIRED, range_any, &request->body.cache.max_bytes);
}

static void decode_nothing(struct fields *fields, struct request *request)
{
    (void)fields;
    (void)request;
}

static const struct {
    const char *name;
    void (*decode)(struct fields *fields, struct request *request);
} methods[METHOD_COUNT] = {
    [METHOD_HELLO] = {"hello", decode_hello},
    [METHOD_GEMM] = {"gemm", decode_gemm},
    [METHOD_GEMM_MANY] = {"gemm_many", decode_many},
    [METHOD_CANCEL] = {"cancel", decode_cancel},
    [METHOD_BUFFER_CREATE] = {"buffer.create", request_decode_create},
    [METHOD_BUFFER_REGISTER] = {"buffer.register", request_decode_register},
    [METHOD_BUFFER_IMPORT] = {"buffer.import", request_decode_import},
    [METHOD_BUFFER_OPEN] = {"buffer.open", request_decode_open},
    [METHOD_BUFFER_FREE] = {"buffer.free", request_decode_free},
    [METHOD_BUFFER_WRITE] = {"buffer.write", request_decode_write},
    [METHOD_BUFFER_READ] = {"buffer.read", request_decode_read},
    [METHOD_BUFFER_COPY] = {"buffer.copy", request_decode_copy},
    [METHOD_BUFFER_FREEZE] = {"buffer.freeze", request_decode_free},
    [METHOD_BUFFER_EXPORT] = {"buffer.export", request_decode_free},
    [METHOD_STATUS] = {"status", decode_nothing},
    [METHOD_STATS] = {"stats", decode_nothing},
    [METHOD_EXPLAIN] = {"explain", decode_explain},
    [METHOD_TUNE] = {"tune", decode_tune},
    [METHOD_CACHE_LIST] = {"cache.list", decode_nothing},
    [METHOD_CACHE_VERIFY] = {"cache.verify", decode_nothing},
    [METHOD_CACHE_PREWARM] = {"cache.prewarm", decode_prewarm},
    [METHOD_CACHE_PRUNE] = {"cache.prune", decode_prune},
};

const char *method_name(enum method method)
{
    return (size_t)method < METHOD_COUNT ? methods[method].name : "unknown";
}

static void refuse_method(const msgpack_object *object, struct fault *fault)
{
    char given[64], known[480] = "";
    size_t length = 0;

    object_describe(object, given, sizeof(given));
    for (size_t i = 0; i < METHOD_COUNT && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s",
                                   i > 0 ? ", " : "", methods[i].name);
    fault_set(fault, STATUS_NOT_FOUND, "method", "there is no method %s; allowed: %s", given,
              known);
}

static bool
decode_method(const msgpack_object *object, enum method *ret_method, struct fault *fault)
{
    for (enum method method = 0; method < METHOD_COUNT; method++) {
        if (text_is(&object->via.str, methods[method].name)) {
            *ret_method = method;
            return true;
        }
    }
    refuse_method(object, fault);
    return false;
}

/* params is an array of one map, or of nothing, which is an empty map. */
static bool
decode_params(const msgpack_object *object, msgpack_object_map *ret_map, struct fault *fault)
{
    char given[64];

    if (object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size == 0) {
        *ret_map = (msgpack_object_map){0};
        return true;
    }
    if (object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size == 1 &&
        object->via.array.ptr[0].type == MSGPACK_OBJECT_MAP) {
        *ret_map = object->via.array.ptr[0].via.map;
        return true;
    }
    object_describe(object, given, sizeof(given));
    fault_set(fault, STATUS_INVALID_ARGUMENT, "params",
              "params is %s; allowed: an array that holds one map", given);
    return false;
}

static bool is_request(const msgpack_object *object)
{
    const msgpack_object *part;

    if (object->type != MSGPACK_OBJECT_ARRAY || object->via.array.size != 4)
        return false;
    part = object->via.array.ptr;
    return part[0].type == MSGPACK_OBJECT_POSITIVE_INTEGER && part[0].via.u64 == 0 &&
           part[1].type == MSGPACK_OBJECT_POSITIVE_INTEGER && part[1].via.u64 < REPLY_ID_LAST &&
           part[2].type == MSGPACK_OBJECT_STR;
}

int request_decode(const uint8_t *payload,
                   size_t size,
                   struct request *ret_request,
                   struct fault *ret_fault)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    msgpack_object_map map;
    struct request request = {0};
    struct fault fault = FAULT_NONE;
    int r;

    if (!scan_message(payload, size))
        return REQUEST_E_MALFORMED;
    r = fields_unpack(payload, size, &unpacked);
    if (r < 0)
        return error_trace(r);
    if (!is_request(&unpacked.data))
        return REQUEST_E_MALFORMED;

    const msgpack_object *part = unpacked.data.via.array.ptr;

    request.id = (uint32_t)part[1].via.u64;
    request.method = METHOD_COUNT; /* until it is known */
    if (decode_method(&part[2], &request.method, &fault) && decode_params(&part[3], &map, &fault)) {
        struct fields fields = {.map = &map, .prefix = "", .fault = &fault};

        methods[request.method].decode(&fields, &request);
    }
    if (fault.status != STATUS_OK)
        request_deinit(&request);

    *ret_request = request;
    if (fault.status == STATUS_OK)
        return 0;
    *ret_fault = fault;
    return REQUEST_E_REFUSED;
}
