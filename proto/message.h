/*
 * Writing of frames, for request and reply: a growing buffer, and maps and arrays whose counts are
 * set as their values come. Inside proto/ only.
 *
 * Failure is remembered, not returned, so that an encoder reads as a list of its fields; the end,
 * message_finish(), tells.
 */
#pragma once

#include "request.h"
#include "scan.h"
#include <msgpack/pack.h>

struct pack {
    struct message *message;
    msgpack_packer packer;
    int error;      /* 0, or the first failure */
    unsigned depth; /* open containers */

    struct {
        size_t at; /* of the header byte */
        uint32_t count;
        bool is_map;
    } open[SCAN_DEPTH_MAX];
};

void pack_init(struct pack *pack, struct message *message);
/* `name` is NULL in arrays. */
void pack_open_map(struct pack *pack, const char *name);
void pack_open_array(struct pack *pack, const char *name);
void pack_close(struct pack *pack);
void pack_nil(struct pack *pack, const char *name);
void pack_bool(struct pack *pack, const char *name, bool value);
void pack_unsigned(struct pack *pack, const char *name, uint64_t value);
void pack_signed(struct pack *pack, const char *name, int64_t value);
void pack_real(struct pack *pack, const char *name, double value);
void pack_text(struct pack *pack, const char *name, const char *text, size_t size);
void pack_string(struct pack *pack, const char *name, const char *text);
void pack_bytes(struct pack *pack, const char *name, const void *bytes, size_t size);
/* One more value, encoded elsewhere. */
void pack_encoded(struct pack *pack, const uint8_t *bytes, size_t size);

/* Leaves room for the header; the payload follows. */
void message_begin(struct message *message, struct pack *ret_pack);
/* Closes what is open and writes the header. On failure the message is empty again: -ENOMEM, or
 * -EMSGSIZE when the payload is over FRAME_LENGTH_MAX. */
int message_finish(struct message *message, struct pack *pack, uint16_t n_fds);
