/*
 * Requests of the protocol as plain structs, and both directions of their encoding. msgpack-c is
 * used inside proto/ only. proto/protocol.md is the specification.
 *
 * Decoding copies everything except inline matrix data and names, which point into the frame's
 * payload and live as long as it does.
 */
#pragma once

#include "../daemon/core/problem.h"
#include "../daemon/core/status.h"
#include "../daemon/core/std.h"
#include "frame.h"

#define PROTOCOL_VERSION 1

enum method {
    METHOD_HELLO,           /* "hello": first message of a connection */
    METHOD_GEMM,            /* "gemm" */
    METHOD_GEMM_MANY,       /* "gemm_many": several products in one message */
    METHOD_CANCEL,          /* "cancel": a request that has not started */
    METHOD_BUFFER_CREATE,   /* "buffer.create": device or host memory owned by the daemon */
    METHOD_BUFFER_REGISTER, /* "buffer.register": the client's memfd, as descriptor 0 */
    METHOD_BUFFER_IMPORT,   /* "buffer.import": the client's device memory */
    METHOD_BUFFER_OPEN,     /* "buffer.open": by name */
    METHOD_BUFFER_FREE,     /* "buffer.free": gives the id back; memory goes with its last user */
    METHOD_BUFFER_WRITE,    /* "buffer.write": inline bytes into a buffer */
    METHOD_BUFFER_READ,     /* "buffer.read": inline bytes out of a buffer */
    METHOD_BUFFER_COPY,     /* "buffer.copy": between buffers, ordered with the stream's jobs */
    METHOD_BUFFER_FREEZE,   /* "buffer.freeze": its owner will not write it any more */
    METHOD_BUFFER_EXPORT,   /* "buffer.export": a descriptor of device memory */
    METHOD_STATUS,          /* "status" */
    METHOD_STATS,           /* "stats" */
    METHOD_EXPLAIN,         /* "explain": plan of a gemm that is not run */
    METHOD_TUNE,            /* "tune": times the plan's best few for a gemm that is not run */
    METHOD_CACHE_LIST,      /* "cache.list" */
    METHOD_CACHE_VERIFY,    /* "cache.verify" */
    METHOD_CACHE_PREWARM,   /* "cache.prewarm": compile one configuration by text */
    METHOD_CACHE_PRUNE,     /* "cache.prune" */
    METHOD_COUNT,
};

const char *method_name(enum method method);

enum operand_kind {
    OPERAND_ABSENT, /* a, b when not read; c when beta = 0; d: the result comes back inline */
    OPERAND_BUFFER, /* buffer number and byte offset */
    OPERAND_INLINE, /* bytes in the message; inputs only */
};

struct request_operand {
    enum operand_kind kind;
    uint64_t buffer;
    uint64_t offset; /* bytes */
    const void *data;
    size_t size; /* bytes of `data` */
};

struct request_gemm {
    /* As given: ld and stride PROBLEM_DEFAULT when absent, column-major not converted,
     * problem_check() not called. The output type is filled. */
    struct problem problem;
    bool column_major;
    struct request_operand operand[OPERAND_COUNT];
    uint64_t deadline_us; /* from receipt; later it is not started. 0: any time */
    int priority;         /* among the products of the peer's uid */
    uint32_t keep;        /* tune: candidates that are timed */
};

#define REQUEST_DEADLINE_MAX (UINT64_C(1) << 53) /* us: 285 years, and still countable in ns */
#define REQUEST_KEEP_DEFAULT 4                   /* the model is seldom wrong by more places */
#define REQUEST_KEEP_MAX     32
#define REQUEST_PRIORITY_MAX 1 /* and -1: what a uid says of its own work */

/* Products of one message: what a message costs is then 3 % of what they cost, and with all their
 * fields they stay far under SCAN_VALUES_MAX. */
#define REQUEST_PRODUCTS_MAX 32

