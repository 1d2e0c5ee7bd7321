/*
 * One client: hello first, then requests, each answered exactly once, in any order. A request that
 * is wrong is answered with a fault and the connection lives; a frame or message that is not one
 * ends this connection only.
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
    uv_timer_t timer; /* hello, or the rest of a frame; armed only while one is due */
    uid_t uid;
    gid_t gid;
    pid_t pid;
    struct charge charge, charge_fds; /* of itself; of descriptors that it holds */
    struct charge charge_frames, charge_outputs;
    struct handles handles;
    struct stream stream;   /* its jobs */
    struct list parked;     /* frames that wait for the first worker */
    uint32_t in_flight;     /* requests without an answer */
    uint64_t partial_bytes; /* received when the timer was armed for the rest of a frame */
    uint64_t received_ns;   /* when the request came that is being served */
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

/* The answer to one request. `message` is taken, `fd` consumed (-1: none). */
void session_answer(struct session *session, struct message *message, int fd);
void session_answer_empty(struct session *session, uint32_t id);
void session_answer_fault(struct session *session, uint32_t id, const struct fault *fault);
void session_answer_buffer(struct session *session,
                           uint32_t id,
                           const struct reply_buffer *reply,
                           int fd);
