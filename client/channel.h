/*
 * The client's end of the stream: frames with descriptors, never blocking.
 *
 * Frames are cut out of one receive buffer. Descriptors of a frame travel with its first byte and
 * arrive in order, so a first-in first-out of descriptors beside the buffer is enough to hand each
 * frame its own. Whoever calls decides when to wait (channel_poll) and what a lost stream means.
 *
 * Owner: the connection that embeds it. Thread: the connection's.
 */
#pragma once

#include "../daemon/core/status.h"
#include "../proto/frame.h"

#define CHANNEL_FDS_MAX (2 * FRAME_FDS_MAX) /* one frame begun, one set just received */

struct channel_frame {
    const uint8_t *payload; /* valid until the next channel_receive() */
    size_t size;
    int fds[FRAME_FDS_MAX]; /* owned by whoever took the frame */
    size_t n_fds;
};

struct channel {
    int fd;
    uint32_t length_max; /* payload bytes of a frame, both ways */
    const char *reason;  /* of CHANNEL_E_LOST, one sentence */
    uint8_t *bytes;      /* owned; what lies in [begin, end) is not yet taken */
    size_t begin, end, capacity;
    int fds[CHANNEL_FDS_MAX]; /* received, not yet taken by a frame */
    size_t n_fds;
};

#define CHANNEL_NULL ((struct channel){.fd = -1, .length_max = FRAME_LENGTH_MAX})

enum {
    CHANNEL_E_AGAIN = 1, /* nothing now: poll */
    CHANNEL_E_LOST,      /* end of file, or the peer broke the framing; `reason` says which */
    CHANNEL_E_REFUSED,   /* send: the kernel took no byte of this message, the stream is whole */
};

/* Connects within `timeout_ms`. */
enum status
channel_connect(struct channel *channel, const char *path, int timeout_ms, struct fault *ret_fault);
void channel_deinit(struct channel *channel);

/* One recvmsg: 0 when bytes came. */
int channel_receive(struct channel *channel);
/* The next whole frame of what was received; CHANNEL_E_AGAIN when there is none. */
int channel_next(struct channel *channel, struct channel_frame *ret_frame);
/* Sends what fits. `fd` (-1: none) goes with the first byte. CHANNEL_E_REFUSED leaves errno. */
int channel_send(
    struct channel *channel, const uint8_t *bytes, size_t size, int fd, size_t *ret_sent);
/* Waits for `events` of poll(2) until `timeout_ns` passed (negative: for ever). Returns revents, 0
 * when the time was up or a signal came. */
int channel_poll(const struct channel *channel, short events, int64_t timeout_ns);
