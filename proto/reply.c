/*
 * Replies with a fixed shape: hello, gemm, buffer.*, faults, both directions. Trees are in
 * reply_map.c, their JSON in reply_json.c.
 */
#include "reply.h"

#include "../daemon/core/error.h"
#include "fields.h"
#include "message.h"
#include <stdio.h>
#include <string.h>

/* [1, id, error, result]; what follows is the two. */
static void reply_begin(struct pack *pack, struct message *message, uint32_t id)
{
    message_begin(message, pack);
    pack_open_array(pack, NULL);
    pack_unsigned(pack, NULL, 1);
    pack_unsigned(pack, NULL, id);
}

static void result_begin(struct pack *pack, struct message *message, uint32_t id)
{
    reply_begin(pack, message, id);
    pack_nil(pack, NULL);
    pack_open_map(pack, NULL);
}

int reply_encode_fault(uint32_t id, const struct fault *fault, struct message *ret_message)
{
    struct pack pack;

    reply_begin(&pack, ret_message, id);
    pack_open_map(&pack, NULL);
    pack_unsigned(&pack, "code", fault->status);
    pack_string(&pack, "name", status_name(fault->status));
    pack_string(&pack, "message", fault->message);
    pack_string(&pack, "argument", fault->argument);
    pack_close(&pack);
    pack_nil(&pack, NULL);
    return message_finish(ret_message, &pack, 0);
}

int reply_encode_empty(uint32_t id, struct message *ret_message)
{
    struct pack pack;

    reply_begin(&pack, ret_message, id);
    pack_nil(&pack, NULL);
    pack_nil(&pack, NULL);
    return message_finish(ret_message, &pack, 0);
}

int reply_encode_hello(uint32_t id, const struct reply_hello *reply, struct message *ret_message)
{
    struct pack pack;

    result_begin(&pack, ret_message, id);
    pack_unsigned(&pack, "version", reply->version);
    pack_string(&pack, "daemon", reply->daemon);
    pack_unsigned(&pack, "length_max", reply->length_max);
    pack_unsigned(&pack, "in_flight_max", reply->in_flight_max);
    pack_string(&pack, "device", reply->device);
    pack_string(&pack, "device_kind", reply->device_kind);
    pack_bool(&pack, "ready", reply->ready);
    return message_finish(ret_message, &pack, 0);
}

int reply_encode_gemm(uint32_t id, const struct reply_gemm *reply, struct message *ret_message)
{
    struct pack pack;

    result_begin(&pack, ret_message, id);
    pack_string(&pack, "configuration", reply->configuration);
    pack_unsigned(&pack, "epoch", reply->epoch);
    pack_unsigned(&pack, "queued_ns", reply->queued_ns);
    pack_unsigned(&pack, "device_ns", reply->device_ns);
    pack_real(&pack, "compile_seconds", reply->compile_seconds);
    if (reply->data != NULL)
        pack_bytes(&pack, "data", reply->data, reply->size);
    return message_finish(ret_message, &pack, 0);
}

int reply_encode_cancel(uint32_t id, bool cancelled, struct message *ret_message)
{
    struct pack pack;

    result_begin(&pack, ret_message, id);
    pack_bool(&pack, "cancelled", cancelled);
    return message_finish(ret_message, &pack, 0);
}

static const char *kind_name(enum buffer_kind kind)
{
    return kind == BUFFER_DEVICE ? "device" : "host";
}

int reply_encode_buffer(uint32_t id,
                        const struct reply_buffer *reply,
                        uint16_t n_fds,
                        struct message *ret_message)
{
    struct pack pack;

    result_begin(&pack, ret_message, id);
    if (reply->kind != 0) {
        pack_unsigned(&pack, "buffer", reply->id);
        pack_unsigned(&pack, "size", reply->size);
        pack_string(&pack, "kind", kind_name(reply->kind));
        pack_bool(&pack, "writable", reply->writable);
    }
    if (reply->allocation != 0) {
        pack_unsigned(&pack, "allocation", reply->allocation);
        pack_string(&pack, "device", reply->device);
    }
    if (reply->data != NULL)
        pack_bytes(&pack, "data", reply->data, reply->data_size);
    return message_finish(ret_message, &pack, n_fds);
}

/* --- decoding: the client's side ------------------------------------------------------------- */

