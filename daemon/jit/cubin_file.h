/*
 * The bytes of a cache entry's file: a fixed header, then the cubin to the end of the file.
 *
 * The header carries its own key and hash and the payload's size and hash, so that an entry that
 * was cut, altered, renamed or written by another version is told before it reaches a driver.
 * Numbers are in the byte order of the machine: a cache does not travel to one of another order,
 * and if it does the magic number of `version` is wrong there.
 */
#pragma once

#include "../core/std.h"
#include "cache.h"

#define CUBIN_FILE_VERSION 1
#define CUBIN_BYTES_MAX    (16u << 20) /* a hundred times the largest kernel of ours */

struct cubin_file_header {
    char magic[8];
    uint32_t version;
    uint32_t header_size;
    uint8_t key[16];
    uint64_t size; /* of the cubin */
    uint64_t hash; /* XXH3-64 of the cubin */
    uint32_t registers, shared_memory, spill_bytes, reserved;
    double compile_seconds;
    char configuration[CONFIG_TEXT_MAX];
    uint64_t header_hash; /* XXH3-64 of all above */
};

static_assert(sizeof(struct cubin_file_header) == 176, "the header is a disk format");

void cubin_file_header_init(struct cubin_file_header *ret_header,
                            const struct key *key,
                            const struct cubin *cubin);
/* Says whether this is the intact header of that key, in a file of that size. */
bool cubin_file_header_is_intact(const struct cubin_file_header *header,
                                 const struct key *key,
                                 size_t file_size);
/* 0 with `ret_cubin` owned by the caller, CUBIN_FILE_E_DAMAGED, or -ENOMEM. */
int cubin_file_decode(const void *file,
                      size_t file_size,
                      const struct key *key,
                      struct cubin *ret_cubin);

enum {
    CUBIN_FILE_E_DAMAGED = 1,
};
