/*
 * From a struct request to a frame: the client's side. Fields at their default are left out.
 */
#include "message.h"
#include "request.h"

static void encode_hello(struct pack *pack, const struct request_hello *hello)
{
    pack_unsigned(pack, "version", hello->version);
    if (hello->client != NULL)
        pack_text(pack, "client", hello->client, hello->client_size);
}

static void
encode_operand(struct pack *pack, enum operand_role role, const struct request_gemm *gemm)
{
    const struct request_operand *operand = &gemm->operand[role];
    const struct problem_operand *shape = &gemm->problem.operand[role];
    const bool has_shape = shape->ld != PROBLEM_DEFAULT || shape->stride != PROBLEM_DEFAULT;

    if (role == OPERAND_BIAS ? gemm->problem.bias == BIAS_NONE
                             : operand->kind == OPERAND_ABSENT && !has_shape)
        return;
    pack_open_map(pack, operand_name(role));
    if (operand->kind == OPERAND_BUFFER) {
        pack_unsigned(pack, "buffer", operand->buffer);
        if (operand->offset != 0)
            pack_unsigned(pack, "offset", operand->offset);
    } else if (operand->kind == OPERAND_INLINE) {
        pack_bytes(pack, "data", operand->data, operand->size);
    }
    if (shape->ld != PROBLEM_DEFAULT)
        pack_signed(pack, "ld", shape->ld);
    if (shape->stride != PROBLEM_DEFAULT)
        pack_signed(pack, "stride", shape->stride);
    if (role == OPERAND_BIAS && gemm->problem.bias == BIAS_PER_ROW)
        pack_string(pack, "per", "row");
    pack_close(pack);
}

static void encode_gemm(struct pack *pack, const struct request_gemm *gemm)
{
    const struct problem *problem = &gemm->problem;

    pack_string(pack, "dtype", dtype_name(problem->input));
    if (problem->output != DTYPE_NONE)
        pack_string(pack, "dtype_out", dtype_name(problem->output));
    if (gemm->column_major)
        pack_string(pack, "order", "column");
    if (problem->trans_a)
        pack_bool(pack, "trans_a", true);
    if (problem->trans_b)
        pack_bool(pack, "trans_b", true);
    pack_signed(pack, "m", problem->m);
    pack_signed(pack, "n", problem->n);
    pack_signed(pack, "k", problem->k);
    if (problem->batch != 1)
        pack_signed(pack, "batch", problem->batch);
    pack_real(pack, "alpha", problem->alpha);
    pack_real(pack, "beta", problem->beta);
    if (problem->activation != ACTIVATION_NONE)
        pack_string(pack, "activation", activation_name(problem->activation));
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        encode_operand(pack, role, gemm);
    if (gemm->deadline_us != 0)
        pack_unsigned(pack, "deadline_us", gemm->deadline_us);
    if (gemm->priority != 0)
        pack_signed(pack, "priority", gemm->priority);
}

static void encode_many(struct pack *pack, const struct request_many *many)
{
    pack_open_array(pack, "products");
    for (size_t i = 0; i < many->count; i++) {
        pack_open_map(pack, NULL);
        encode_gemm(pack, &many->products[i].gemm);
        pack_close(pack);
    }
    pack_close(pack);
}

static void encode_create(struct pack *pack, const struct request_buffer *buffer)
{
    pack_string(pack, "kind", buffer->kind == BUFFER_DEVICE ? "device" : "host");
    pack_unsigned(pack, "size", buffer->size);
    if (buffer->name != NULL)
        pack_text(pack, "name", buffer->name, buffer->name_size);
    pack_unsigned(pack, "mode", buffer->mode);
    if (buffer->exportable)
        pack_bool(pack, "exportable", true);
}

static void encode_import(struct pack *pack, const struct request_buffer *buffer)
{
    pack_unsigned(pack, "size", buffer->size);
    if (buffer->offset != 0)
        pack_unsigned(pack, "offset", buffer->offset);
    if (buffer->allocation != 0)
        pack_unsigned(pack, "allocation", buffer->allocation);
    pack_bool(pack, "writable", buffer->writable);
    if (buffer->name != NULL)
        pack_text(pack, "name", buffer->name, buffer->name_size);
    pack_unsigned(pack, "mode", buffer->mode);
    if (buffer->handle != NULL)
        pack_bytes(pack, "handle", buffer->handle, REQUEST_HANDLE_SIZE);
}

