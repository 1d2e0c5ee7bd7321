#include "cubin_file.h"

#include "../core/error.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char cubin_magic[8] = "gemmdcub"; /* no room for the zero, and none needed */

static uint64_t header_hash(const struct cubin_file_header *header)
{
    return XXH3_64bits(header, offsetof(struct cubin_file_header, header_hash));
}

void cubin_file_header_init(struct cubin_file_header *ret_header,
                            const struct key *key,
                            const struct cubin *cubin)
{
    struct cubin_file_header header = {
        .version = CUBIN_FILE_VERSION,
        .header_size = sizeof(header),
        .size = cubin->size,
        .hash = XXH3_64bits(cubin->bytes, cubin->size),
        .registers = cubin->registers,
        .shared_memory = cubin->shared_memory,
        .spill_bytes = cubin->spill_bytes,
        .compile_seconds = cubin->compile_seconds,
    };

    static_assert(sizeof(header.key) == sizeof(key->bytes), "a key is written whole");
    memcpy(header.magic, cubin_magic, sizeof(header.magic));
    memcpy(header.key, key->bytes, sizeof(header.key));
    strncpy(header.configuration, cubin->configuration, sizeof(header.configuration) - 1);
    header.header_hash = header_hash(&header);
    *ret_header = header;
}

bool cubin_file_header_is_intact(const struct cubin_file_header *header,
                                 const struct key *key,
                                 size_t file_size)
{
    return memcmp(header->magic, cubin_magic, sizeof(header->magic)) == 0 &&
           header->version == CUBIN_FILE_VERSION && header->header_size == sizeof(*header) &&
           header->header_hash == header_hash(header) &&
           memcmp(header->key, key->bytes, sizeof(header->key)) == 0 && header->size > 0 &&
           header->size <= CUBIN_BYTES_MAX && header->size == file_size - sizeof(*header) &&
           memchr(header->configuration, '\0', sizeof(header->configuration));
}

int cubin_file_decode(const void *file,
                      size_t file_size,
                      const struct key *key,
                      struct cubin *ret_cubin)
{
    const uint8_t *payload = (const uint8_t *)file + sizeof(struct cubin_file_header);
    struct cubin_file_header header;
    struct cubin cubin = CUBIN_NULL;

    if (file_size < sizeof(header))
        return CUBIN_FILE_E_DAMAGED;
    memcpy(&header, file, sizeof(header));
    if (!cubin_file_header_is_intact(&header, key, file_size) ||
        XXH3_64bits(payload, header.size) != header.hash)
        return CUBIN_FILE_E_DAMAGED;

    cubin.size = header.size;
    cubin.registers = header.registers;
    cubin.shared_memory = header.shared_memory;
    cubin.spill_bytes = header.spill_bytes;
    cubin.compile_seconds = header.compile_seconds;
    memcpy(cubin.configuration, header.configuration, sizeof(cubin.configuration));
    cubin.bytes = malloc(cubin.size);
    if (!cubin.bytes)
        return error_origin(-ENOMEM);
    memcpy(cubin.bytes, payload, cubin.size);
    *ret_cubin = cubin;
    return 0;
}
