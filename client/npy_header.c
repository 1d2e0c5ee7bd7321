/*
 * The header of a .npy file, text to struct and back. Pure: no files, no allocation.
 *
 *   "\x93NUMPY" major minor  u16 (version 1) or u32 (2, 3) length  header, padded with spaces to
 *   a multiple of 64 and ended by a newline, such as
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * Keys may come in any order; anything else than these three, each once, is refused.
 */
#include "npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC      "\x93NUMPY"
#define MAGIC_SIZE 6

struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end && memchr(" \t\n\r", *cursor->at, 4))
        cursor->at++;
}

/* Takes one character when it is next. */
static bool take(struct cursor *cursor, char wanted)
{
    skip_space(cursor);
    if (cursor->at == cursor->end || *cursor->at != wanted)
        return false;
    cursor->at++;
    return true;
}

static bool take_word(struct cursor *cursor, const char *word)
{
    size_t length = strlen(word);

    skip_space(cursor);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, word, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

/* A quoted string without escapes; NumPy writes none. */
static bool take_string(struct cursor *cursor, char *ret_text, size_t size)
{
    char quote = take(cursor, '\'') ? '\'' : '"';
    const char *start, *close;

    if (quote == '"' && !take(cursor, '"'))
        return false;
    start = cursor->at;
    close = memchr(start, quote, (size_t)(cursor->end - start));
    if (!close || (size_t)(close - start) >= size || memchr(start, '\\', (size_t)(close - start)))
        return false;
    memcpy(ret_text, start, (size_t)(close - start));
    ret_text[close - start] = '\0';
    cursor->at = close + 1;
    return true;
}

static bool take_size(struct cursor *cursor, int64_t *ret_size)
{
    int64_t value = 0;
    bool any = false;

    skip_space(cursor);
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *cursor->at - '0', &value))
            return false;
        any = true;
    }
    (void)take_word(cursor, "L"); /* Python 2's long integers */
    *ret_size = value;
    return any;
}

/* "()", "(3,)", "(3, 4)" and "(3, 4,)". */
static bool take_shape(struct cursor *cursor, struct npy *npy)
{
    if (!take(cursor, '('))
        return false;
    for (npy->ndim = 0; !take(cursor, ')'); npy->ndim++) {
        if (npy->ndim == NPY_DIMENSIONS_MAX || !take_size(cursor, &npy->shape[npy->ndim]))
            return false;
        if (take(cursor, ','))
            continue;
        npy->ndim++;
        return npy->ndim > 1 && take(cursor, ')');
    }
    return true;
}

static bool take_truth(struct cursor *cursor, bool *ret_truth)
{
    *ret_truth = take_word(cursor, "True");
    return *ret_truth || take_word(cursor, "False");
}

enum { SEEN_DESCR = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4, SEEN_ALL = 7 };

/* One "key: value"; 0 when it is none of the three or not of the right form. */
static unsigned take_entry(struct cursor *cursor, struct npy *npy)
{
    char key[16];

    if (!take_string(cursor, key, sizeof(key)) || !take(cursor, ':'))
        return 0;
    if (strcmp(key, "descr") == 0)
        return take_string(cursor, npy->descr, sizeof(npy->descr)) ? SEEN_DESCR : 0;
    if (strcmp(key, "fortran_order") == 0)
        return take_truth(cursor, &npy->fortran) ? SEEN_ORDER : 0;
    if (strcmp(key, "shape") == 0)
        return take_shape(cursor, npy) ? SEEN_SHAPE : 0;
    return 0;
}

static bool take_dictionary(struct cursor *cursor, struct npy *npy)
{
    unsigned seen = 0;

    if (!take(cursor, '{'))
        return false;
    while (!take(cursor, '}')) {
        unsigned entry = take_entry(cursor, npy);

        if (entry == 0 || seen & entry)
            return false;
        seen |= entry;
        if (!take(cursor, ',') && !(cursor->at < cursor->end && *cursor->at == '}'))
            return false;
    }
    skip_space(cursor);
    return seen == SEEN_ALL && cursor->at == cursor->end;
}

static int refuse(struct fault *ret_fault, const char *message)
{
    fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "", "%s", message);
    return NPY_E_REFUSED;
}

/* The element type and its size in the file. */
static int read_descr(struct npy *npy, size_t *ret_size, struct fault *ret_fault)
{
    static const struct {
        const char *descr;
        enum dtype dtype;
    } known[] = {
        {"<f2", DTYPE_FP16},      {"<f4", DTYPE_FP32},  {"<f8", DTYPE_FP64}, {"|i1", DTYPE_INT8},
        {"<i1", DTYPE_INT8},      {"<i4", DTYPE_INT32}, {"<V2", DTYPE_BF16}, {"|V2", DTYPE_BF16},
        {"bfloat16", DTYPE_BF16}, {"<u2", DTYPE_NONE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strcmp(npy->descr, known[i].descr) == 0) {
            npy->dtype = known[i].dtype;
            *ret_size = npy->dtype == DTYPE_NONE ? 2 : dtype_size(npy->dtype);
            return 0;
        }
    }
    if (npy->descr[0] == '>')
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "",
                  "its elements are big-endian ('%s'); only little-endian ones are read: save "
                  "array.astype('<%s')",
                  npy->descr, npy->descr + 1);
    else
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "",
                  "its element type is '%s'; known are <f2, <f4, <f8, |i1, <i4 and <V2 (bf16)",
                  npy->descr);
    return NPY_E_REFUSED;
}

