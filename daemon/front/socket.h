/*
 * One client's stream socket: frames with descriptors in, frames with descriptors out, on uv_poll
 * and our own recvmsg/sendmsg (libuv's pipes lose memfds).
 *
 * Reading: never past a frame that carries descriptors; MSG_CTRUNC, a wrong header, a descriptor
 * set that differs from n_fds, or data after the peer's half-close of a partial frame end the
 * connection. Writing: queued, WRITABLE asked for only while something is queued; a queue over
 * SOCKET_QUEUE_PAUSE stops reading (back-pressure). How much it may come to, and how long a peer
 * may let it stand, is its owner's to say: `holds`, `stalled`.
 *
 * Owner: the session that embeds it. Thread: loop.
 */
#pragma once

#include "../../proto/frame.h"
#include "../../proto/request.h"
#include "../core/list.h"
#include <uv.h>

#define SOCKET_QUEUE_PAUSE (32u << 20) /* bytes: two largest replies */
#define SOCKET_MEMORY_STEP (64u << 10) /* bytes: most connections never take one */

struct socket;

/* Of this process, for one peer. Bytes in steps of SOCKET_MEMORY_STEP. */
struct socket_holdings {
    size_t frame_bytes;  /* of an unfinished frame */
    size_t output_bytes; /* of unread replies */
    size_t fds;          /* that came with an unfinished frame, or wait to be sent */
};

struct socket_operations {
    /* One whole frame. Descriptors in `fds` are consumed by the callee (set to -1 what it takes;
     * the rest is closed after the call). `payload` is valid during the call and writable. */
    void (*frame)(struct socket *socket, uint8_t *payload, size_t size, int *fds, size_t n_fds);
    /* What could be read was, and an unfinished frame remains: it is due within
     * LIMIT_PARTIAL_FRAME_SECONDS. NULL is allowed. */
    void (*partial)(struct socket *socket);
    /* The socket holds so much now. False: more than this peer may have, and the connection ends;
     * less than before is never refused. NULL: no bound but those below. */
    bool (*holds)(struct socket *socket, const struct socket_holdings *holdings);
    /* Reading has stopped because of what waits to be written: from now on the peer owes us that it
     * reads. NULL is allowed. */
    void (*stalled)(struct socket *socket);
    /* The connection is over (end of file, violation, error, or socket_close). Called once, as the
     * last call, when the handle is closed and the memory may go. `reason` for the log. */
    void (*closed)(struct socket *socket, const char *reason);
};

struct socket {
    const struct socket_operations *operations;
    uv_poll_t poll;
    int fd;
    int events; /* of uv_poll, as last set */
    bool is_closing, is_paused, is_held;
    const char *reason;
    /* read side */
    uint8_t header[FRAME_HEADER_SIZE];
    size_t header_size;
    struct frame_header frame;
    uint8_t *payload; /* owned; grows with the bytes that come, not with those that are claimed */
    size_t payload_size, payload_capacity;
    int fds[FRAME_FDS_MAX];
    size_t n_fds;
    unsigned lone_frames; /* wake-ups in a row that brought one frame: socket_read() */
    /* write side */
    struct list queue; /* of struct socket_output, in socket.c */
    size_t queue_bytes, queue_fds;
    size_t expected_bytes;       /* of replies to requests that were read */
    struct socket_holdings told; /* to `holds`, last */
    uint64_t received_bytes, sent_bytes;
};

/* Consumes `fd` (a connected, non-blocking stream socket) on success. */
int socket_init(struct socket *socket,
                uv_loop_t *loop,
                int fd,
                const struct socket_operations *operations);
/* Queues a frame; takes the message's bytes. `fd` >= 0 travels with it and is consumed. Tries to
 * write at once. On a closing socket the message and the descriptor are only freed. May close. */
void socket_send(struct socket *socket, struct message *message, int fd);
/* Sends a last fault (status PROTOCOL, id REPLY_ID_LAST) as far as the peer takes it at once,
 * and closes: for a frame or message that breaks the protocol. `sentence` has static lifetime. */
void socket_refuse(struct socket *socket, const char *sentence);
/* Stops and resumes reading: the session's own bound on requests in flight. While reading is
 * stopped, a peer that hangs up still ends the connection. */
void socket_hold(struct socket *socket, bool hold);
/* Replies of so many bytes are on their way: they count as queued when it is decided whether to
 * read on, or a client that only asks for much and is busy for a while would be taken for one that
 * does not read. Taken back before the reply is sent. */
void socket_expect(struct socket *socket, size_t bytes);
void socket_unexpect(struct socket *socket, size_t bytes);
/* Replies wait, too many to read on. */
bool socket_is_stalled(const struct socket *socket);
/* Not held, paused or closing: the peer's next bytes are waited for. */
bool socket_is_reading(const struct socket *socket);
/* Idempotent. What is queued is dropped. `reason` has static lifetime. */
void socket_close(struct socket *socket, const char *reason);
bool socket_is_open(const struct socket *socket);
/* Whether bytes of an unfinished frame lie here; with received_bytes standing still, that is half a
 * frame and then silence. */
bool socket_has_partial_frame(const struct socket *socket);
