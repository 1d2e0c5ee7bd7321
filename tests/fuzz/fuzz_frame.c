/*
 * Header, bounds scan and what msgpack-c makes of the bytes: whatever the scan accepts unpacks,
 * into no more values than the scan's bound; then the same bytes as a reply, the client's side.
 * The first FRAME_HEADER_SIZE bytes are the header, the rest is the payload.
 */
#include "../../proto/frame.h"
#include "../../proto/reply.h"
#include "../../proto/scan.h"

#include <msgpack.h>
#include <stdlib.h>

static void require(bool condition)
{
    if (!condition)
        abort();
}

static size_t count_values(const msgpack_object *object, unsigned depth)
{
    size_t count = 1;

    require(depth <= SCAN_DEPTH_MAX);
    if (object->type == MSGPACK_OBJECT_ARRAY)
        for (uint32_t i = 0; i < object->via.array.size; i++)
            count += count_values(&object->via.array.ptr[i], depth + 1);
    if (object->type == MSGPACK_OBJECT_MAP)
        for (uint32_t i = 0; i < object->via.map.size; i++)
            count += count_values(&object->via.map.ptr[i].key, depth + 1) +
                     count_values(&object->via.map.ptr[i].val, depth + 1);
    return count;
}

static void try_unpack(const uint8_t *payload, size_t size)
{
    msgpack_unpacked unpacked;
    size_t offset = 0;

    if (!scan_message(payload, size))
        return;
    require(scan_object(payload, size) == size);
    msgpack_unpacked_init(&unpacked);
    require(msgpack_unpack_next(&unpacked, (const char *)payload, size, &offset) ==
            MSGPACK_UNPACK_SUCCESS);
    require(offset == size);
    require(count_values(&unpacked.data, 0) <= SCAN_VALUES_MAX);
    msgpack_unpacked_destroy(&unpacked);
}

static void try_reply(const uint8_t *payload, size_t size)
{
    struct reply reply;
    struct reply_hello hello;
    struct reply_gemm gemm;
    struct reply_buffer buffer;
    char *json = NULL;

    if (reply_decode(payload, size, &reply) != 0)
        return;
    (void)reply_decode_hello(&reply, &hello);
    (void)reply_decode_gemm(&reply, &gemm);
    (void)reply_decode_buffer(&reply, &buffer);
    if (reply_decode_json(&reply, &json) == 0)
        free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_header header;
    uint8_t again[FRAME_HEADER_SIZE];

    if (size < FRAME_HEADER_SIZE)
        return 0;
    if (frame_decode(data, FRAME_LENGTH_MAX, &header) == 0) {
        require(header.length >= 1 && header.length <= FRAME_LENGTH_MAX);
        require(header.n_fds <= FRAME_FDS_MAX);
        frame_encode(again, header.length, header.n_fds);
        for (size_t i = 0; i < FRAME_HEADER_SIZE; i++)
            require(again[i] == data[i]);
    }
    try_unpack(data + FRAME_HEADER_SIZE, size - FRAME_HEADER_SIZE);
    try_reply(data + FRAME_HEADER_SIZE, size - FRAME_HEADER_SIZE);
    return 0;
}
