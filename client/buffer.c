/*
 * Buffers: handles and mappings. What moves bytes in and out is in transfer.c.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client_internal.h"

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

/* Who asked for so many mapped bytes writes them. What is opened by name is as it is. */
static bool is_as_asked(const struct request_buffer *asked, const struct reply_buffer *reply)
{
    return reply->kind != 0 && (asked->kind == 0 || reply->kind == asked->kind) &&
           (asked->size == 0 || reply->size == asked->size) &&
           (!asked->writable || reply->writable);
}

static gemmd_status
fill(gemmd_buffer *buffer, const struct request_buffer *asked, const struct call *call, int own_fd)
{
    struct reply_buffer reply;
    int fd = call->fd >= 0 ? call->fd : own_fd;

    if (reply_decode_buffer(&call->reply, &reply))
        return call_malformed(buffer->connection, call);
    buffer->id = reply.id;
    if (!is_as_asked(asked, &reply))
        return call_malformed(buffer->connection, call);
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
    status = fill(buffer, &request->body.buffer, call, own_fd);
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
