/*
 * Frame headers: explicit little-endian, so that the bytes are the same whoever writes them.
 */
#include "frame.h"

static void put_le(uint8_t *bytes, uint32_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_le(const uint8_t *bytes, size_t width)
{
    uint32_t value = 0;

    for (size_t i = 0; i < width; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

void frame_encode(uint8_t ret_bytes[FRAME_HEADER_SIZE], uint32_t length, uint16_t n_fds)
{
    put_le(ret_bytes, FRAME_MAGIC, 4);
    ret_bytes[4] = FRAME_VERSION;
    ret_bytes[5] = 0;
    put_le(ret_bytes + 6, n_fds, 2);
    put_le(ret_bytes + 8, length, 4);
    put_le(ret_bytes + 12, 0, 4);
}

int frame_decode(const uint8_t *bytes, uint32_t length_max, struct frame_header *ret_header)
{
    struct frame_header header = {
        .version = bytes[4],
        .flags = bytes[5],
        .n_fds = (uint16_t)get_le(bytes + 6, 2),
        .length = get_le(bytes + 8, 4),
    };

    if (get_le(bytes, 4) != FRAME_MAGIC)
        return FRAME_E_MAGIC;
    if (header.version != FRAME_VERSION)
        return FRAME_E_VERSION;
    if (header.flags != 0 || get_le(bytes + 12, 4) != 0)
        return FRAME_E_FLAGS;
    if (header.n_fds > FRAME_FDS_MAX)
        return FRAME_E_FDS;
    if (header.length == 0 || header.length > length_max)
        return FRAME_E_LENGTH;

    *ret_header = header;
    return 0;
}

const char *frame_error(int r)
{
    switch (r) {
    case 0:
        return "the frame header is right";
    case FRAME_E_MAGIC:
        return "the frame header does not start with \"GMMD\"";
    case FRAME_E_VERSION:
        return "the frame header's version is not 1";
    case FRAME_E_FLAGS:
        return "the frame header's flags or reserved field is not 0";
    case FRAME_E_FDS:
        return "the frame header claims more than 4 descriptors";
    case FRAME_E_LENGTH:
        return "the frame header's length is 0 or over the limit that hello gave";
    }
    return "the frame header is wrong";
}

static_assert(FRAME_FDS_MAX == 4 && FRAME_VERSION == 1, "frame_error() names both");
