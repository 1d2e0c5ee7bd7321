/*
 * A payload becomes a request, a fault or nothing. An accepted request, encoded, is accepted again
 * and then encodes to the same bytes: nothing is lost or invented on the way. A refused one has a
 * fault with a status and a sentence.
 */
#include "../../proto/request.h"

#include <stdlib.h>
#include <string.h>

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void require_same(const struct request *request)
{
    struct message first = MESSAGE_NULL, second = MESSAGE_NULL;
    struct request again;
    struct fault fault;

    for (size_t i = 0; request->method == METHOD_GEMM_MANY && i < request_count(request); i++) {
        if (request->body.many.products[i].fault.status != STATUS_OK)
            return; /* what is refused need not come back */
    }

    if (request_encode(request, 0, &first) != 0)
        return; /* inline data at the frame's bound */
    require(request_decode(first.bytes + FRAME_HEADER_SIZE, first.size - FRAME_HEADER_SIZE, &again,
                           &fault) == 0);
    require(again.id == request->id && again.method == request->method);
    require(request_encode(&again, 0, &second) == 0);
    require(first.size == second.size && memcmp(first.bytes, second.bytes, first.size) == 0);
    message_deinit(&first);
    message_deinit(&second);
    request_deinit(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request request;
    struct fault fault = FAULT_NONE;
    int r = request_decode(data, size, &request, &fault);

    require(r >= 0);
    if (r == 0) {
        require_same(&request);
        request_deinit(&request);
    } else if (r == REQUEST_E_REFUSED) {
        require(fault.status == STATUS_INVALID_ARGUMENT || fault.status == STATUS_NOT_FOUND);
        require(strlen(fault.message) > 0 && strlen(fault.argument) > 0);
    } else {
        require(r == REQUEST_E_MALFORMED);
    }
    return 0;
}
