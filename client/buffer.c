/*
 * Buffers: handles, mappings, bytes in and out.
 *
 * Order. Writes and reads of memory that is mapped here are plain copies, made after this
 * connection's jobs that use the buffer are answered: going through the daemon would cost two more
 * copies for the same order. Device memory goes through the daemon, which keeps the order: in one
 * message when small, else in chunks through staging, two under way at a time so that the copy here
 * and the copy to the device overlap.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client_internal.h"

#define CHUNK_MAX ((uint64_t)8 << 20) /* 0.15 ms of PCIe: long against a round trip */
#define CHUNKS    2

void buffer_forget(gemmd_buffer *buffer)
{
    if (!buffer)
        return;
    if (buffer->data)
        (void)munmap(buffer->data, buffer->mapped);
    list_unlink(&buffer->link);
    free(buffer);
}

static void buffer_forgetp(gemmd_buffer **buffer)
{
    buffer_forget(*buffer);
}

/* --- creation -------------------------------------------------------------------------------- */

/* Maps `fd`, after a look at its size: a mapping past the end of a file is a SIGBUS to come. */
static gemmd_status map(gemmd_buffer *buffer, int fd)
{
    int protection = PROT_READ | (buffer->is_writable ? PROT_WRITE : 0);
    struct stat facts;
    void *data;

    if (fstat(fd, &facts) < 0 || facts.st_size < 0 || (uint64_t)facts.st_size < buffer->size)
        return connection_fail(buffer->connection, GEMMD_PROTOCOL, "size",
                               "the buffer's file is shorter than its %llu bytes",
                               (unsigned long long)buffer->size);
    if (buffer->size == 0)
        return GEMMD_OK;
    data = mmap(NULL, buffer->size, protection, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return connection_fail(
            buffer->connection, errno == ENOMEM ? GEMMD_OUT_OF_MEMORY : GEMMD_PERMISSION, "",
            "%llu bytes cannot be mapped: %s", (unsigned long long)buffer->size, strerror(errno));
    buffer->data = data;
    buffer->mapped = buffer->size;
    return GEMMD_OK;
}

static gemmd_status fill(gemmd_buffer *buffer, const struct call *call, int own_fd)
{
    struct reply_buffer reply;
    int fd = call->fd >= 0 ? call->fd : own_fd;

    if (reply_decode_buffer(&call->reply, &reply))
        return call_malformed(buffer->connection, call);
    buffer->id = reply.id;
    buffer->size = reply.size;
    buffer->memory = (enum gemmd_memory)reply.kind;
    buffer->is_writable = reply.writable;
    if (reply.kind == BUFFER_DEVICE)
        return GEMMD_OK;
    return fd >= 0 ? map(buffer, fd) : call_malformed(buffer->connection, call);
}

static void release(gemmd *connection, uint64_t id)
{
    struct request request = {.method = METHOD_BUFFER_FREE, .body.buffer.id = id};
    struct call *call;

    if (call_perform(connection, &request, -1, &call) == GEMMD_OK)
        (void)call_free(connection, call);
}

gemmd_status
buffer_obtain(gemmd *connection, const struct request *request, int own_fd, gemmd_buffer **ret)
{
    cleanup(buffer_forgetp) gemmd_buffer *buffer = calloc(1, sizeof(*buffer));
    struct call *call;
    gemmd_status status;
    gemmd_error error;

    if (!buffer)
        return connection_fail(connection, GEMMD_OUT_OF_MEMORY, "",
                               "this process has no memory left");
    buffer->connection = connection;
    list_init(&buffer->link);
    status = call_perform(connection, request, own_fd, &call);
    if (status != GEMMD_OK)
        return status;
    status = fill(buffer, call, own_fd);
    (void)call_free(connection, call);
    if (status != GEMMD_OK) {
        error = connection->error;
        release(connection, buffer->id);
        connection->error = error;
        return status;
    }
    list_append(&connection->buffers, &buffer->link);
    *ret = steal(buffer, NULL);
    return GEMMD_OK;
}

gemmd_status buffer_check_target(gemmd *connection, gemmd_buffer **ret)
{
    gemmd_status status = connection_check(connection);

    if (status != GEMMD_OK)
        return status;
    if (!ret)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "ret",
                               "there is no place for the buffer: ret is NULL");
    *ret = NULL;
    return GEMMD_OK;
}

gemmd_status gemmd_buffer_create(gemmd *connection,
                                 gemmd_memory memory,
                                 uint64_t size,
                                 const char *name,
                                 unsigned mode,
                                 gemmd_buffer **ret)
{
    struct request request = {
        .method = METHOD_BUFFER_CREATE,
        .body.buffer = {.kind = memory == GEMMD_HOST ? BUFFER_HOST : BUFFER_DEVICE,
                        .size = size,
                        .name = name,
                        .name_size = name ? strlen(name) : 0,
                        .mode = mode,
                        .exportable = memory == GEMMD_DEVICE_EXPORTABLE,
                        .writable = true},
    };
    gemmd_status status = buffer_check_target(connection, ret);

    if (status != GEMMD_OK)
        return status;
    if (memory < GEMMD_HOST || memory > GEMMD_DEVICE_EXPORTABLE)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "memory",
                               "memory is %d; GEMMD_HOST (1), GEMMD_DEVICE (2) and "
                               "GEMMD_DEVICE_EXPORTABLE (3) are allowed",
                               (int)memory);
    return buffer_obtain(connection, &request, -1, ret);
}

gemmd_status
gemmd_buffer_open(gemmd *connection, const char *name, bool writable, gemmd_buffer **ret)
{
    struct request request = {
        .method = METHOD_BUFFER_OPEN,
        .body.buffer = {.name = name, .name_size = name ? strlen(name) : 0, .writable = writable},
    };
    gemmd_status status = buffer_check_target(connection, ret);

    if (status != GEMMD_OK)
        return status;
    if (!name)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "name",
                               "the name is NULL; 1 to %d printable bytes are allowed",
                               BUFFER_NAME_MAX);
    return buffer_obtain(connection, &request, -1, ret);
}

gemmd_status gemmd_buffer_register(
    gemmd *connection, int memfd, uint64_t size, bool writable, gemmd_buffer **ret)
{
    struct request request = {
        .method = METHOD_BUFFER_REGISTER,
        .body.buffer = {.kind = BUFFER_HOST, .size = size, .writable = writable},
    };
    gemmd_status status = buffer_check_target(connection, ret);

    if (status != GEMMD_OK)
        return status;
    if (fcntl(memfd, F_GETFD) < 0)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "memfd",
                               "%d is not an open descriptor", memfd);
    return buffer_obtain(connection, &request, memfd, ret);
}

void gemmd_buffer_free(gemmd_buffer *buffer)
{
    if (!buffer)
        return;
    if (connection_check(buffer->connection) == GEMMD_OK)
        release(buffer->connection, buffer->id);
    buffer_forget(buffer);
}

void *gemmd_buffer_data(gemmd_buffer *buffer)
{
    return buffer ? buffer->data : NULL;
}

uint64_t gemmd_buffer_size(const gemmd_buffer *buffer)
{
    return buffer ? buffer->size : 0;
}

/* --- bytes in and out ------------------------------------------------------------------------ */

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
