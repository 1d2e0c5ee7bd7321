/*
 * Replies, both directions. A reply is [1, id, error, result]: error is nil or a map {code, name,
 * message, argument}; result is nil or a map by method.
 */
#pragma once

#include "request.h"

/* Of a reply that answers no request: the last message before the daemon ends a connection that
 * broke the protocol or that it cannot serve. No request has this id. */
#define REPLY_ID_LAST UINT32_MAX

#define REPLY_CONFIGURATION_MAX 96 /* canonical text with its zero, as CONFIG_TEXT_MAX */

struct reply_hello {
    uint32_t version;       /* protocol version of this connection */
    char daemon[32];        /* the daemon's version, "0.1.0" */
    uint32_t length_max;    /* payload bytes of a frame */
    uint32_t in_flight_max; /* requests of a connection that may wait for an answer */
    char device[96];        /* name; "" while no worker is ready */
    char device_kind[8];    /* "cpu", "cuda" */
    bool ready;
};

struct reply_gemm {
    char configuration[REPLY_CONFIGURATION_MAX];
    uint32_t epoch;                /* tuning epoch: same problem and epoch, same bits */
    uint64_t queued_ns, device_ns; /* from receipt to start, from start to end */
    double compile_seconds;        /* 0 when the kernel was there */
    const void *data; /* d, when it came inline: rows of ldd elements as the request said */
    size_t size;
};

struct reply_buffer {
    uint64_t id, size;
    enum buffer_kind kind;
    bool writable;
    /* host buffers: descriptor 0 of the frame is the memfd, to be mapped */
    /* buffer.export: descriptor 0 is the device memory */
    uint64_t allocation; /* its bytes; 0 in other replies, which then lack `device`, too */
    char device[64];     /* "GPU-...", empty for the CPU */
    /* buffer.read: points into the payload. The fields above are left out while kind is 0. */
    const void *data;
    size_t data_size;
};

/* status, stats, explain, cache.*: a tree of named values, encoded as a msgpack map. The order is
 * the order of the calls. Used for what people and dashboards read. At most four levels below the
 * root; lack of memory shows in reply_encode_map(). */
struct reply_map; /* opaque builder */

int reply_map_new(struct reply_map **ret_map);
struct reply_map *reply_map_free(struct reply_map *map);
void reply_map_open(struct reply_map *map, const char *name); /* nested map; name NULL in arrays */
void reply_map_open_array(struct reply_map *map, const char *name);
void reply_map_close(struct reply_map *map);
void reply_map_text(struct reply_map *map, const char *name, const char *value);
void reply_map_unsigned(struct reply_map *map, const char *name, uint64_t value);
void reply_map_real(struct reply_map *map, const char *name, double value);
void reply_map_bool(struct reply_map *map, const char *name, bool value);

/* Each encodes a whole frame into an empty message. < 0 for lack of memory, and -EMSGSIZE when the
 * payload would be over FRAME_LENGTH_MAX: inline data is bounded by REQUEST_INLINE_MAX before. */
int reply_encode_fault(uint32_t id, const struct fault *fault, struct message *ret_message);
int reply_encode_empty(uint32_t id, struct message *ret_message);
int reply_encode_hello(uint32_t id, const struct reply_hello *reply, struct message *ret_message);
int reply_encode_gemm(uint32_t id, const struct reply_gemm *reply, struct message *ret_message);
int reply_encode_cancel(uint32_t id, bool cancelled, struct message *ret_message);
int reply_encode_buffer(uint32_t id,
                        const struct reply_buffer *reply,
                        uint16_t n_fds,
                        struct message *ret_message);
int reply_encode_map(uint32_t id, const struct reply_map *map, struct message *ret_message);

struct reply {
    uint32_t id;
    struct fault fault; /* status OK when the request succeeded */
    /* The result map, as the payload's bytes; NULL when nil. Decode with one of the calls below. */
    const uint8_t *result;
    size_t result_size;
};

enum {
    REPLY_E_MALFORMED = 1, /* not a reply, or a result without a field it must have */
};

int reply_decode(const uint8_t *payload, size_t size, struct reply *ret_reply);
int reply_decode_hello(const struct reply *reply, struct reply_hello *ret);
int reply_decode_gemm(const struct reply *reply, struct reply_gemm *ret);
int reply_decode_cancel(const struct reply *reply, bool *ret_cancelled);
int reply_decode_buffer(const struct reply *reply, struct reply_buffer *ret);
/* The result as JSON text (owned by the caller), for status, stats, explain, cache.*. */
int reply_decode_json(const struct reply *reply, char **ret_json);
