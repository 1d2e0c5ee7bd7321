/*
 * What the files of libgemmd share.
 *
 * A connection owns its socket, the table of requests under way, its buffer handles and its staging
 * blocks. All of it belongs to the thread that uses the connection; nothing here is shared between
 * connections.
 *
 * Functions return a gemmd_status; one that is not GEMMD_OK has filled the connection's error.
 */
#pragma once

#include <sys/types.h>

#include "../daemon/core/list.h"
#include "../proto/reply.h"
#include "channel.h"
#include "gemmd.h"
#include "matrix.h"

/* Requests that wait for an answer or whose answer waits to be taken. Twice the daemon's limit of
 * unanswered ones, a power of two since ids index it. */
#define CALLS_MAX 1024u

/* One message's operands or result up to here travel inside it, more goes through staging: below,
 * two more copies cost less than a buffer to create or a mapping to touch. */
#define INLINE_MAX ((uint64_t)256 << 10)
/* What the msgpack around inline data may take of a message. */
#define ENVELOPE_MAX 4096u

#define CONNECT_TIMEOUT_MS 10000 /* a daemon that neither accepts nor says hello is not one */
#define FOREVER            INT64_MAX

/* --- requests under way (call.c) ------------------------------------------------------------- */

/* Where a plain D goes when its job is taken. */
struct delivery {
    void *to; /* NULL: D is in a buffer, or nothing is written */
    struct matrix caller, wire;
    uint64_t offset; /* into the staging block; inline results start at 0 */
};

struct call {
    uint32_t id;
    enum method method;
    bool is_done;       /* `reply` holds the answer, or the fault that stands for it */
    struct reply reply; /* its result points into `result` */
    uint8_t *result;    /* owned */
    int fd;             /* owned: descriptor 0 of the reply, -1 when none */

    /* jobs */
    bool is_job;
    bool uses[OPERAND_COUNT]; /* `buffer` is set */
    uint64_t buffer[OPERAND_COUNT];
    struct delivery delivery;
    struct staging_block *block; /* given back when the call is freed */
};

/* Encodes and sends; waits for room when as many requests as allowed wait for an answer. `fd` (-1:
 * none) travels along and stays the caller's. */
gemmd_status
call_start(gemmd *connection, const struct request *request, int fd, struct call **ret_call);
/* As call_start() for gemm_many: one call for each product, their ids in a row. */
gemmd_status call_start_many(gemmd *connection,
                             const struct request *request,
                             struct call *ret_calls[REQUEST_PRODUCTS_MAX]);
/* From now on the call counts as a job until it is freed. */
void call_make_job(gemmd *connection, struct call *call);
/* When a wait of `seconds` ends; negative: FOREVER. */
int64_t call_deadline(double seconds);
/* Waits for the answer; the error of a refused request is not looked at. GEMMD_TIMEOUT leaves the
 * call under way. */
gemmd_status call_await(gemmd *connection, struct call *call, int64_t deadline_ns);
/* GEMMD_OK when the answer is a result; `context` is put before a fault's message. */
gemmd_status call_check(gemmd *connection, const struct call *call, const char *context);
/* The three of them: an answered call that succeeded. */
gemmd_status
call_perform(gemmd *connection, const struct request *request, int fd, struct call **ret_call);
/* Forgets an answered call (or any, when the connection goes). NULL is allowed; returns NULL. */
struct call *call_free(gemmd *connection, struct call *call);
struct call *call_find(const gemmd *connection, uint64_t id);
/* Takes in what has arrived, without waiting. */
void call_collect(gemmd *connection);
/* The answer is not what the protocol says. */
gemmd_status call_malformed(gemmd *connection, const struct call *call);

/* --- staging (staging.c) --------------------------------------------------------------------- */

/* A daemon-owned host buffer that carries the plain operands of one job at a time, or the chunks
 * of one transfer. */
struct staging_block {
    struct list link;
    gemmd_buffer *buffer;
    bool is_busy;
};

gemmd_status staging_take(gemmd *connection, uint64_t size, struct staging_block **ret_block);
void staging_give(gemmd *connection, struct staging_block *block);
void staging_deinit(gemmd *connection);

/* --- buffers (buffer.c) ---------------------------------------------------------------------- */

struct gemmd_buffer {
    struct list link;
    gemmd *connection;
    uint64_t id, size;
    enum gemmd_memory memory;
    bool is_writable;
    void *data;    /* host memory, mapped */
    size_t mapped; /* bytes at `data` */
};

/* Frees the handle and its mapping and tells nobody. */
void buffer_forget(gemmd_buffer *buffer);
/* Common first lines of what makes a handle. */
gemmd_status buffer_check_target(gemmd *connection, gemmd_buffer **ret);
/* Asks the daemon and makes the handle. `own_fd`: the caller's memfd, or -1. */
gemmd_status
buffer_obtain(gemmd *connection, const struct request *request, int own_fd, gemmd_buffer **ret);

/* --- connection (connection.c) --------------------------------------------------------------- */

struct gemmd {
    struct channel channel;
    pid_t pid;         /* who connected */
    bool is_lost;      /* the socket is dead, every call is answered */
    struct fault lost; /* why */
    bool may_spin;     /* enough CPUs to spend one on waiting */
    gemmd_error error; /* the last one */
    struct reply_hello hello;

    struct call *calls[CALLS_MAX]; /* by id modulo CALLS_MAX */
    uint32_t next_id;
    uint32_t in_flight_max;
    uint32_t unanswered;   /* calls that are not done */
    uint32_t jobs;         /* submitted and not taken */
    uint32_t jobs_done;    /* of those, answered */
    int epoll_fd, done_fd; /* gemmd_fd(): the socket, and whether jobs_done > 0; -1 until asked */
    bool done_is_raised;

    struct list buffers; /* gemmd_buffer */
    struct list staging; /* struct staging_block */
};

/* Refuses a connection that is NULL, of another process, or lost. First line of every entry. */
gemmd_status connection_check(gemmd *connection);
gemmd_status connection_fail(gemmd *connection,
                             gemmd_status status,
                             const char *argument,
                             const char *format,
                             ...) printf_like(4, 5);
gemmd_status connection_fail_fault(gemmd *connection, const struct fault *fault);
/* Makes gemmd_fd() readable while answered jobs wait to be taken. */
void connection_show_done(gemmd *connection);
/* Most bytes of inline data in one message of this connection. */
uint64_t connection_inline_max(const gemmd *connection);

/* --- products (product.c) -------------------------------------------------------------------- */

/* The request of a product as the daemon gets it, operands absent; checks all but the operands.
 * `ret_product` is what was given, with the members that the caller's header does not have. */
gemmd_status product_translate(gemmd *connection,
                               const gemmd_product *given,
                               gemmd_product *ret_product,
                               struct request_gemm *ret_request);
/* A problem's faults carry wire names; gemmd.h calls some otherwise. */
void product_name_fault(struct fault *fault);
