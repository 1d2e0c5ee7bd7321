/*
 * The frame header in front of every message, both ways: 16 bytes, little-endian.
 *
 *   0  u32  magic    "GMMD" (0x444d4d47)
 *   4  u8   version  1
 *   5  u8   flags    0; a receiver refuses others
 *   6  u16  n_fds    descriptors that travel with this frame's first byte
 *   8  u32  length   payload bytes after the header, 1 to the receiver's cap
 *  12  u32  reserved 0
 */
#pragma once

#include "../daemon/core/std.h"

#define FRAME_MAGIC       0x444d4d47u
#define FRAME_VERSION     1
#define FRAME_HEADER_SIZE 16
#define FRAME_FDS_MAX     4           /* no method needs more; far under the kernel's 253 */
#define FRAME_LENGTH_MAX  (16u << 20) /* inline operands and results; larger data goes by memfd */

struct frame_header {
    uint8_t version;
    uint8_t flags;
    uint16_t n_fds;
    uint32_t length;
};

void frame_encode(uint8_t ret_bytes[FRAME_HEADER_SIZE], uint32_t length, uint16_t n_fds);

enum {
    FRAME_E_MAGIC = 1,
    FRAME_E_VERSION,
    FRAME_E_FLAGS, /* flags or reserved not 0 */
    FRAME_E_FDS,
    FRAME_E_LENGTH,
};

/* `bytes` has FRAME_HEADER_SIZE bytes. Positive results end the connection. */
int frame_decode(const uint8_t *bytes, uint32_t length_max, struct frame_header *ret_header);
const char *frame_error(int r); /* one sentence for the log and the last message to the peer */
