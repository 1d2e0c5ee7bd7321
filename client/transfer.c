/*
 * Bytes in and out of buffers, and between them.
 *
 * Order. Writes and reads of memory that is mapped here are plain copies, made after this
 * connection's jobs that use the buffer are answered: going through the daemon would cost two more
 * copies for the same order. Device memory goes through the daemon, which keeps the order: in one
 * message when small, else in chunks through staging, two under way at a time so that the copy here
 * and the copy to the device overlap.
 */
#include <string.h>

#include "client_internal.h"

#define CHUNK_MAX ((uint64_t)8 << 20) /* 0.15 ms of PCIe: long against a round trip */
#define CHUNKS    2

/* One direction between memory of the caller and a buffer. */
struct transfer {
    gemmd_buffer *buffer;
    uint64_t offset, size;
    const uint8_t *from; /* write */
    uint8_t *to;         /* read */
};

static gemmd_status check_range(gemmd *connection,
                                const gemmd_buffer *buffer,
                                const char *argument,
                                uint64_t offset,
                                uint64_t size)
{
    if (offset <= buffer->size && size <= buffer->size - offset)
        return GEMMD_OK;
    return connection_fail(connection, GEMMD_INVALID_ARGUMENT, argument,
                           "%llu bytes at offset %llu do not lie in a buffer of %llu bytes",
                           (unsigned long long)size, (unsigned long long)offset,
                           (unsigned long long)buffer->size);
}

static gemmd_status check_transfer(gemmd *connection, const struct transfer *transfer)
{
    if (transfer->size > 0 && !transfer->from && !transfer->to)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "data",
                               "data is NULL and size is %llu", (unsigned long long)transfer->size);
    if (transfer->from && !transfer->buffer->is_writable)
        return connection_fail(connection, GEMMD_PERMISSION, "buffer",
                               "the buffer was opened for reading only");
    return check_range(connection, transfer->buffer, "offset", transfer->offset, transfer->size);
}

static bool is_used_by(const gemmd_buffer *buffer, const struct call *call, bool for_writing)
{
    for (int i = 0; i < OPERAND_COUNT; i++) {
        if (call->uses[i] && call->buffer[i] == buffer->id && (for_writing || i == OPERAND_D))
            return true;
    }
    return false;
}

/* Waits until no job reads what will be written, or writes what will be read. */
static gemmd_status settle(gemmd *connection, const gemmd_buffer *buffer, bool for_writing)
{
    for (size_t i = 0; i < CALLS_MAX && connection->unanswered > 0; i++) {
        struct call *call = connection->calls[i];

        if (call && !call->is_done && is_used_by(buffer, call, for_writing))
            (void)call_await(connection, call, FOREVER);
    }
    return connection_check(connection);
}

static gemmd_status transfer_mapped(gemmd *connection, const struct transfer *transfer)
{
    uint8_t *place = (uint8_t *)transfer->buffer->data + transfer->offset;
    gemmd_status status = settle(connection, transfer->buffer, transfer->from != NULL);

    if (status != GEMMD_OK)
        return status;
    if (transfer->from)
        memcpy(place, transfer->from, transfer->size);
    else
        memcpy(transfer->to, place, transfer->size);
    return GEMMD_OK;
}

static gemmd_status take_read(gemmd *connection, const struct transfer *t, const struct call *call)
{
    struct reply_buffer reply;

    if (reply_decode_buffer(&call->reply, &reply) || reply.data_size != t->size || !reply.data)
        return call_malformed(connection, call);
    memcpy(t->to, reply.data, t->size);
    return GEMMD_OK;
}

