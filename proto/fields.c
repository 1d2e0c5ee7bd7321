#include "fields.h"

#include "../daemon/core/error.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DESCRIPTION_MAX 80
#define QUOTED_MAX      40 /* bytes of a client's text in a message */
#define ALLOWED_MAX     96

/* Integers a double holds exactly. */
#define EXACT_MAX (1ull << 53)

int fields_unpack(const uint8_t *bytes, size_t size, msgpack_unpacked *ret)
{
    size_t offset = 0;

    if (msgpack_unpack_next(ret, (const char *)bytes, size, &offset) != MSGPACK_UNPACK_SUCCESS)
        return error_origin(-ENOMEM); /* nothing else is left after the scan */
    return 0;
}

bool text_is(const msgpack_object_str *text, const char *expected)
{
    return text->size == strlen(expected) && memcmp(text->ptr, expected, text->size) == 0;
}

bool text_is_printable(const msgpack_object_str *text)
{
    for (uint32_t i = 0; i < text->size; i++)
        if (text->ptr[i] < 0x20 || text->ptr[i] > 0x7e)
            return false;
    return true;
}

static void text_describe(const msgpack_object_str *text, char *ret_text, size_t capacity)
{
    char quoted[QUOTED_MAX + 1];
    const size_t size = MIN(text->size, (size_t)QUOTED_MAX);

    for (size_t i = 0; i < size; i++)
        quoted[i] = text->ptr[i] < 0x20 || text->ptr[i] > 0x7e ? '?' : text->ptr[i];
    quoted[size] = 0;
    (void)snprintf(ret_text, capacity, "\"%s%s\"", quoted, size < text->size ? "..." : "");
}

void object_describe(const msgpack_object *object, char *ret_text, size_t capacity)
{
    switch (object->type) {
    case MSGPACK_OBJECT_NIL:
        (void)snprintf(ret_text, capacity, "nil");
        return;
    case MSGPACK_OBJECT_BOOLEAN:
        (void)snprintf(ret_text, capacity, "%s", object->via.boolean ? "true" : "false");
        return;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        (void)snprintf(ret_text, capacity, "%" PRIu64, object->via.u64);
        return;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        (void)snprintf(ret_text, capacity, "%" PRId64, object->via.i64);
        return;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        (void)snprintf(ret_text, capacity, "the float %.17g", object->via.f64);
        return;
    case MSGPACK_OBJECT_STR:
        text_describe(&object->via.str, ret_text, capacity);
        return;
    case MSGPACK_OBJECT_BIN:
        (void)snprintf(ret_text, capacity, "binary of %u bytes", object->via.bin.size);
        return;
    case MSGPACK_OBJECT_ARRAY:
        (void)snprintf(ret_text, capacity, "an array of %u", object->via.array.size);
        return;
    case MSGPACK_OBJECT_MAP:
        (void)snprintf(ret_text, capacity, "a map of %u", object->via.map.size);
        return;
    case MSGPACK_OBJECT_EXT:
        break;
    }
    (void)snprintf(ret_text, capacity, "an extension");
}

bool fields_are_refused(const struct fields *fields)
{
    return fields->fault->status != STATUS_OK;
}

static void argument_name(const struct fields *fields, const char *name, char *ret, size_t capacity)
{
    (void)snprintf(ret, capacity, "%s%s%s", fields->prefix, *fields->prefix ? "." : "", name);
}

void fields_refuse(struct fields *fields,
                   const char *name,
                   const msgpack_object *object,
                   const char *allowed)
{
    char argument[FAULT_ARGUMENT_MAX];
    char given[DESCRIPTION_MAX] = "missing";

    if (fields_are_refused(fields))
        return;
    argument_name(fields, name, argument, sizeof(argument));
    if (object != NULL)
        object_describe(object, given, sizeof(given));
    fault_set(fields->fault, STATUS_INVALID_ARGUMENT, argument, "%s is %s; allowed: %s", argument,
              given, allowed);
}

/* Every field is looked for among all, so most keys must be passed over without a call. */
static bool key_is(const msgpack_object *key, const char *name, size_t length)
{
    return key->type == MSGPACK_OBJECT_STR && key->via.str.size == length && length > 0 &&
           key->via.str.ptr[0] == name[0] && memcmp(key->via.str.ptr, name, length) == 0;
}

const msgpack_object *fields_find(struct fields *fields, const char *name)
{
    const msgpack_object *found = NULL;
    const size_t length = strlen(name);
    char argument[FAULT_ARGUMENT_MAX];

    if (fields_are_refused(fields))
        return NULL;

    for (uint32_t i = 0; i < fields->map->size; i++) {
        if (!key_is(&fields->map->ptr[i].key, name, length))
            continue;
        if (found != NULL) {
            argument_name(fields, name, argument, sizeof(argument));
            fault_set(fields->fault, STATUS_INVALID_ARGUMENT, argument,
                      "%s is given more than once; allowed: once", argument);
            return NULL;
        }
        found = &fields->map->ptr[i].val;
    }
    return found != NULL && found->type != MSGPACK_OBJECT_NIL ? found : NULL;
}