static enum status status_from_code(uint64_t code)
{
    switch (code) {
#define STATUS(name, number, meaning)                                                              \
    case number:                                                                                   \
        return STATUS_##name;
#include "../daemon/core/status.def"
#undef STATUS
    }
    return STATUS_INTERNAL; /* a newer daemon's: the message still says what happened */
}

static int decode_fault(const uint8_t *bytes, size_t size, struct fault *ret_fault)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    struct fault bad = FAULT_NONE, fault = FAULT_NONE;
    uint64_t code = 0;
    int r;

    r = fields_unpack(bytes, size, &unpacked);
    if (r < 0)
        return error_trace(r);
    if (unpacked.data.type == MSGPACK_OBJECT_NIL) {
        *ret_fault = FAULT_NONE;
        return 0;
    }
    if (unpacked.data.type != MSGPACK_OBJECT_MAP)
        return REPLY_E_MALFORMED;

    struct fields fields = {.map = &unpacked.data.via.map, .prefix = "", .fault = &bad};

    fields_unsigned(&fields, "code", FIELD_REQUIRED, (struct field_range){1, UINT32_MAX}, &code);
    fields_copy(&fields, "message", fault.message, sizeof(fault.message));
    fields_copy(&fields, "argument", fault.argument, sizeof(fault.argument));
    if (fields_are_refused(&fields))
        return REPLY_E_MALFORMED;
    fault.status = status_from_code(code);
    *ret_fault = fault;
    return 0;
}

/* The four parts as slices of the payload. */
static bool
split_reply(const uint8_t *payload, size_t size, const uint8_t *ret_part[4], size_t ret_size[4])
{
    size_t at = 1;

    if (size == 0 || payload[0] != 0x94) /* an array of 4; the daemon writes no longer form */
        return false;
    for (size_t i = 0; i < 4; i++) {
        ret_part[i] = payload + at;
        ret_size[i] = scan_object(payload + at, size - at);
        if (ret_size[i] == 0)
            return false;
        at += ret_size[i];
    }
    return at == size;
}

static int decode_unsigned(const uint8_t *bytes, size_t size, uint64_t most, uint64_t *ret)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    int r = fields_unpack(bytes, size, &unpacked);

    if (r < 0)
        return error_trace(r);
    if (unpacked.data.type != MSGPACK_OBJECT_POSITIVE_INTEGER || unpacked.data.via.u64 > most)
        return REPLY_E_MALFORMED;
    *ret = unpacked.data.via.u64;
    return 0;
}

static bool is_map(uint8_t tag)
{
    return (tag >= 0x80 && tag <= 0x8f) || tag == 0xde || tag == 0xdf;
}

int reply_decode(const uint8_t *payload, size_t size, struct reply *ret_reply)
{
    const uint8_t *part[4];
    size_t part_size[4];
    struct reply reply = {0};
    uint64_t type, id;
    int r;

    if (!split_reply(payload, size, part, part_size))
        return REPLY_E_MALFORMED;
    r = decode_unsigned(part[0], part_size[0], UINT32_MAX, &type);
    if (r != 0)
        return r;
    r = decode_unsigned(part[1], part_size[1], UINT32_MAX, &id);
    if (r != 0)
        return r;
    r = decode_fault(part[2], part_size[2], &reply.fault);
    if (r != 0)
        return r;
    if (type != 1 || !(is_map(part[3][0]) || part[3][0] == 0xc0))
        return REPLY_E_MALFORMED;

    reply.id = (uint32_t)id;
    if (is_map(part[3][0])) {
        reply.result = part[3];
        reply.result_size = part_size[3];
    }
    *ret_reply = reply;
    return 0;
}

/* Unpacks the result's map; the fields' fault only says whether a reading failed. */
static int
result_open(const struct reply *reply, msgpack_unpacked *unpacked, struct fields *ret_fields)
{
    int r;

    if (reply->result == NULL)
        return REPLY_E_MALFORMED;
    r = fields_unpack(reply->result, reply->result_size, unpacked);
    if (r < 0)
        return error_trace(r);
    *ret_fields->fault = FAULT_NONE;
    ret_fields->map = &unpacked->data.via.map;
    ret_fields->prefix = "";
    return 0;
}

static void read_u32(struct fields *fields, const char *name, uint32_t *ret)
{
    uint64_t value = 0;

    fields_unsigned(fields, name, FIELD_REQUIRED, (struct field_range){0, UINT32_MAX}, &value);
    *ret = (uint32_t)value;
}

