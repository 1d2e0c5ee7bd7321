/*
 * Device memory between the daemon and the caller's own CUDA: descriptors in and out.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client_internal.h"

static gemmd_status take_export(gemmd *connection, struct call *call, gemmd_export *ret)
{
    struct reply_buffer reply;

    if (reply_decode_buffer(&call->reply, &reply) || reply.allocation == 0 || call->fd < 0)
        return call_malformed(connection, call);
    ret->allocation = reply.allocation;
    (void)snprintf(ret->device, sizeof(ret->device), "%s", reply.device);
    ret->fd = steal(call->fd, -1);
    return GEMMD_OK;
}

gemmd_status gemmd_buffer_export(gemmd_buffer *buffer, gemmd_export *ret)
{
    struct request request = {.method = METHOD_BUFFER_EXPORT};
    gemmd *connection;
    gemmd_status status;
    struct call *call;

    if (!buffer)
        return GEMMD_INVALID_ARGUMENT;
    connection = buffer->connection;
    status = connection_check(connection);
    if (status != GEMMD_OK)
        return status;
    if (!ret || ret->size < sizeof(*ret))
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "ret",
                               "ret is NULL, or its size is not sizeof(gemmd_export)");
    ret->fd = -1;
    request.body.buffer.id = buffer->id;
    status = call_perform(connection, &request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    status = take_export(connection, call, ret);
    (void)call_free(connection, call);
    return status;
}

static gemmd_status check_import(gemmd *connection, const gemmd_import *memory)
{
    if (!memory || memory->size < sizeof(*memory))
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "memory",
                               "memory is NULL, or its size is not sizeof(gemmd_import)");
    if ((memory->fd >= 0) == (memory->ipc_handle != NULL))
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "fd",
                               "fd is %d and ipc_handle is %s; allowed is one of the two",
                               memory->fd, memory->ipc_handle ? "given" : "NULL");
    if (memory->fd >= 0 && fcntl(memory->fd, F_GETFD) < 0)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "fd",
                               "%d is not an open descriptor", memory->fd);
    return GEMMD_OK;
}

gemmd_status gemmd_buffer_import(gemmd *connection, const gemmd_import *memory, gemmd_buffer **ret)
{
    struct request request = {.method = METHOD_BUFFER_IMPORT};
    gemmd_status status = buffer_check_target(connection, ret);

    if (status == GEMMD_OK)
        status = check_import(connection, memory);
    if (status != GEMMD_OK)
        return status;
    request.body.buffer = (struct request_buffer){
        .size = memory->bytes,
        .offset = memory->offset,
        .allocation = memory->allocation,
        .handle = memory->ipc_handle,
        .writable = memory->writable,
        .name = memory->name,
        .name_size = memory->name ? strlen(memory->name) : 0,
        .mode = memory->mode,
    };
    return buffer_obtain(connection, &request, memory->fd, ret);
}
