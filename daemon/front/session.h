/*
 * One client: hello first, then requests, each answered exactly once, in any order. A request that
 * is wrong is answered with a fault and the connection lives; a frame or message that is not one
 * ends this connection only.
 *
 * A peer that lets more than SOCKET_QUEUE_PAUSE bytes of replies wait is not read from until it has
 * taken them, and is dropped when it takes none for LIMIT_UNREAD_SECONDS. When a uid has more
 * unread bytes than it may, the connection that has most of them is dropped.
 *
 * Bounds: LIMIT_IN_FLIGHT requests wait for an answer at once (reading stops there), hello within
 * LIMIT_HELLO_SECONDS, the rest of a frame within LIMIT_PARTIAL_FRAME_SECONDS. Requests that come
 * before the first worker is ready are parked, not refused.
 *
 * Owner: the server's list; it frees itself when its handles are closed. Thread: loop.
 */
#pragma once

#include "../../proto/reply.h"
#include "../core/list.h"
#include "buffer.h"
#include "quota.h"
#include "socket.h"
#include "turns.h"

struct server;

struct session {
    struct list link; /* in server.sessions */
    struct server *server;
    struct socket socket;
    uv_timer_t timer;  /* hello, or the rest of a frame; armed only while one is due */
    uv_timer_t unread; /* while the peer owes us that it reads */
    uid_t uid;
    gid_t gid;
    pid_t pid;
    struct charge charge, charge_fds; /* of itself; of descriptors that it holds */
    struct charge charge_frames, charge_outputs;
    struct handles handles;
    struct stream stream; /* its jobs */
    struct list parked;   /* frames that wait for the first worker */
    uint32_t in_flight;   /* requests without an answer */
    uint32_t open_timers;
    uint32_t unread_looks;  /* at it without progress */
    uint64_t unread_bytes;  /* sent at the last one */
    uint64_t partial_bytes; /* received when the timer was armed for the rest of a frame */
    uint64_t received_ns;   /* when the request came that is being served */
    uint64_t answered_ns;   /* of one that was parked: products due earlier were answered */
    bool has_hello, is_gone;
};

enum {
    SESSION_E_FAULT = 1, /* a handler's "answer this fault" */
};

/* Consumes `fd`, also on failure. */
int session_new(struct server *server, int fd, uid_t uid, gid_t gid, pid_t pid);
void session_close(struct session *session, const char *reason);
/* The first worker is ready: take the parked frames. */
void session_unpark(struct session *session);
/* Answers what is late of them; the earliest deadline to come, 0: there is none. */
uint64_t session_expire(struct session *session, uint64_t now_ns);

/* The answer to one request. `message` is taken, `fd` consumed (-1: none). */
void session_answer(struct session *session, struct message *message, int fd);
void session_answer_empty(struct session *session, uint32_t id);
void session_answer_fault(struct session *session, uint32_t id, const struct fault *fault);
void session_answer_buffer(struct session *session,
                           uint32_t id,
                           const struct reply_buffer *reply,
                           int fd);

/* session_memory.c: operations of its socket. */
bool session_holds(struct socket *socket, const struct socket_holdings *holdings);
void session_stalled(struct socket *socket);
