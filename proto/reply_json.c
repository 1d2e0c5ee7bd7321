/*
 * A reply's result as JSON text, for people and dashboards. Always valid JSON: numbers that JSON
 * lacks become null, bytes that are no UTF-8 become U+FFFD, and the decimal point is a point
 * whatever the process's locale says.
 */
#include "../daemon/core/error.h"
#include "fields.h"
#include "reply.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the valid UTF-8 sequence at `text`, 0 when there is none. After RFC 3629's table. */
static size_t utf8_sequence(const uint8_t *text, size_t size)
{
    const uint8_t first = text[0];
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;

    if (length == 0 || length > size)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) ||
        (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static void print_text(FILE *out, const char *text, size_t size)
{
    (void)fputc('"', out);
    for (size_t i = 0, step; i < size; i += step) {
        const uint8_t byte = (uint8_t)text[i];
        const size_t length = utf8_sequence((const uint8_t *)text + i, size - i);

        step = MAX(length, (size_t)1);
        if (length == 0)
            (void)fputs("\\ufffd", out);
        else if (byte == '"' || byte == '\\')
            (void)fprintf(out, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f)
            (void)fprintf(out, "\\u%04x", byte);
        else
            (void)fwrite(text + i, 1, length, out);
    }
    (void)fputc('"', out);
}

/* Shortest of two precisions that reads back as the same number. */
static void print_real(FILE *out, double value)
{
    char text[40], *to = text;

    if (!isfinite(value)) {
        (void)fputs("null", out);
        return;
    }
    (void)snprintf(text, sizeof(text), "%.15g", value);
    if (strtod(text, NULL) != value)
        (void)snprintf(text, sizeof(text), "%.17g", value);

    /* A locale's decimal point, of one byte or more, is whatever no number is made of. */
    for (const char *from = text; *from != 0; from++) {
        if (strchr("0123456789+-e", *from) != NULL)
            *to++ = *from;
        else if (to == text || to[-1] != '.')
            *to++ = '.';
    }
    *to = 0;
    (void)fputs(text, out);
}

static void print_object(FILE *out, const msgpack_object *object);

static void print_array(FILE *out, const msgpack_object_array *array)
{
    (void)fputc('[', out);
    for (uint32_t i = 0; i < array->size; i++) {
        if (i > 0)
            (void)fputs(", ", out);
        print_object(out, &array->ptr[i]);
    }
    (void)fputc(']', out);
}

static void print_map(FILE *out, const msgpack_object_map *map)
{
    (void)fputc('{', out);
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object *key = &map->ptr[i].key;
        char described[80];

        if (i > 0)
            (void)fputs(", ", out);
        if (key->type == MSGPACK_OBJECT_STR) {
            print_text(out, key->via.str.ptr, key->via.str.size);
        } else {
            object_describe(key, described, sizeof(described));
            print_text(out, described, strlen(described));
        }
        (void)fputs(": ", out);
        print_object(out, &map->ptr[i].val);
    }
    (void)fputc('}', out);
}

/* Recursion ends at SCAN_DEPTH_MAX: the object was scanned. */
static void print_object(FILE *out, const msgpack_object *object)
{
    char described[80];

    switch (object->type) {
    case MSGPACK_OBJECT_NIL:
        (void)fputs("null", out);
        return;
    case MSGPACK_OBJECT_BOOLEAN:
        (void)fputs(object->via.boolean ? "true" : "false", out);
        return;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        (void)fprintf(out, "%" PRIu64, object->via.u64);
        return;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        (void)fprintf(out, "%" PRId64, object->via.i64);
        return;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        print_real(out, object->via.f64);
        return;
    case MSGPACK_OBJECT_STR:
        print_text(out, object->via.str.ptr, object->via.str.size);
        return;
    case MSGPACK_OBJECT_ARRAY:
        print_array(out, &object->via.array);
        return;
    case MSGPACK_OBJECT_MAP:
        print_map(out, &object->via.map);
        return;
    case MSGPACK_OBJECT_BIN:
    case MSGPACK_OBJECT_EXT:
        break;
    }
    object_describe(object, described, sizeof(described));
    print_text(out, described, strlen(described));
}

int reply_decode_json(const struct reply *reply, char **ret_json)
{
    cleanup(msgpack_unpacked_destroy) msgpack_unpacked unpacked = {0};
    char *json = NULL;
    size_t size = 0;
    FILE *out;
    int r;

    if (reply->result == NULL)
        return REPLY_E_MALFORMED;
    r = fields_unpack(reply->result, reply->result_size, &unpacked);
    if (r < 0)
        return error_trace(r);
    out = open_memstream(&json, &size);
    if (out == NULL)
        return error_origin(-ENOMEM);
    print_object(out, &unpacked.data);
    if (fclose(out) != 0) {
        free(json);
        return error_origin(-ENOMEM);
    }
    *ret_json = json;
    return 0;
}