static int count_bytes(struct npy *npy, size_t element, struct fault *ret_fault)
{
    uint64_t bytes = element;
    bool is_empty = false;

    for (int i = 0; i < npy->ndim; i++)
        is_empty |= npy->shape[i] == 0;
    for (int i = 0; i < npy->ndim && !is_empty; i++) {
        if (mul_overflows(bytes, (uint64_t)npy->shape[i], &bytes) || bytes > INT64_MAX)
            return refuse(ret_fault, "its shape has more elements than 64-bit sizes can count");
    }
    npy->size = is_empty ? 0 : (size_t)bytes;
    return 0;
}

/* Where the header text lies: [*ret_start, *ret_end). */
static int find_text(
    const uint8_t *bytes, size_t size, size_t *ret_start, size_t *ret_end, struct fault *ret_fault)
{
    size_t start, length;

    if (size < MAGIC_SIZE + 4 || memcmp(bytes, MAGIC, MAGIC_SIZE) != 0)
        return refuse(ret_fault, "it is not a .npy file: the first bytes are not \\x93NUMPY");
    if (bytes[6] < 1 || bytes[6] > 3) {
        fault_set(ret_fault, STATUS_UNSUPPORTED, "",
                  "its format version is %u.%u; versions 1, 2 and 3 are read", bytes[6], bytes[7]);
        return NPY_E_REFUSED;
    }
    start = bytes[6] == 1 ? 10 : 12;
    length = bytes[8] | (size_t)bytes[9] << 8;
    if (start == 12 && size >= 12)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > NPY_HEADER_MAX) {
        fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "",
                  "its header claims %zu bytes; at most %d are read", length, NPY_HEADER_MAX);
        return NPY_E_REFUSED;
    }
    if (size < start + length)
        return refuse(ret_fault, "it ends inside its header");
    *ret_start = start;
    *ret_end = start + length;
    return 0;
}

int npy_header_parse(const uint8_t *bytes,
                     size_t size,
                     struct npy *ret_npy,
                     size_t *ret_offset,
                     struct fault *ret_fault)
{
    struct npy npy = NPY_NULL;
    struct cursor cursor;
    size_t start, end, element;
    int r;

    r = find_text(bytes, size, &start, &end, ret_fault);
    if (r)
        return r;
    cursor = (struct cursor){(const char *)bytes + start, (const char *)bytes + end};
    if (!take_dictionary(&cursor, &npy))
        return refuse(ret_fault, "its header is not {'descr': '<f4', 'fortran_order': False, "
                                 "'shape': (3, 4)} with another plain type and shape of at most 8 "
                                 "dimensions");
    r = read_descr(&npy, &element, ret_fault);
    if (r == 0)
        r = count_bytes(&npy, element, ret_fault);
    if (r)
        return r;

    npy.fortran = npy.fortran && npy.ndim > 1;
    *ret_npy = npy;
    *ret_offset = end;
    return 0;
}

static const char *descr_of(enum dtype dtype)
{
    static const char *const descr[DTYPE_COUNT] = {
        [DTYPE_NONE] = "<u2", [DTYPE_BF16] = "<V2", [DTYPE_FP16] = "<f2",  [DTYPE_FP32] = "<f4",
        [DTYPE_FP64] = "<f8", [DTYPE_INT8] = "|i1", [DTYPE_INT32] = "<i4",
    };

    return descr[dtype];
}

void npy_shape_text(const struct npy *npy, char *ret_text, size_t size)
{
    size_t used = (size_t)snprintf(ret_text, size, "(");

    for (int i = 0; i < npy->ndim && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s%" PRId64, i ? ", " : "",
                                 npy->shape[i]);
    if (used < size)
        (void)snprintf(ret_text + used, size - used, npy->ndim == 1 ? ",)" : ")");
}

size_t npy_header_format(const struct npy *npy, uint8_t ret_bytes[NPY_HEADER_WRITE_MAX])
{
    char shape[NPY_DIMENSIONS_MAX * 22 + 4], text[NPY_HEADER_WRITE_MAX];
    size_t length, total;

    npy_shape_text(npy, shape, sizeof(shape));
    length =
        (size_t)snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                         descr_of(npy->dtype), npy->fortran ? "True" : "False", shape);
    total = (10 + length + 1 + 63) / 64 * 64;
    assert(total <= NPY_HEADER_WRITE_MAX);

    memset(ret_bytes, ' ', total);
    memcpy(ret_bytes, MAGIC "\x01", MAGIC_SIZE + 2); /* version 1.0 */
    ret_bytes[8] = (uint8_t)((total - 10) & 0xff);
    ret_bytes[9] = (uint8_t)((total - 10) >> 8);
    memcpy(ret_bytes + 10, text, length);
    ret_bytes[total - 1] = '\n';
    return total;
}
