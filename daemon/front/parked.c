#include "parked.h"

#include "../core/error.h"
#include "handlers.h"
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

/* --- deadlines ------------------------------------------------------------------------------- */

/* 0: it is no product, is refused anyhow, or may start at any time. */
static uint64_t deadline_at(const struct parked *parked, const struct request *request, size_t i)
{
    const struct request_product *products = request->body.many.products;

    if (request->method == METHOD_GEMM)
        return deadline_of(parked->received_ns, &request->body.gemm);
    if (request->method != METHOD_GEMM_MANY || products[i].fault.status != STATUS_OK)
        return 0;
    return deadline_of(parked->received_ns, &products[i].gemm);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 ? MAX(a, b) : MIN(a, b);
}

/* The earliest that is not before `now_ns`; 0: there is none. */
static uint64_t
next_deadline(const struct parked *parked, const struct request *request, uint64_t now_ns)
{
    uint64_t next = 0;

    for (size_t i = 0; i < request_count(request); i++) {
        uint64_t deadline_ns = deadline_at(parked, request, i);

        if (deadline_ns >= now_ns)
            next = earlier(next, deadline_ns);
    }
    return next;
}

void parked_watch(struct session *session, const struct request *request)
{
    struct parked *parked = container_of(session->parked.previous, struct parked, link);

    parked->deadline_ns = next_deadline(parked, request, 0);
    if (parked->deadline_ns != 0)
        deadline_watch(session->server, parked->deadline_ns);
}

static void answer_late(struct session *session, uint32_t id)
{
    struct fault fault;

    (void)fault_set(&fault, STATUS_DEADLINE, "deadline_us", "%s", status_meaning(STATUS_DEADLINE));
    session->server->stats.products_by_status[STATUS_DEADLINE]++;
    if (socket_is_open(&session->socket)) /* an answer may have ended it */
        session_answer_fault(session, id, &fault);
}

/* Returns the next deadline; 0: it has none any more, and may be gone. */
static uint64_t expire(struct session *session, struct parked *parked, uint64_t now_ns)
{
    cleanup(request_deinit) struct request request = {.method = METHOD_COUNT};
    struct fault fault;
    uint64_t next;
    bool is_waiting = false;

    if (request_decode(parked->payload, parked->size, &request, &fault) != 0) {
        session_close(session, "no memory for a parked request");
        return 0;
    }
    for (size_t i = 0; i < request_count(&request); i++) {
        uint64_t deadline_ns = deadline_at(parked, &request, i);

        if (deadline_ns == 0 || deadline_ns >= now_ns)
            is_waiting = true;
        else if (deadline_ns >= parked->answered_ns)
            answer_late(session, request.id + (uint32_t)i);
    }
    next = next_deadline(parked, &request, now_ns);
    parked->deadline_ns = next;
    parked->answered_ns = now_ns;
    if (!is_waiting)
        (void)parked_free(parked);
    return next;
}

uint64_t parked_expire(struct session *session, uint64_t now_ns)
{
    uint64_t next = 0;

    list_for_each_safe(cursor, following, &session->parked)
    {
        struct parked *parked = container_of(cursor, struct parked, link);
        uint64_t deadline_ns = parked->deadline_ns;

        if (deadline_ns != 0 && deadline_ns < now_ns)
            deadline_ns = expire(session, parked, now_ns);
        next = earlier(next, deadline_ns);
    }
    return next;
}