static void read_u64(struct fields *fields, const char *name, enum presence presence, uint64_t *ret)
{
    fields_unsigned(fields, name, presence, (struct field_range){0, UINT64_MAX}, ret);
}

static void read_data(struct fields *fields, const void **ret_data, size_t *ret_size)
{
    msgpack_object_bin data;

    if (fields_bytes(fields, "data", &data)) {
        *ret_data = data.ptr;
        *ret_size = data.size;
    }
}

int reply_decode_hello(const struct reply *reply, struct reply_hello *ret)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    struct fault bad;
    struct fields fields = {.fault = &bad};
    struct reply_hello hello = {0};
    int r;

    r = result_open(reply, &unpacked, &fields);
    if (r != 0)
        return r;
    read_u32(&fields, "version", &hello.version);
    fields_copy(&fields, "daemon", hello.daemon, sizeof(hello.daemon));
    read_u32(&fields, "length_max", &hello.length_max);
    read_u32(&fields, "in_flight_max", &hello.in_flight_max);
    fields_copy(&fields, "device", hello.device, sizeof(hello.device));
    fields_copy(&fields, "device_kind", hello.device_kind, sizeof(hello.device_kind));
    fields_bool(&fields, "ready", FIELD_REQUIRED, &hello.ready);
    if (fields_are_refused(&fields))
        return REPLY_E_MALFORMED;
    *ret = hello;
    return 0;
}

int reply_decode_gemm(const struct reply *reply, struct reply_gemm *ret)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    struct fault bad;
    struct fields fields = {.fault = &bad};
    struct reply_gemm gemm = {0};
    int r;

    r = result_open(reply, &unpacked, &fields);
    if (r != 0)
        return r;
    fields_copy(&fields, "configuration", gemm.configuration, sizeof(gemm.configuration));
    read_u32(&fields, "epoch", &gemm.epoch);
    read_u64(&fields, "queued_ns", FIELD_REQUIRED, &gemm.queued_ns);
    read_u64(&fields, "device_ns", FIELD_REQUIRED, &gemm.device_ns);
    fields_real(&fields, "compile_seconds", FIELD_REQUIRED, &gemm.compile_seconds);
    read_data(&fields, &gemm.data, &gemm.size);
    if (fields_are_refused(&fields))
        return REPLY_E_MALFORMED;
    *ret = gemm;
    return 0;
}

int reply_decode_cancel(const struct reply *reply, bool *ret_cancelled)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    struct fault bad;
    struct fields fields = {.fault = &bad};
    bool cancelled = false;
    int r;

    r = result_open(reply, &unpacked, &fields);
    if (r != 0)
        return r;
    fields_bool(&fields, "cancelled", FIELD_REQUIRED, &cancelled);
    if (fields_are_refused(&fields))
        return REPLY_E_MALFORMED;
    *ret_cancelled = cancelled;
    return 0;
}

static void read_kind(struct fields *fields, enum buffer_kind *ret)
{
    char kind[8];

    fields_copy(fields, "kind", kind, sizeof(kind));
    if (strcmp(kind, "device") == 0)
        *ret = BUFFER_DEVICE;
    else if (strcmp(kind, "host") == 0)
        *ret = BUFFER_HOST;
}

int reply_decode_buffer(const struct reply *reply, struct reply_buffer *ret)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    struct fault bad;
    struct fields fields = {.fault = &bad};
    struct reply_buffer buffer = {0};
    int r;

    r = result_open(reply, &unpacked, &fields);
    if (r != 0)
        return r;
    read_u64(&fields, "buffer", FIELD_OPTIONAL, &buffer.id);
    read_u64(&fields, "size", FIELD_OPTIONAL, &buffer.size);
    read_kind(&fields, &buffer.kind);
    fields_bool(&fields, "writable", FIELD_OPTIONAL, &buffer.writable);
    read_u64(&fields, "allocation", FIELD_OPTIONAL, &buffer.allocation);
    fields_copy(&fields, "device", buffer.device, sizeof(buffer.device));
    read_data(&fields, &buffer.data, &buffer.data_size);
    if (fields_are_refused(&fields))
        return REPLY_E_MALFORMED;
    *ret = buffer;
    return 0;
}
