#include "parked.h"

#include "../core/error.h"
#include "server.h"

#include <stdlib.h>
#include <string.h>

struct parked *parked_free(struct parked *parked)
{
    list_unlink(&parked->link);
    for (size_t i = 0; i < parked->n_fds; i++)
        fd_closep(&parked->fds[i]);
    charge_release(&parked->charge_fds);
    charge_release(&parked->charge);
    free(parked);
    return NULL;
}

static int charge(struct parked *parked, struct session *session, struct fault *ret_fault)
{
    struct quota *quota = &session->server->quota;
    int r = quota_charge(quota, session->uid, QUOTA_INLINE_BYTES, parked->size, &parked->charge,
                         ret_fault);

    if (r == 0)
        r = quota_charge(quota, session->uid, QUOTA_DESCRIPTORS, parked->n_fds, &parked->charge_fds,
                         ret_fault);
    return r == QUOTA_E_LIMIT ? SESSION_E_FAULT : error_trace(r);
}

int parked_new(struct session *session,
               const uint8_t *payload,
               size_t size,
               int *fds,
               size_t n_fds,
               struct fault *ret_fault)
{
    struct parked *parked = malloc(sizeof(*parked) + size);
    int r;

    if (!parked)
        return error_origin(-ENOMEM);
    *parked = (struct parked){.received_ns = session->received_ns, .size = size, .n_fds = n_fds};
    list_init(&parked->link);
    for (size_t i = 0; i < ARRAY_SIZE(parked->fds); i++)
        parked->fds[i] = -1;
    r = charge(parked, session, ret_fault);
    if (r != 0) {
        (void)parked_free(parked);
        return r;
    }
    memcpy(parked->payload, payload, size);
    for (size_t i = 0; i < n_fds; i++)
        parked->fds[i] = steal(fds[i], -1);
    list_append(&session->parked, &parked->link);
    return 0;
}