static gemmd_status transfer_inline(gemmd *connection, const struct transfer *transfer)
{
    struct request request = {
        .method = transfer->from ? METHOD_BUFFER_WRITE : METHOD_BUFFER_READ,
        .body.buffer = {.id = transfer->buffer->id,
                        .offset = transfer->offset,
                        .data = transfer->from,
                        .length = transfer->size},
    };
    gemmd_status status;
    struct call *call;

    status = call_perform(connection, &request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    if (transfer->to)
        status = take_read(connection, transfer, call);
    (void)call_free(connection, call);
    return status;
}

/* A part of a transfer that is under way through its part of the staging block. */
struct chunk {
    struct call *call; /* NULL: idle */
    uint64_t done;     /* bytes of the transfer before it */
    uint64_t size;
};

static gemmd_status chunk_start(gemmd *connection,
                                const struct transfer *transfer,
                                const gemmd_buffer *staging,
                                uint64_t staging_offset,
                                struct chunk *chunk)
{
    struct request request = {.method = METHOD_BUFFER_COPY, .body.copy.length = chunk->size};
    struct request_copy *copy = &request.body.copy;

    if (transfer->from) {
        memcpy((uint8_t *)staging->data + staging_offset, transfer->from + chunk->done,
               chunk->size);
        copy->source = staging->id;
        copy->source_offset = staging_offset;
        copy->destination = transfer->buffer->id;
        copy->destination_offset = transfer->offset + chunk->done;
    } else {
        copy->source = transfer->buffer->id;
        copy->source_offset = transfer->offset + chunk->done;
        copy->destination = staging->id;
        copy->destination_offset = staging_offset;
    }
    return call_start(connection, &request, -1, &chunk->call);
}

static gemmd_status chunk_finish(gemmd *connection,
                                 const struct transfer *transfer,
                                 const gemmd_buffer *staging,
                                 uint64_t staging_offset,
                                 struct chunk *chunk)
{
    gemmd_status status;

    if (!chunk->call)
        return GEMMD_OK;
    (void)call_await(connection, chunk->call, FOREVER);
    status = call_check(connection, chunk->call, "");
    if (status == GEMMD_OK && transfer->to)
        memcpy(transfer->to + chunk->done, (uint8_t *)staging->data + staging_offset, chunk->size);
    chunk->call = call_free(connection, chunk->call);
    return status;
}

/* The first failure ends the starting of chunks; those under way are waited for all the same, since
 * they still use the block. */
static gemmd_status
transfer_chunks(gemmd *connection, const struct transfer *transfer, const gemmd_buffer *staging)
{
    uint64_t chunk_size = MIN(CHUNK_MAX, staging->size / CHUNKS);
    struct chunk chunks[CHUNKS] = {0};
    gemmd_status status = GEMMD_OK, r;
    uint64_t done = 0;
    size_t turn = 0;

    for (; done < transfer->size && status == GEMMD_OK; turn++) {
        size_t i = turn % CHUNKS;

        status = chunk_finish(connection, transfer, staging, i * chunk_size, &chunks[i]);
        if (status != GEMMD_OK)
            break;
        chunks[i].done = done;
        chunks[i].size = MIN(chunk_size, transfer->size - done);
        status = chunk_start(connection, transfer, staging, i * chunk_size, &chunks[i]);
        done += chunks[i].size;
    }
    for (size_t i = 0; i < CHUNKS; i++, turn++) {
        size_t place = turn % CHUNKS;

        r = chunk_finish(connection, transfer, staging, place * chunk_size, &chunks[place]);
        status = status == GEMMD_OK ? r : status;
    }
    return status;
}

static gemmd_status transfer_staged(gemmd *connection, const struct transfer *transfer)
{
    struct staging_block *block;
    gemmd_status status;

    status = staging_take(connection, MIN(CHUNKS * CHUNK_MAX, transfer->size), &block);
    if (status != GEMMD_OK)
        return status;
    status = transfer_chunks(connection, transfer, block->buffer);
    staging_give(connection, block);
    return status;
}

static gemmd_status run_transfer(const struct transfer *transfer)
{
    gemmd *connection = transfer->buffer->connection;
    gemmd_status status = connection_check(connection);

    if (status == GEMMD_OK)
        status = check_transfer(connection, transfer);
    if (status != GEMMD_OK || transfer->size == 0)
        return status;
    if (transfer->buffer->data)
        return transfer_mapped(connection, transfer);
    if (transfer->size <= connection_inline_max(connection))
        return transfer_inline(connection, transfer);
    return transfer_staged(connection, transfer);
}

gemmd_status gemmd_buffer_freeze(gemmd_buffer *buffer)
{
    struct request request = {.method = METHOD_BUFFER_FREEZE};
    gemmd_status status;
    struct call *call;

    if (!buffer)
        return GEMMD_INVALID_ARGUMENT;
    request.body.buffer.id = buffer->id;
    status = connection_check(buffer->connection);
    if (status == GEMMD_OK)
        status = settle(buffer->connection, buffer, /* for_writing= */ false);
    if (status == GEMMD_OK)
        status = call_perform(buffer->connection, &request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    buffer->is_writable = false;
    (void)call_free(buffer->connection, call);
    return GEMMD_OK;
}

gemmd_status
gemmd_buffer_write(gemmd_buffer *buffer, uint64_t offset, const void *data, uint64_t size)
{
    struct transfer transfer = {.buffer = buffer, .offset = offset, .size = size, .from = data};

    return buffer ? run_transfer(&transfer) : GEMMD_INVALID_ARGUMENT;
}

gemmd_status gemmd_buffer_read(gemmd_buffer *buffer, uint64_t offset, void *data, uint64_t size)
{
    struct transfer transfer = {.buffer = buffer, .offset = offset, .size = size, .to = data};

    return buffer ? run_transfer(&transfer) : GEMMD_INVALID_ARGUMENT;
}

gemmd_status gemmd_buffer_copy(gemmd_buffer *destination,
                               uint64_t destination_offset,
                               gemmd_buffer *source,
                               uint64_t source_offset,
                               uint64_t size)
{
    struct request request = {.method = METHOD_BUFFER_COPY};
    gemmd *connection;
    gemmd_status status;
    struct call *call;

    if (!destination || !source)
        return GEMMD_INVALID_ARGUMENT;
    connection = destination->connection;
    status = connection_check(connection);
    if (status != GEMMD_OK)
        return status;
    if (source->connection != connection)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "source",
                               "the buffers belong to two connections; open one of them by name");
    request.body.copy = (struct request_copy){
        .source = source->id,
        .source_offset = source_offset,
        .destination = destination->id,
        .destination_offset = destination_offset,
        .length = size,
    };
    status = call_perform(connection, &request, -1, &call);
    if (status == GEMMD_OK)
        (void)call_free(connection, call);
    return status;
}
