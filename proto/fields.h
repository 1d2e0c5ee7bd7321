/*
 * Reading of msgpack maps by field name, with faults that say which argument, what was given and
 * what is allowed. Inside proto/ only.
 *
 * Keys are compared byte for byte; keys that nobody asks for, of whatever type, are ignored; nil
 * counts as absent; a field given twice is refused, since two readers could disagree about it. The
 * first fault of a map stays, later reads of it do nothing, so that a decoder reads as a list of
 * its fields.
 */
#pragma once

#include "../daemon/core/status.h"
#include "../daemon/core/std.h"
#include <msgpack/unpack.h>

struct fields {
    const msgpack_object_map *map;
    const char *prefix;  /* of argument names: "" or "a" */
    struct fault *fault; /* STATUS_OK until something is refused */
};

enum presence {
    FIELD_OPTIONAL, /* absent: the output keeps what it has */
    FIELD_REQUIRED,
};

struct field_range {
    uint64_t least, most;
};

/* Unpacks what scan.h accepted. The zone dies with `ret`: cleanup(msgpack_unpacked_destroy).
 * Strings and bytes of the objects point into `bytes`. */
int fields_unpack(const uint8_t *bytes, size_t size, msgpack_unpacked *ret);

const msgpack_object *fields_find(struct fields *fields, const char *name);
bool fields_are_refused(const struct fields *fields);
/* `object` NULL: "is missing". `allowed` completes "allowed: ...". */
void fields_refuse(struct fields *fields,
                   const char *name,
                   const msgpack_object *object,
                   const char *allowed);

void fields_unsigned(struct fields *fields,
                     const char *name,
                     enum presence presence,
                     struct field_range range,
                     uint64_t *ret);
void fields_signed(struct fields *fields,
                   const char *name,
                   enum presence presence,
                   int64_t least,
                   int64_t most,
                   int64_t *ret);
void fields_real(struct fields *fields, const char *name, enum presence presence, double *ret);
void fields_bool(struct fields *fields, const char *name, enum presence presence, bool *ret);
/* Of `least` to `most` bytes, which may be anything, zeros included. */
void fields_text(struct fields *fields,
                 const char *name,
                 enum presence presence,
                 struct field_range bytes,
                 msgpack_object_str *ret);
/* True when present and binary. */
bool fields_bytes(struct fields *fields, const char *name, msgpack_object_bin *ret);
/* Copies a text without zeros into an array, cut at its end. */
void fields_copy(struct fields *fields, const char *name, char *ret_text, size_t capacity);

bool text_is(const msgpack_object_str *text, const char *expected);
bool text_is_printable(const msgpack_object_str *text); /* ASCII, 0x20 to 0x7e */
/* What was given, for a message: types by name, texts quoted, cut and without control bytes. */
void object_describe(const msgpack_object *object, char *ret_text, size_t capacity);
