/*
 * What ends a job before it ran: the client's word, or its deadline.
 *
 * Deadlines are looked at when a job's turn comes (queue_advance), and by one timer for those whose
 * turn does not come in time, or that are parked, so that late work is answered when it is late.
 */
#include "handlers.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "server.h"

int cancel_request(struct session *session, const struct request *request, struct fault *fault)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    bool cancelled = queue_cancel(&session->server->queue, &session->stream, request->body.cancel);
    int r = reply_encode_cancel(request->id, cancelled, &message);

    (void)fault;
    if (r < 0)
        return error_trace(r);
    session_answer(session, &message, -1);
    return 0;
}

uint64_t deadline_of(uint64_t received_ns, const struct request_gemm *gemm)
{
    return gemm->deadline_us > 0 ? received_ns + gemm->deadline_us * 1000 : 0;
}

static void arm(struct server *server, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t wait = deadline_ns > now ? deadline_ns - now : 0;

    server->deadline_ns = deadline_ns;
    /* The timer counts whole milliseconds; one early would find nothing and come again. */
    (void)uv_timer_start(&server->deadline, deadline_callback, wait / 1000000 + 1, 0);
}

void deadline_watch(struct server *server, uint64_t deadline_ns)
{
    if (server->deadline_ns == 0 || deadline_ns < server->deadline_ns)
        arm(server, deadline_ns);
}

void deadline_callback(uv_timer_t *timer)
{
    struct server *server = container_of(timer, struct server, deadline);
    uint64_t now = clock_now_ns(), next = queue_expire(&server->queue, now);

    list_for_each_safe(cursor, following, &server->sessions)
    {
        uint64_t parked = session_expire(container_of(cursor, struct session, link), now);

        if (next == 0 || (parked != 0 && parked < next))
            next = parked;
    }
    server->deadline_ns = 0;
    if (next != 0)
        arm(server, next);
}