struct request_product {
    struct request_gemm gemm;
    struct fault fault; /* status set: this product is refused, the others are not */
};

struct request_many {
    struct request_product *products; /* owned: request_deinit() */
    size_t count;
};

enum buffer_kind {
    BUFFER_HOST = 1,
    BUFFER_DEVICE = 2,
};

#define REQUEST_HANDLE_SIZE 64 /* bytes of a legacy CUDA handle */

#define BUFFER_NAME_MAX     64   /* bytes, printable ASCII without space and '/' */
#define BUFFER_MODE_DEFAULT 0600 /* of a named buffer */

#define REQUEST_CLIENT_MAX        128 /* bytes of hello's client text: a log line holds it */
#define REQUEST_CONFIGURATION_MAX 95  /* bytes, as REPLY_CONFIGURATION_MAX without its zero */

/* Inline bytes that fit into one frame whatever else the message says: bound of buffer.read and of
 * an inline D. */
#define REQUEST_INLINE_MAX (FRAME_LENGTH_MAX - 4096)

struct request_buffer {
    enum buffer_kind kind; /* create */
    uint64_t size;         /* create, register, import: bytes */
    const char *name;      /* create, import, open; not zero-terminated; NULL when unnamed */
    size_t name_size;
    uint32_t mode;   /* create, import: permission bits like a file's; they matter with a name */
    bool exportable; /* create: device memory that buffer.export gives away */
    bool writable;   /* register, import, open: may jobs write it */
    uint64_t id;     /* free, write, read, export */
    uint64_t offset; /* write, read, import: bytes */
    uint64_t allocation;   /* import: bytes of the whole; 0: it ends with the buffer */
    const uint8_t *handle; /* import: REQUEST_HANDLE_SIZE bytes; NULL: by descriptor 0 */
    const void *data;      /* write */
    uint64_t length;       /* write: size of data; read: bytes wanted */
};

struct request_copy {
    uint64_t source, source_offset, destination, destination_offset, length; /* bytes */
};

struct request_cache {
    const char *configuration; /* prewarm; not zero-terminated */
    size_t configuration_size;
    uint64_t max_bytes; /* prune */
};

struct request_hello {
    uint32_t version;   /* highest protocol version the client speaks */
    const char *client; /* free text, for logs; may be NULL */
    size_t client_size;
};

struct request {
    uint32_t id; /* chosen by the client, repeated in the reply */
    enum method method;

    union {
        struct request_hello hello;
        uint32_t cancel;          /* a request's id */
        struct request_gemm gemm; /* also for explain */
        struct request_many many;
        struct request_buffer buffer;
        struct request_copy copy;
        struct request_cache cache;
    } body;
};

/* Growing output of an encoder, frame header included once frame_finish() ran. */
struct message {
    uint8_t *bytes; /* owned */
    size_t size, capacity;
};

#define MESSAGE_NULL ((struct message){0})

void message_deinit(struct message *message);

/* Encodes a whole frame (header and payload) into an empty message. Writes what the struct says,
 * also what the daemon will refuse: its fault names the argument. < 0 for lack of memory, and
 * -EMSGSIZE when the payload would be over FRAME_LENGTH_MAX. */
int request_encode(const struct request *request, uint16_t n_fds, struct message *ret_message);

enum {
    REQUEST_E_MALFORMED = 1, /* not a request at all: the connection ends */
    REQUEST_E_REFUSED, /* a request with a bad field: answer `ret_fault`, go on. ret_request->id
                          is valid */
};

/* Requests in the message: 1, or the products of gemm_many. Their ids count up from `id`. */
size_t request_count(const struct request *request);
/* Descriptors that it comes with. */
size_t request_descriptors(const struct request *request);
/* Frees what decoding allocated; also after a refusal. */
void request_deinit(struct request *request);

/* `payload` is one frame's payload. */
int request_decode(const uint8_t *payload,
                   size_t size,
                   struct request *ret_request,
                   struct fault *ret_fault);
