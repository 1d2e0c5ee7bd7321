/*
 * Device memory that goes to other owners: descriptors out.
 */
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
