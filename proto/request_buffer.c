/*
 * The fields of the buffer methods.
 */
#include "request_buffer.h"

static const struct field_range range_any = {0, UINT64_MAX};
static const struct field_range range_some = {1, UINT64_MAX};

static bool is_name(const msgpack_object_str *text)
{
    for (uint32_t i = 0; i < text->size; i++)
        if (text->ptr[i] <= 0x20 || text->ptr[i] > 0x7e || text->ptr[i] == '/')
            return false;
    return true;
}

static void
decode_name(struct fields *fields, enum presence presence, struct request_buffer *buffer)
{
    const struct field_range range = {1, BUFFER_NAME_MAX};
    msgpack_object_str name = {0};

    fields_text(fields, "name", presence, range, &name);
    if (!is_name(&name))
        fields_refuse(fields, "name", fields_find(fields, "name"),
                      "printable ASCII without space and \"/\"");
    buffer->name = name.ptr;
    buffer->name_size = name.size;
}

static void decode_kind(struct fields *fields, enum buffer_kind *ret)
{
    const msgpack_object *object = fields_find(fields, "kind");

    if (object != NULL && object->type == MSGPACK_OBJECT_STR && text_is(&object->via.str, "host"))
        *ret = BUFFER_HOST;
    else if (object != NULL && object->type == MSGPACK_OBJECT_STR &&
             text_is(&object->via.str, "device"))
        *ret = BUFFER_DEVICE;
    else
        fields_refuse(fields, "kind", object, "\"host\" or \"device\"");
}

static void decode_mode(struct fields *fields, struct request_buffer *buffer)
{
    uint64_t mode = BUFFER_MODE_DEFAULT;

    fields_unsigned(fields, "mode", FIELD_OPTIONAL, (struct field_range){0, 0777}, &mode);
    buffer->mode = (uint32_t)mode;
}

void request_decode_create(struct fields *fields, struct request *request)
{
    struct request_buffer *buffer = &request->body.buffer;

    decode_kind(fields, &buffer->kind);
    fields_unsigned(fields, "size", FIELD_REQUIRED, range_some, &buffer->size);
    decode_name(fields, FIELD_OPTIONAL, buffer);
    decode_mode(fields, buffer);
    fields_bool(fields, "exportable", FIELD_OPTIONAL, &buffer->exportable);
}

void request_decode_register(struct fields *fields, struct request *request)
{
    fields_unsigned(fields, "size", FIELD_REQUIRED, range_some, &request->body.buffer.size);
    fields_bool(fields, "writable", FIELD_OPTIONAL, &request->body.buffer.writable);
}

void request_decode_import(struct fields *fields, struct request *request)
{
    struct request_buffer *buffer = &request->body.buffer;
    msgpack_object_bin handle = {0};

    fields_unsigned(fields, "size", FIELD_REQUIRED, range_some, &buffer->size);
    fields_unsigned(fields, "offset", FIELD_OPTIONAL, range_any, &buffer->offset);
    fields_unsigned(fields, "allocation", FIELD_OPTIONAL, range_some, &buffer->allocation);
    fields_bool(fields, "writable", FIELD_OPTIONAL, &buffer->writable);
    decode_name(fields, FIELD_OPTIONAL, buffer);
    decode_mode(fields, buffer);
    if (!fields_bytes(fields, "handle", &handle))
        return;
    if (handle.size != REQUEST_HANDLE_SIZE)
        fields_refuse(fields, "handle", fields_find(fields, "handle"), "64 bytes");
    buffer->handle = (const uint8_t *)handle.ptr;
}

void request_decode_open(struct fields *fields, struct request *request)
{
    decode_name(fields, FIELD_REQUIRED, &request->body.buffer);
    fields_bool(fields, "writable", FIELD_OPTIONAL, &request->body.buffer.writable);
}

void request_decode_free(struct fields *fields, struct request *request)
{
    fields_unsigned(fields, "buffer", FIELD_REQUIRED, range_any, &request->body.buffer.id);
}

void request_decode_write(struct fields *fields, struct request *request)
{
    struct request_buffer *buffer = &request->body.buffer;
    msgpack_object_bin data = {0};

    fields_unsigned(fields, "buffer", FIELD_REQUIRED, range_any, &buffer->id);
    fields_unsigned(fields, "offset", FIELD_OPTIONAL, range_any, &buffer->offset);
    if (!fields_bytes(fields, "data", &data))
        fields_refuse(fields, "data", NULL, "binary (msgpack bin)");
    buffer->data = data.ptr;
    buffer->length = data.size;
}

void request_decode_read(struct fields *fields, struct request *request)
{
    struct request_buffer *buffer = &request->body.buffer;

    fields_unsigned(fields, "buffer", FIELD_REQUIRED, range_any, &buffer->id);
    fields_unsigned(fields, "offset", FIELD_OPTIONAL, range_any, &buffer->offset);
    fields_unsigned(fields, "length", FIELD_REQUIRED, (struct field_range){0, REQUEST_INLINE_MAX},
                    &buffer->length);
}

void request_decode_copy(struct fields *fields, struct request *request)
{
    struct request_copy *copy = &request->body.copy;

    fields_unsigned(fields, "source", FIELD_REQUIRED, range_any, &copy->source);
    fields_unsigned(fields, "source_offset", FIELD_OPTIONAL, range_any, &copy->source_offset);
    fields_unsigned(fields, "destination", FIELD_REQUIRED, range_any, &copy->destination);
    fields_unsigned(fields, "destination_offset", FIELD_OPTIONAL, range_any,
                    &copy->destination_offset);
    fields_unsigned(fields, "length", FIELD_REQUIRED, range_any, &copy->length);
}
