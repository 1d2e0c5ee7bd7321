#include "message.h"

#include "../daemon/core/error.h"
#include "frame.h"
#include <stdlib.h>
#include <string.h>

#define MESSAGE_CAPACITY_FIRST 512 /* a gemm on buffers fits */

/* What one byte of header can count: fixmap and fixarray. */
#define FIX_COUNT_MAX 15

void message_deinit(struct message *message)
{
    free(message->bytes);
    *message = MESSAGE_NULL;
}

static int message_reserve(struct message *message, size_t more)
{
    size_t needed, capacity;
    uint8_t *bytes;

    if (__builtin_add_overflow(message->size, more, &needed))
        return -ENOMEM;
    if (needed <= message->capacity)
        return 0;

    capacity = MAX(needed, MAX(message->capacity * 2, (size_t)MESSAGE_CAPACITY_FIRST));
    bytes = realloc(message->bytes, capacity);
    if (bytes == NULL)
        return -ENOMEM;
    message->bytes = bytes;
    message->capacity = capacity;
    return 0;
}

static int message_append(void *data, const char *bytes, size_t size)
{
    struct message *message = data;

    if (message_reserve(message, size) < 0)
        return -1;
    if (size > 0)
        memcpy(message->bytes + message->size, bytes, size);
    message->size += size;
    return 0;
}

void pack_init(struct pack *pack, struct message *message)
{
    *pack = (struct pack){.message = message};
    msgpack_packer_init(&pack->packer, message, message_append);
}

static void pack_note(struct pack *pack, int r)
{
    if (r != 0 && pack->error == 0)
        pack->error = -ENOMEM;
}

/* The sixteenth value no longer fits the one-byte header: makes it a three-byte one. Only the
 * innermost container grows, so no other position moves. */
static void pack_widen(struct pack *pack)
{
    const size_t at = pack->open[pack->depth - 1].at;
    struct message *message = pack->message;

    pack_note(pack, message_append(message, (const char[2]){0}, 2));
    if (pack->error == 0)
        memmove(message->bytes + at + 3, message->bytes + at + 1, message->size - at - 3);
}

/* Counts a value in its container and writes its key. */
static void pack_name(struct pack *pack, const char *name)
{
    if (pack->depth > 0) {
        uint32_t *count = &pack->open[pack->depth - 1].count;

        assert(pack->open[pack->depth - 1].is_map == (name != NULL));
        if (++*count == FIX_COUNT_MAX + 1)
            pack_widen(pack);
        if (*count > UINT16_MAX && pack->error == 0)
            pack->error = -EMSGSIZE;
    }
    if (name != NULL)
        pack_note(pack, msgpack_pack_str_with_body(&pack->packer, name, strlen(name)));
}

static void pack_open(struct pack *pack, const char *name, bool is_map)
{
    pack_name(pack, name);
    assert(pack->depth < SCAN_DEPTH_MAX);
    pack->open[pack->depth].at = pack->message->size;
    pack->open[pack->depth].count = 0;
    pack->open[pack->depth].is_map = is_map;
    pack->depth++;
    pack_note(pack, message_append(pack->message, "", 1));
}

void pack_open_map(struct pack *pack, const char *name)
{
    pack_open(pack, name, true);
}

void pack_open_array(struct pack *pack, const char *name)
{
    pack_open(pack, name, false);
}

void pack_close(struct pack *pack)
{
    assert(pack->depth > 0);
    pack->depth--;
    if (pack->error != 0)
        return;

    uint8_t *header = pack->message->bytes + pack->open[pack->depth].at;
    const uint32_t count = pack->open[pack->depth].count;
    const bool is_map = pack->open[pack->depth].is_map;

    if (count <= FIX_COUNT_MAX) {
        header[0] = (uint8_t)((is_map ? 0x80u : 0x90u) | count);
    } else {
        header[0] = is_map ? 0xde : 0xdc;
        header[1] = (uint8_t)(count >> 8);
        header[2] = (uint8_t)count;
    }
}

void pack_nil(struct pack *pack, const char *name)
{
    pack_name(pack, name);
    pack_note(pack, msgpack_pack_nil(&pack->packer));
}

void pack_bool(struct pack *pack, const char *name, bool value)
{
    pack_name(pack, name);
    pack_note(pack, value ? msgpack_pack_true(&pack->packer) : msgpack_pack_false(&pack->packer));
}

void pack_unsigned(struct pack *pack, const char *name, uint64_t value)
{
    pack_name(pack, name);
    pack_note(pack, msgpack_pack_uint64(&pack->packer, value));
}

void pack_signed(struct pack *pack, const char *name, int64_t value)
{
    pack_name(pack, name);
    pack_note(pack, msgpack_pack_int64(&pack->packer, value));
}

void pack_real(struct pack *pack, const char *name, double value)
{
    pack_name(pack, name);
    pack_note(pack, msgpack_pack_double(&pack->packer, value));
}

void pack_text(struct pack *pack, const char *name, const char *text, size_t size)
{
    pack_name(pack, name);
    pack_note(pack, msgpack_pack_str_with_body(&pack->packer, text, size));
}

void pack_string(struct pack *pack, const char *name, const char *text)
{
    pack_text(pack, name, text, strlen(text));
}

void pack_bytes(struct pack *pack, const char *name, const void *bytes, size_t size)
{
    pack_name(pack, name);
    pack_note(pack, msgpack_pack_bin_with_body(&pack->packer, bytes, size));
}

void pack_encoded(struct pack *pack, const uint8_t *bytes, size_t size)
{
    pack_name(pack, NULL);
    pack_note(pack, message_append(pack->message, (const char *)bytes, size));
}

void message_begin(struct message *message, struct pack *ret_pack)
{
    assert(message->size == 0);
    pack_init(ret_pack, message);
    pack_note(ret_pack,
              message_append(message, (const char[FRAME_HEADER_SIZE]){0}, FRAME_HEADER_SIZE));
}

int message_finish(struct message *message, struct pack *pack, uint16_t n_fds)
{
    while (pack->depth > 0)
        pack_close(pack);

    if (pack->error == 0 && message->size - FRAME_HEADER_SIZE > FRAME_LENGTH_MAX)
        pack->error = -EMSGSIZE;
    if (pack->error != 0) {
        message_deinit(message);
        return error_origin(pack->error);
    }
    frame_encode(message->bytes, (uint32_t)(message->size - FRAME_HEADER_SIZE), n_fds);
    return 0;
}
