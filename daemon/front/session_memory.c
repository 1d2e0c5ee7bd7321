/*
 * What a connection holds of this process, as its socket tells it: charged to its uid; and a peer
 * that does not read is dropped.
 */
#include "session.h"

#include "../limits.h"
#include "server.h"

#define LOOK_MS 1000

/* As long as it takes some, however slowly, it is let be; so is one whose replies are not there. */
static void unread_look(uv_timer_t *timer)
{
    struct session *session = container_of(timer, struct session, unread);
    const uint64_t sent = session->socket.sent_bytes;

    if (!socket_is_stalled(&session->socket) || sent != session->unread_bytes)
        session->unread_looks = 0;
    else
        session->unread_looks++;
    session->unread_bytes = sent;
    if (session->unread_looks >= LIMIT_UNREAD_SECONDS * 1000 / LOOK_MS) {
        session->server->stats.unread++;
        session_close(session, "the client does not read its replies");
    } else if (!session->socket.is_paused) {
        (void)uv_timer_stop(timer);
    }
}

void session_stalled(struct socket *socket)
{
    struct session *session = container_of(socket, struct session, socket);

    if (uv_is_active((uv_handle_t *)&session->unread))
        return;
    session->unread_bytes = socket->sent_bytes;
    session->unread_looks = 0;
    (void)uv_timer_start(&session->unread, unread_look, LOOK_MS, LOOK_MS);
}

/* The connection of this uid with most unread bytes. */
static struct session *slowest_of(struct session *session)
{
    struct session *slowest = session;

    list_for_each(cursor, &session->server->sessions)
    {
        struct session *other = container_of(cursor, struct session, link);

        if (other->uid == session->uid && socket_is_open(&other->socket) &&
            other->socket.queue_bytes > slowest->socket.queue_bytes)
            slowest = other;
    }
    return slowest;
}

/* One that does not read must not cost another connection of its uid the reply it waits for. */
static bool charge_outputs(struct session *session, size_t bytes)
{
    struct fault fault;

    while (charge_resize(&session->charge_outputs, bytes, &fault) != 0) {
        struct session *slowest = slowest_of(session);

        session->server->stats.unread++;
        if (slowest == session)
            return false;
        session_close(slowest, "unread replies beyond the uid's limit");
    }
    return true;
}

bool session_holds(struct socket *socket, const struct socket_holdings *holdings)
{
    struct session *session = container_of(socket, struct session, socket);
    struct fault fault;

    return charge_resize(&session->charge_frames, holdings->frame_bytes, &fault) == 0 &&
           charge_resize(&session->charge_fds, 1 + holdings->fds, &fault) == 0 &&
           charge_outputs(session, holdings->output_bytes);
}
