/*
 * Requests as a stranger would write them: msgpack from fields in a few characters.
 */
#pragma once

#include "../../proto/request.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

struct wire {
    msgpack_sbuffer bytes;
    msgpack_packer packer;
};

static void wire_start(struct wire *wire, const char *method, size_t n_fields)
{
    msgpack_sbuffer_init(&wire->bytes);
    msgpack_packer_init(&wire->packer, &wire->bytes, msgpack_sbuffer_write);
    msgpack_pack_array(&wire->packer, 4);
    msgpack_pack_int(&wire->packer, 0);
    msgpack_pack_int(&wire->packer, 7);
    msgpack_pack_str_with_body(&wire->packer, method, strlen(method));
    msgpack_pack_array(&wire->packer, 1);
    msgpack_pack_map(&wire->packer, n_fields);
}

static void wire_text(struct wire *wire, const char *text)
{
    msgpack_pack_str_with_body(&wire->packer, text, strlen(text));
}

/*
 * Values in a few characters: "i-5" integer, "u18446744073709551615", "f1.5", "sfp32", "b0011" (hex
 * bytes), "t", "n" (false), "0" (nil), "[" (empty array), "{" (empty map).
 */
static void wire_value(struct wire *wire, const char *value)
{
    uint8_t bytes[64];
    size_t size = 0;

    switch (value[0]) {
    case 'i':
        msgpack_pack_int64(&wire->packer, strtoll(value + 1, NULL, 0));
        return;
    case 'u':
        msgpack_pack_uint64(&wire->packer, strtoull(value + 1, NULL, 0));
        return;
    case 'f':
        msgpack_pack_double(&wire->packer, strtod(value + 1, NULL));
        return;
    case 's':
        wire_text(wire, value + 1);
        return;
    case 'b':
        for (const char *at = value + 1; *at != 0; at += 2)
            bytes[size++] = (uint8_t)strtoul((char[]){at[0], at[1], 0}, NULL, 16);
        msgpack_pack_bin_with_body(&wire->packer, bytes, size);
        return;
    case 't':
        msgpack_pack_true(&wire->packer);
        return;
    case 'n':
        msgpack_pack_false(&wire->packer);
        return;
    case '[':
        msgpack_pack_array(&wire->packer, 0);
        return;
    case '{':
        msgpack_pack_map(&wire->packer, 0);
        return;
    default:
        msgpack_pack_nil(&wire->packer);
        return;
    }
}

struct field {
    const char *name, *value;
};

/* Fields named "a.buffer" become a map in "a"; they must stand together. */
static size_t field_group(const struct field *fields, size_t n, size_t at)
{
    const char *dot = strchr(fields[at].name, '.');
    size_t end = at + 1;

    if (dot == NULL)
        return 1;
    while (end < n && strncmp(fields[end].name, fields[at].name, dot - fields[at].name + 1) == 0)
        end++;
    return end - at;
}

static void wire_fields(struct wire *wire, const char *method, const struct field *fields, size_t n)
{
    size_t groups = 0;

    for (size_t at = 0; at < n; at += field_group(fields, n, at))
        groups++;
    wire_start(wire, method, groups);
    for (size_t at = 0, count; at < n; at += count) {
        const char *dot = strchr(fields[at].name, '.');

        count = field_group(fields, n, at);
        if (dot == NULL) {
            wire_text(wire, fields[at].name);
            wire_value(wire, fields[at].value);
            continue;
        }
        msgpack_pack_str_with_body(&wire->packer, fields[at].name, dot - fields[at].name);
        msgpack_pack_map(&wire->packer, count);
        for (size_t i = at; i < at + count; i++) {
            wire_text(wire, fields[i].name + (dot - fields[at].name) + 1);
            wire_value(wire, fields[i].value);
        }
    }
}

static int wire_decode(const struct wire *wire, struct request *ret, struct fault *ret_fault)
{
    return request_decode((const uint8_t *)wire->bytes.data, wire->bytes.size, ret, ret_fault);
}

#define FIELDS(...)                                                                                \
    (const struct field[]){__VA_ARGS__},                                                           \
        sizeof((struct field[]){__VA_ARGS__}) / sizeof(struct field)