/* The value, or NULL when there is none to read; refuses a required one that is absent. */
static const msgpack_object *
field_take(struct fields *fields, const char *name, enum presence presence, const char *allowed)
{
    const msgpack_object *object = fields_find(fields, name);

    if (object == NULL && presence == FIELD_REQUIRED)
        fields_refuse(fields, name, NULL, allowed);
    return object;
}

/* Whether a field is as it may be: absent, or `fits`. What is allowed is put into words only where
 * it is not, since a request has twenty fields and is decoded in a microsecond. */
static bool is_allowed(const msgpack_object *object, enum presence presence, bool fits)
{
    return object == NULL ? presence != FIELD_REQUIRED : fits;
}

void fields_unsigned(struct fields *fields,
                     const char *name,
                     enum presence presence,
                     struct field_range range,
                     uint64_t *ret)
{
    const msgpack_object *object = fields_find(fields, name);
    bool fits = object != NULL && object->type == MSGPACK_OBJECT_POSITIVE_INTEGER &&
                object->via.u64 >= range.least && object->via.u64 <= range.most;
    char allowed[ALLOWED_MAX];

    if (fits)
        *ret = object->via.u64;
    if (is_allowed(object, presence, fits))
        return;
    (void)snprintf(allowed, sizeof(allowed), "an integer from %" PRIu64 " to %" PRIu64, range.least,
                   range.most);
    fields_refuse(fields, name, object, allowed);
}

static bool integer_as_signed(const msgpack_object *object, int64_t *ret)
{
    *ret = object->via.i64; /* of a positive one the same bits */
    return object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER ||
           (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= INT64_MAX);
}

void fields_signed(struct fields *fields,
                   const char *name,
                   enum presence presence,
                   int64_t least,
                   int64_t most,
                   int64_t *ret)
{
    const msgpack_object *object = fields_find(fields, name);
    int64_t value = 0;
    bool fits =
        object != NULL && integer_as_signed(object, &value) && value >= least && value <= most;
    char allowed[ALLOWED_MAX];

    if (fits)
        *ret = value;
    if (is_allowed(object, presence, fits))
        return;
    (void)snprintf(allowed, sizeof(allowed), "an integer from %" PRId64 " to %" PRId64, least,
                   most);
    fields_refuse(fields, name, object, allowed);
}

static bool integer_as_real(const msgpack_object *object, double *ret)
{
    if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= EXACT_MAX) {
        *ret = (double)object->via.u64;
        return true;
    }
    if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER && object->via.i64 >= -(int64_t)EXACT_MAX) {
        *ret = (double)object->via.i64;
        return true;
    }
    return false;
}

void fields_real(struct fields *fields, const char *name, enum presence presence, double *ret)
{
    const char *allowed = "a float, or an integer of at most 2^53";
    const msgpack_object *object = field_take(fields, name, presence, allowed);

    if (object == NULL)
        return;
    if (object->type == MSGPACK_OBJECT_FLOAT32 || object->type == MSGPACK_OBJECT_FLOAT64)
        *ret = object->via.f64;
    else if (!integer_as_real(object, ret))
        fields_refuse(fields, name, object, allowed);
}

void fields_bool(struct fields *fields, const char *name, enum presence presence, bool *ret)
{
    const char *allowed = "true or false";
    const msgpack_object *object = field_take(fields, name, presence, allowed);

    if (object == NULL)
        return;
    if (object->type == MSGPACK_OBJECT_BOOLEAN)
        *ret = object->via.boolean;
    else
        fields_refuse(fields, name, object, allowed);
}

void fields_text(struct fields *fields,
                 const char *name,
                 enum presence presence,
                 struct field_range bytes,
                 msgpack_object_str *ret)
{
    const msgpack_object *object = fields_find(fields, name);
    bool fits = object != NULL && object->type == MSGPACK_OBJECT_STR &&
                object->via.str.size >= bytes.least && object->via.str.size <= bytes.most;
    char allowed[ALLOWED_MAX];

    if (fits)
        *ret = object->via.str;
    if (is_allowed(object, presence, fits))
        return;
    (void)snprintf(allowed, sizeof(allowed), "a string of %" PRIu64 " to %" PRIu64 " bytes",
                   bytes.least, bytes.most);
    fields_refuse(fields, name, object, allowed);
}

bool fields_bytes(struct fields *fields, const char *name, msgpack_object_bin *ret)
{
    const msgpack_object *object = fields_find(fields, name);

    if (object == NULL)
        return false;
    if (object->type != MSGPACK_OBJECT_BIN) {
        fields_refuse(fields, name, object, "binary (msgpack bin)");
        return false;
    }
    *ret = object->via.bin;
    return true;
}

void fields_copy(struct fields *fields, const char *name, char *ret_text, size_t capacity)
{
    msgpack_object_str text = {0};
    const struct field_range any = {0, UINT32_MAX};
    size_t size;

    fields_text(fields, name, FIELD_OPTIONAL, any, &text);
    size = MIN((size_t)text.size, capacity - 1);
    if (size > 0)
        memcpy(ret_text, text.ptr, size);
    ret_text[size] = 0;
}
