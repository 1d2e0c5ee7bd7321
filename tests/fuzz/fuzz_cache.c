/*
 * A cache entry's file of any content: decoded within its bounds, and only when it is intact. The
 * first byte says whether header and payload hashes are made right first, so that what lies behind
 * them is reached too.
 */
#include "../../daemon/jit/cubin_file.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_hashes_right(uint8_t *file, size_t size)
{
    struct cubin_file_header header;

    if (size < sizeof(header))
        return;
    memcpy(&header, file, sizeof(header));
    header.hash = XXH3_64bits(file + sizeof(header), size - sizeof(header));
    header.header_hash = XXH3_64bits(&header, offsetof(struct cubin_file_header, header_hash));
    memcpy(file, &header, sizeof(header));
}

static void check(const uint8_t *file, size_t size, const struct key *key)
{
    struct cubin_file_header header;
    struct cubin cubin = CUBIN_NULL;

    if (cubin_file_decode(file, size, key, &cubin) != 0)
        return;
    memcpy(&header, file, sizeof(header));
    if (cubin.size != size - sizeof(header) || cubin.size > CUBIN_BYTES_MAX ||
        memcmp(cubin.bytes, file + sizeof(header), cubin.size) != 0 ||
        !memchr(cubin.configuration, '\0', sizeof(cubin.configuration)) ||
        memcmp(header.key, key->bytes, sizeof(key->bytes)) != 0)
        abort();
    cubin_deinit(&cubin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct key key = {.bytes = {1, 2, 3}};
    uint8_t *file; /* of the exact size: a sanitizer sees a read past its end */

    if (size == 0)
        return 0;
    file = malloc(size - 1 ? size - 1 : 1);
    if (!file)
        return 0;
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1)
        make_hashes_right(file, size - 1);
    check(file, size - 1, &key);
    free(file);
    return 0;
}
