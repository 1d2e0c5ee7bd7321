#include "scan.h"

struct token {
    size_t size;    /* tag, length field and body; a container's values are not part of it */
    uint64_t items; /* values that follow in a container; a map's keys count */
    bool is_container;
};

static uint64_t get_be(const uint8_t *bytes, size_t width)
{
    uint64_t value = 0;

    for (size_t i = 0; i < width; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* Width of the big-endian length behind a tag of the 0xc0 row and up; 0 when it has none. */
static size_t length_width(uint8_t tag)
{
    switch (tag) {
    case 0xc4: /* bin 8 */
    case 0xd9: /* str 8 */
        return 1;
    case 0xc5: /* bin 16 */
    case 0xda: /* str 16 */
    case 0xdc: /* array 16 */
    case 0xde: /* map 16 */
        return 2;
    case 0xc6: /* bin 32 */
    case 0xdb: /* str 32 */
    case 0xdd: /* array 32 */
    case 0xdf: /* map 32 */
        return 4;
    }
    return 0;
}

/* Bytes behind the tag of a value of fixed size; -1 for a tag that may not occur. */
static int fixed_width(uint8_t tag)
{
    switch (tag) {
    case 0xc0: /* nil */
    case 0xc2: /* false */
    case 0xc3: /* true */
        return 0;
    case 0xcc: /* uint 8 */
    case 0xd0: /* int 8 */
        return 1;
    case 0xcd:
    case 0xd1:
        return 2;
    case 0xca: /* float 32 */
    case 0xce:
    case 0xd2:
        return 4;
    case 0xcb: /* float 64 */
    case 0xcf:
    case 0xd3:
        return 8;
    }
    return -1; /* 0xc1 is never used; the rest are extensions */
}

/* Splits a tag that carries its own small value or length. */
static bool token_is_short(uint8_t tag, struct token *ret_token)
{
    if (tag <= 0x7f || tag >= 0xe0)
        *ret_token = (struct token){.size = 1};
    else if (tag <= 0x8f)
        *ret_token = (struct token){.size = 1, .items = 2 * (tag & 15u), .is_container = true};
    else if (tag <= 0x9f)
        *ret_token = (struct token){.size = 1, .items = tag & 15u, .is_container = true};
    else if (tag <= 0xbf)
        *ret_token = (struct token){.size = 1 + (tag & 31u)};
    else
        return false;
    return true;
}

static bool token_is_long(const uint8_t *bytes, size_t size, struct token *ret_token)
{
    const uint8_t tag = bytes[0];
    const size_t width = length_width(tag);
    int fixed;
    uint64_t length;

    if (width == 0) {
        fixed = fixed_width(tag);
        *ret_token = (struct token){.size = 1 + (size_t)MAX(fixed, 0)};
        return fixed >= 0;
    }
    if (size < 1 + width)
        return false;

    length = get_be(bytes + 1, width);
    if (tag >= 0xdc)
        *ret_token = (struct token){
            .size = 1 + width,
            .items = tag >= 0xde ? 2 * length : length,
            .is_container = true,
        };
    else
        *ret_token = (struct token){.size = 1 + width + length};
    return true;
}

static bool token_read(const uint8_t *bytes, size_t size, struct token *ret_token)
{
    if (size == 0)
        return false;
    if (!token_is_short(bytes[0], ret_token) && !token_is_long(bytes, size, ret_token))
        return false;
    /* Every value is at least one byte, so a count over what is left is a lie. */
    return ret_token->size <= size && ret_token->items <= size - ret_token->size;
}

static size_t scan(const uint8_t *bytes, size_t size, uint64_t values_max)
{
    uint64_t missing[SCAN_DEPTH_MAX]; /* values still to come, per open container */
    unsigned depth = 0;
    size_t at = 0;
    struct token token;

    do {
        if (values_max-- == 0 || !token_read(bytes + at, size - at, &token))
            return 0;
        at += token.size;
        if (depth > 0)
            missing[depth - 1]--;
        if (token.is_container) {
            if (depth == SCAN_DEPTH_MAX)
                return 0;
            missing[depth++] = token.items;
        }
        while (depth > 0 && missing[depth - 1] == 0)
            depth--;
    } while (depth > 0);

    return at;
}

bool scan_message(const uint8_t *bytes, size_t size)
{
    return size > 0 && scan(bytes, size, SCAN_VALUES_MAX) == size;
}

size_t scan_object(const uint8_t *bytes, size_t size)
{
    return scan(bytes, size, UINT64_MAX);
}
