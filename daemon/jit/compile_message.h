/*
 * What the front and a compile child say to each other, over a stream socket, in the byte order of
 * the machine they share. Each message is a header and a body of fixed size; a result's body is
 * followed by the cubin.
 *
 *   child -> front   HELLO     once, first: which compiler it found, or why none
 *   front -> child   REQUEST   one at a time
 *   child -> front   RESULT    the answer to it
 *
 * The child exits with 0 at the end of file. Both ends are the same program, but its file may have
 * been replaced between their starts, and NVRTC's too: the protocol number guards the one, and the
 * key in the request the other. The child computes the key itself and refuses a request whose key
 * differs, so that no cubin is ever stored under the key of another.
 */
#pragma once

#include "../core/status.h"
#include "../core/std.h"
#include "cubin_file.h"
#include "key.h"

#define COMPILE_MAGIC    0x636d6d67u /* "gmmc" */
#define COMPILE_PROTOCOL 1u

enum compile_message_kind {
    COMPILE_HELLO = 1,
    COMPILE_REQUEST,
    COMPILE_RESULT,
};

struct compile_header {
    uint32_t magic;
    uint32_t kind;
    uint64_t size; /* bytes that follow */
};

struct compile_hello {
    uint32_t protocol; /* keeps its place in all versions */
    uint32_t has_nvrtc;
    struct compiler_identity identity; /* zero without NVRTC */
    struct fault fault;                /* why there is none */
};

struct compile_request {
    struct key key;
    char configuration[CONFIG_TEXT_MAX];
};

struct compile_result {
    struct key key;
    struct fault fault; /* STATUS_OK, or why there is no cubin */
    uint32_t registers, shared_memory, spill_bytes, reserved;
    double compile_seconds;
    uint64_t cubin_size; /* bytes after this; 0 with a fault */
};

#define COMPILE_BODY_MAX (sizeof(struct compile_result) + CUBIN_BYTES_MAX)