static void encode_copy(struct pack *pack, const struct request_copy *copy)
{
    pack_unsigned(pack, "source", copy->source);
    pack_unsigned(pack, "source_offset", copy->source_offset);
    pack_unsigned(pack, "destination", copy->destination);
    pack_unsigned(pack, "destination_offset", copy->destination_offset);
    pack_unsigned(pack, "length", copy->length);
}

static void
encode_buffer(struct pack *pack, enum method method, const struct request_buffer *buffer)
{
    switch (method) {
    case METHOD_BUFFER_CREATE:
        encode_create(pack, buffer);
        return;
    case METHOD_BUFFER_REGISTER:
        pack_unsigned(pack, "size", buffer->size);
        pack_bool(pack, "writable", buffer->writable);
        return;
    case METHOD_BUFFER_IMPORT:
        encode_import(pack, buffer);
        return;
    case METHOD_BUFFER_OPEN:
        pack_text(pack, "name", buffer->name, buffer->name_size);
        pack_bool(pack, "writable", buffer->writable);
        return;
    case METHOD_BUFFER_WRITE:
        pack_unsigned(pack, "buffer", buffer->id);
        pack_unsigned(pack, "offset", buffer->offset);
        pack_bytes(pack, "data", buffer->data, buffer->length);
        return;
    case METHOD_BUFFER_READ:
        pack_unsigned(pack, "buffer", buffer->id);
        pack_unsigned(pack, "offset", buffer->offset);
        pack_unsigned(pack, "length", buffer->length);
        return;
    default:
        pack_unsigned(pack, "buffer", buffer->id);
        return;
    }
}

static void encode_body(struct pack *pack, const struct request *request)
{
    switch (request->method) {
    case METHOD_HELLO:
        encode_hello(pack, &request->body.hello);
        return;
    case METHOD_GEMM:
    case METHOD_EXPLAIN:
        encode_gemm(pack, &request->body.gemm);
        return;
    case METHOD_TUNE:
        encode_gemm(pack, &request->body.gemm);
        if (request->body.gemm.keep != 0)
            pack_unsigned(pack, "keep", request->body.gemm.keep);
        return;
    case METHOD_GEMM_MANY:
        encode_many(pack, &request->body.many);
        return;
    case METHOD_CANCEL:
        pack_unsigned(pack, "request", request->body.cancel);
        return;
    case METHOD_BUFFER_COPY:
        encode_copy(pack, &request->body.copy);
        return;
    case METHOD_CACHE_PREWARM:
        pack_text(pack, "configuration", request->body.cache.configuration,
                  request->body.cache.configuration_size);
        return;
    case METHOD_CACHE_PRUNE:
        pack_unsigned(pack, "max_bytes", request->body.cache.max_bytes);
        return;
    case METHOD_BUFFER_CREATE:
    case METHOD_BUFFER_REGISTER:
    case METHOD_BUFFER_IMPORT:
    case METHOD_BUFFER_OPEN:
    case METHOD_BUFFER_FREE:
    case METHOD_BUFFER_WRITE:
    case METHOD_BUFFER_READ:
    case METHOD_BUFFER_FREEZE:
    case METHOD_BUFFER_EXPORT:
        encode_buffer(pack, request->method, &request->body.buffer);
        return;
    case METHOD_STATUS:
    case METHOD_STATS:
    case METHOD_CACHE_LIST:
    case METHOD_CACHE_VERIFY:
    case METHOD_COUNT:
        return;
    }
}

int request_encode(const struct request *request, uint16_t n_fds, struct message *ret_message)
{
    struct message message = *ret_message;
    struct pack pack;
    int r;

    message_begin(&message, &pack);
    pack_open_array(&pack, NULL);
    pack_unsigned(&pack, NULL, 0);
    pack_unsigned(&pack, NULL, request->id);
    pack_string(&pack, NULL, method_name(request->method));
    pack_open_array(&pack, NULL);
    pack_open_map(&pack, NULL);
    encode_body(&pack, request);
    r = message_finish(&message, &pack, n_fds);
    *ret_message = message;
    return r;
}
