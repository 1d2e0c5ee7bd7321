/*
 * Products under way: asking, waiting, cancelling, and from the answer to the caller's memory.
 */
#include <string.h>

#include "client_internal.h"

static gemmd_status
deliver(gemmd *connection, const struct call *call, const struct reply_gemm *reply)
{
    const struct delivery *delivery = &call->delivery;
    const uint8_t *from;

    if (!delivery->to)
        return GEMMD_OK;
    if (call->block)
        from = (const uint8_t *)call->block->buffer->data + delivery->offset;
    else if (reply->data && reply->size == matrix_span(&delivery->wire))
        from = reply->data;
    else
        return call_malformed(connection, call);
    matrix_scatter(&delivery->caller, delivery->to, &delivery->wire, from);
    return GEMMD_OK;
}

static void fill_result(const struct reply_gemm *reply, gemmd_result *ret)
{
    gemmd_result result = {
        .size = MIN(ret->size, sizeof(result)),
        .epoch = reply->epoch,
        .queued_seconds = (double)reply->queued_ns / 1e9,
        .device_seconds = (double)reply->device_ns / 1e9,
        .compile_seconds = reply->compile_seconds,
    };

    static_assert(sizeof(result.configuration) == sizeof(reply->configuration), "same text fits");
    memcpy(result.configuration, reply->configuration, sizeof(result.configuration));
    memcpy(ret, &result, result.size);
}

static gemmd_status take(gemmd *connection, struct call *call, gemmd_result *ret)
{
    struct reply_gemm reply;
    gemmd_status status;

    product_name_fault(&call->reply.fault);
    status = call_check(connection, call, "");
    if (status != GEMMD_OK)
        return status;
    if (reply_decode_gemm(&call->reply, &reply))
        return call_malformed(connection, call);
    status = deliver(connection, call, &reply);
    if (status == GEMMD_OK && ret)
        fill_result(&reply, ret);
    return status;
}

/* The job, or the error that there is none. Answered jobs outlive a lost connection. */
static gemmd_status find_job(gemmd *connection, gemmd_job job, struct call **ret_call)
{
    gemmd_status status = connection_check(connection);
    struct call *call;

    if (status != GEMMD_OK && status != GEMMD_DISCONNECTED)
        return status;
    call = call_find(connection, job);
    if (call && call->is_job) {
        *ret_call = call;
        return GEMMD_OK;
    }
    return status != GEMMD_OK
               ? status
               : connection_fail(connection, GEMMD_NOT_FOUND, "job",
                                 "job %llu is not under way on this connection (taken already?)",
                                 (unsigned long long)job);
}

gemmd_status gemmd_wait(gemmd *connection, gemmd_job job, double timeout_seconds, gemmd_result *ret)
{
    struct call *call;
    gemmd_status status = find_job(connection, job, &call);

    if (status != GEMMD_OK)
        return status;
    if (timeout_seconds != timeout_seconds)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "timeout_seconds",
                               "the timeout is not a number");
    if (ret && ret->size < sizeof(ret->size))
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "size",
                               "the result's size is %zu; set it to sizeof(gemmd_result), %zu",
                               ret->size, sizeof(gemmd_result));
    status = call_await(connection, call, call_deadline(timeout_seconds));
    if (status != GEMMD_OK)
        return status;
    status = take(connection, call, ret);
    (void)call_free(connection, call);
    return status;
}

gemmd_status gemmd_poll(gemmd *connection, gemmd_job job, bool *ret_done)
{
    struct call *call;
    gemmd_status status = find_job(connection, job, &call);

    if (status != GEMMD_OK)
        return status;
    if (!ret_done)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "ret_done",
                               "there is no place for the answer: ret_done is NULL");
    if (!call->is_done)
        call_collect(connection);
    *ret_done = call->is_done;
    return GEMMD_OK;
}

gemmd_status gemmd_cancel(gemmd *connection, gemmd_job job, bool *ret_cancelled)
{
    struct request request = {.method = METHOD_CANCEL, .body.cancel = (uint32_t)job};
    struct call *call;
    gemmd_status status = find_job(connection, job, &call);

    if (status != GEMMD_OK)
        return status;
    if (!ret_cancelled)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "ret_cancelled",
                               "there is no place for the answer: ret_cancelled is NULL");
    *ret_cancelled = false;
    if (call->is_done)
        return GEMMD_OK;
    status = call_perform(connection, &request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    if (reply_decode_cancel(&call->reply, ret_cancelled))
        status = call_malformed(connection, call);
    (void)call_free(connection, call);
    return status;
}

gemmd_status gemmd_gemm(gemmd *connection, const gemmd_product *product, gemmd_result *ret)
{
    gemmd_job job;
    gemmd_status status;

    if (connection && ret && ret->size < sizeof(ret->size))
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "size",
                               "the result's size is %zu; set it to sizeof(gemmd_result), %zu",
                               ret->size, sizeof(gemmd_result));
    status = gemmd_submit(connection, product, &job);
    return status == GEMMD_OK ? gemmd_wait(connection, job, -1, ret) : status;
}
