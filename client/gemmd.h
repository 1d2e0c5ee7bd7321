/*
 * libgemmd: matrix products by the gemmd daemon. The only public header; C, no CUDA, no libuv.
 *
 *   D = act(alpha * op(A) @ op(B) + beta * C + bias)
 *
 * Matrices are row-major unless the order says otherwise. Leading dimensions and strides count
 * elements, offsets and sizes count bytes. BLAS rules hold exactly: beta = 0 never reads C,
 * alpha = 0 or k = 0 never reads A and B, m = 0 or n = 0 succeeds and touches nothing. Bias and
 * activation are optional; they apply whatever alpha, beta and k are.
 *
 * Threads: a connection and everything made from it is used by one thread at a time; different
 * connections are independent. The library starts no thread, installs no signal handler, prints
 * nothing and raises no SIGPIPE.
 *
 * Fork: in a child process every call on a connection of the parent returns GEMMD_FORKED and sends
 * nothing; the parent's session lives on. gemmd_close() in the child only frees memory.
 *
 * Lost connection: pending and later calls return GEMMD_DISCONNECTED. Unnamed buffers are gone,
 * named ones can be opened again over a new connection. Mapped host memory stays readable until
 * its buffer is freed.
 */
#ifndef GEMMD_H
#define GEMMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GEMMD_VERSION_MAJOR 0
#define GEMMD_VERSION_MINOR 1
#define GEMMD_VERSION_PATCH 0

#ifndef GEMMD_API
#    define GEMMD_API __attribute__((visibility("default")))
#endif

/* Every call that can fail returns one of these; GEMMD_OK is 0. */
typedef enum gemmd_status {
    GEMMD_OK = 0,
    GEMMD_INVALID_ARGUMENT = 1,
    GEMMD_UNSUPPORTED = 2,
    GEMMD_NOT_FOUND = 3,
    GEMMD_PERMISSION = 4,
    GEMMD_LIMIT = 5,
    GEMMD_OUT_OF_MEMORY = 6,
    GEMMD_COMPILE_FAILED = 7,
    GEMMD_COMPILE_TIMEOUT = 8,
    GEMMD_GPU_FAULT = 9,
    GEMMD_BUFFER_LOST = 10,
    GEMMD_CANCELLED = 11,
    GEMMD_SHUTTING_DOWN = 12,
    GEMMD_EXISTS = 13,
    GEMMD_PROTOCOL = 14,
    GEMMD_INTERNAL = 15,
    GEMMD_DISCONNECTED = 16,
    GEMMD_FORKED = 17,
    GEMMD_TIMEOUT = 18,
    GEMMD_DEADLINE = 19
} gemmd_status;

typedef enum gemmd_dtype {
    GEMMD_DTYPE_DEFAULT = 0, /* output only: the input's own type, int32 for int8 */
    GEMMD_BF16 = 1,
    GEMMD_FP16 = 2,
    GEMMD_FP32 = 3,
    GEMMD_FP64 = 4,
    GEMMD_INT8 = 5,
    GEMMD_INT32 = 6
} gemmd_dtype;

/* What each value of the bias belongs to: a row of D (m values) or a column (n values, as in a
 * linear layer). They lie side by side and are of the output's type. */
typedef enum gemmd_bias_kind {
    GEMMD_BIAS_NONE = 0,
    GEMMD_BIAS_PER_ROW = 1,
    GEMMD_BIAS_PER_COLUMN = 2
} gemmd_bias_kind;

/* int32 results have none and relu. */
typedef enum gemmd_activation {
    GEMMD_ACTIVATION_NONE = 0,
    GEMMD_RELU = 1,
    GEMMD_GELU = 2,      /* by the error function: x (1 + erf(x / sqrt 2)) / 2 */
    GEMMD_GELU_TANH = 3, /* its approximation: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    GEMMD_SILU = 4       /* x / (1 + exp(-x)), also called swish */
} gemmd_activation;

typedef enum gemmd_order { GEMMD_ROW_MAJOR = 0, GEMMD_COLUMN_MAJOR = 1 } gemmd_order;

typedef struct gemmd gemmd;               /* a connection */
typedef struct gemmd_buffer gemmd_buffer; /* memory a job may name */

/* "not given": the row length for a leading dimension, one whole operand for a stride. */
#define GEMMD_DEFAULT INT64_MIN

/* --- connection ------------------------------------------------------------------------------ */

typedef struct gemmd_error {
    gemmd_status status;
    char argument[48];  /* which argument, "" when none: "a.ld", "k", "socket" */
    char message[1024]; /* what was given and what is allowed, one sentence */
} gemmd_error;

/* `path` NULL: $GEMMD_SOCKET, else $XDG_RUNTIME_DIR/gemmd.sock, else /run/gemmd/gemmd.sock. On
 * failure *ret is NULL and `ret_error` (may be NULL) describes it; GEMMD_DISCONNECTED when no
 * daemon is there, GEMMD_TIMEOUT when it does not answer within 10 s. */
GEMMD_API gemmd_status gemmd_connect(const char *path, gemmd **ret, gemmd_error *ret_error);
/* Frees the connection and every buffer handle made from it. NULL is allowed. */
GEMMD_API void gemmd_close(gemmd *connection);
/* The last failure on this connection; valid until the next call on it. Never NULL. */
GEMMD_API const gemmd_error *gemmd_last_error(const gemmd *connection);
GEMMD_API const char *gemmd_strerror(gemmd_status status); /* "INVALID_ARGUMENT" */
GEMMD_API const char *gemmd_dtype_name(gemmd_dtype dtype);
GEMMD_API size_t gemmd_dtype_size(gemmd_dtype dtype);

typedef struct gemmd_info {
    size_t size; /* sizeof(gemmd_info), set by the caller */
    char daemon[32];
    char device[96];
    char device_kind[8]; /* "cpu", "cuda" */
    uint32_t in_flight_max;
    uint32_t message_max; /* bytes of a message: bound of inline operands and results */
    bool ready;           /* a worker is up (requests before that wait for it) */
} gemmd_info;

GEMMD_API gemmd_status gemmd_get_info(gemmd *connection, gemmd_info *ret);

/* --- buffers --------------------------------------------------------------------------------- */

/* Device memory that is exportable is an allocation of its own, of 2 MiB at least on current GPUs;
 * other device memory may share one. */
typedef enum gemmd_memory {
    GEMMD_HOST = 1,
    GEMMD_DEVICE = 2,
    GEMMD_DEVICE_EXPORTABLE = 3
} gemmd_memory;

/* Daemon-owned memory. Host memory is mapped into this process: gemmd_buffer_data(). With `name`
 * (at most 64 printable bytes without space and '/') other clients can open it, as `mode` (0600,
 * 0640, ...) allows, and it lives until the last handle and the daemon's name are gone:
 * gemmd_buffer_free() by its creator removes the name. NULL: private to this connection. New memory
 * is zero. */
GEMMD_API gemmd_status gemmd_buffer_create(gemmd *connection,
                                           gemmd_memory memory,
                                           uint64_t size,
                                           const char *name,
                                           unsigned mode,
                                           gemmd_buffer **ret);
GEMMD_API gemmd_status gemmd_buffer_open(gemmd *connection,
                                         const char *name,
                                         bool writable,
                                         gemmd_buffer **ret);
/* Registers a memfd of the caller's (needs F_SEAL_SHRINK, no huge pages); the descriptor is not
 * consumed. */
GEMMD_API gemmd_status gemmd_buffer_register(
    gemmd *connection, int memfd, uint64_t size, bool writable, gemmd_buffer **ret);

/* Nobody writes this host buffer any more, through whatever mapping: the daemon may then keep a
 * copy on the device, and products read that. For who made it; it cannot be taken back. Waits for
 * this connection's jobs that write the buffer. */
GEMMD_API gemmd_status gemmd_buffer_freeze(gemmd_buffer *buffer);

/* Device memory of the caller's own CUDA as a buffer, without a copy. The daemon maps it once and
 * keeps it until gemmd_buffer_free() or the end of the connection, with which its name goes, too.
 */
typedef struct gemmd_import {
    size_t size; /* sizeof(gemmd_import): use GEMMD_IMPORT_INIT */
    /* From cuMemExportToShareableHandle(), POSIX descriptor; not consumed. (For a daemon on the CPU
     * a memfd with F_SEAL_SHRINK.) -1: */
    int fd;
    const void *ipc_handle; /* 64 bytes from cuIpcGetMemHandle(): for users the daemon trusts */
    uint64_t offset;        /* where in the allocation the buffer begins; a multiple of 256 */
    uint64_t bytes;         /* of the buffer */
    uint64_t allocation;    /* bytes of the whole; 0: it ends with the buffer. Descriptors only */
    bool writable;
    const char *name; /* NULL: private to this connection */
    unsigned mode;    /* of the name, as gemmd_buffer_create()'s */
} gemmd_import;

#define GEMMD_IMPORT_INIT                                                                          \
    {                                                                                              \
        .size = sizeof(gemmd_import), .fd = -1, .ipc_handle = NULL, .offset = 0, .bytes = 0,       \
        .allocation = 0, .writable = false, .name = NULL, .mode = 0600                             \
    }

/* As with exported memory nothing orders the caller's kernels with the daemon's jobs. Two buffers
 * on one memory are not seen as one: wait for jobs that write it before using the other. */
GEMMD_API gemmd_status gemmd_buffer_import(gemmd *connection,
                                           const gemmd_import *memory,
                                           gemmd_buffer **ret);

typedef struct gemmd_export {
    size_t size;         /* sizeof(gemmd_export), set by the caller */
    int fd;              /* the caller's; close-on-exec */
    uint64_t allocation; /* bytes behind it, for mapping: the buffer's and what rounds them up */
    char device[64];     /* "GPU-...", or empty: the daemon computes on the CPU */
} gemmd_export;

/* A descriptor of an exportable device buffer's memory, for the caller's own CUDA:
 * cuMemImportFromShareableHandle() with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR on the device of
 * that uuid. (Of the CPU's device memory it is a memfd.) Needs a handle that may write. The memory
 * lives as long as anybody maps it. Nothing orders the caller's kernels with the daemon's jobs:
 * wait for jobs before using what they write, and synchronize before submitting what reads. */
GEMMD_API gemmd_status gemmd_buffer_export(gemmd_buffer *buffer, gemmd_export *ret);
/* Jobs that use the buffer finish first. NULL is allowed. */
GEMMD_API void gemmd_buffer_free(gemmd_buffer *buffer);
GEMMD_API void *gemmd_buffer_data(gemmd_buffer *buffer); /* NULL for device memory */
GEMMD_API uint64_t gemmd_buffer_size(const gemmd_buffer *buffer);
/* Copies bytes in and out, in order with this connection's jobs; any size. */
GEMMD_API gemmd_status gemmd_buffer_write(gemmd_buffer *buffer,
                                          uint64_t offset,
                                          const void *data,
                                          uint64_t size);
GEMMD_API gemmd_status gemmd_buffer_read(gemmd_buffer *buffer,
                                         uint64_t offset,
                                         void *data,
                                         uint64_t size);
GEMMD_API gemmd_status gemmd_buffer_copy(gemmd_buffer *destination,
                                         uint64_t destination_offset,
                                         gemmd_buffer *source,
                                         uint64_t source_offset,
                                         uint64_t size);

/* --- products -------------------------------------------------------------------------------- */

/* An operand: a place in a buffer, or plain memory of the caller. Plain memory is read before
 * gemmd_submit() returns; a plain D is written when the job is waited for and must stay valid until
 * then. Small plain operands travel in the message, larger ones through a shared staging buffer
 * that the library keeps; buffers are the fast way. All zero: absent. */
typedef struct gemmd_operand {
    gemmd_buffer *buffer;
    uint64_t offset; /* bytes into the buffer */
    void *data;      /* used when buffer is NULL; inputs are not written */
    int64_t ld;      /* elements; GEMMD_DEFAULT */
    int64_t stride;  /* elements between batch items; GEMMD_DEFAULT; 0 only for inputs */
} gemmd_operand;

/* New members come at the end; a library takes the sizes that older headers had. */
typedef struct gemmd_product {
    size_t size; /* sizeof(gemmd_product): use GEMMD_PRODUCT_INIT */
    gemmd_dtype input, output;
    gemmd_order order;
    bool trans_a, trans_b;
    int64_t m, n, k, batch;
    double alpha, beta;
    gemmd_operand a, b, c, d;
    double deadline_seconds; /* from the daemon's receipt: what has not started by then is not run
                                and gets GEMMD_DEADLINE. 0: none */
    int priority;            /* -1, 0, 1: among products of this uid */
    gemmd_operand bias;      /* of one row: `ld` has no meaning */
    gemmd_bias_kind bias_kind;
    gemmd_activation activation;
} gemmd_product;

/* Every member is named: C++ compilers warn of those left out. */
#define GEMMD_OPERAND_INIT                                                                         \
    {                                                                                              \
        .buffer = NULL, .offset = 0, .data = NULL, .ld = GEMMD_DEFAULT, .stride = GEMMD_DEFAULT    \
    }
#define GEMMD_PRODUCT_INIT                                                                         \
    {                                                                                              \
        .size = sizeof(gemmd_product), .input = GEMMD_DTYPE_DEFAULT,                               \
        .output = GEMMD_DTYPE_DEFAULT, .order = GEMMD_ROW_MAJOR, .trans_a = false,                 \
        .trans_b = false, .m = 0, .n = 0, .k = 0, .batch = 1, .alpha = 1.0, .beta = 0.0,           \
        .a = GEMMD_OPERAND_INIT, .b = GEMMD_OPERAND_INIT, .c = GEMMD_OPERAND_INIT,                 \
        .d = GEMMD_OPERAND_INIT, .deadline_seconds = 0, .priority = 0, .bias = GEMMD_OPERAND_INIT, \
        .bias_kind = GEMMD_BIAS_NONE, .activation = GEMMD_ACTIVATION_NONE                          \
    }

typedef struct gemmd_result {
    size_t size;            /* sizeof(gemmd_result), set by the caller */
    char configuration[96]; /* canonical text of what ran */
    uint32_t epoch;         /* same problem and epoch: same bits */
    double queued_seconds, device_seconds, compile_seconds;
} gemmd_result;

typedef uint64_t gemmd_job;

#define GEMMD_SUBMIT_MANY_MAX 32

/* One product, waited for. `ret` may be NULL. */
GEMMD_API gemmd_status gemmd_gemm(gemmd *connection,
                                  const gemmd_product *product,
                                  gemmd_result *ret);
/* Starts a product. Up to gemmd_info.in_flight_max may be under way; one more is GEMMD_LIMIT. */
GEMMD_API gemmd_status gemmd_submit(gemmd *connection,
                                    const gemmd_product *product,
                                    gemmd_job *ret_job);
/* Starts up to GEMMD_SUBMIT_MANY_MAX products with one message: for many small ones. As so many
 * gemmd_submit() in that order; on failure none was started. GEMMD_LIMIT also when jobs that were
 * not taken leave no `count` numbers in a row free: wait for the oldest. */
GEMMD_API gemmd_status gemmd_submit_many(gemmd *connection,
                                         const gemmd_product *products,
                                         size_t count,
                                         gemmd_job *ret_jobs);
/* Takes a job's result: GEMMD_OK or the job's own error, after which the job is forgotten. A
 * negative timeout waits for ever; GEMMD_TIMEOUT leaves the job under way. */
GEMMD_API gemmd_status gemmd_wait(gemmd *connection,
                                  gemmd_job job,
                                  double timeout_seconds,
                                  gemmd_result *ret);
/* Whether gemmd_wait() would return at once. Reads what has arrived, never blocks. */
GEMMD_API gemmd_status gemmd_poll(gemmd *connection, gemmd_job job, bool *ret_done);
/* Ends a job that has not started: gemmd_wait() then gives GEMMD_CANCELLED. *ret_cancelled is false
 * when it runs or is answered already; it is waited for in any case. With in_flight_max jobs
 * unanswered this waits until one of them is. */
GEMMD_API gemmd_status gemmd_cancel(gemmd *connection, gemmd_job job, bool *ret_cancelled);
/* Readable when answers may have arrived and while answered jobs wait to be taken: for poll and
 * epoll, then gemmd_poll(). Owned by the library; -1 when descriptors ran out. */
GEMMD_API int gemmd_fd(gemmd *connection);

/* --- administration -------------------------------------------------------------------------- */

/* Answers of the daemon as JSON text, to be freed with gemmd_free(). */
GEMMD_API gemmd_status gemmd_status_json(gemmd *connection, char **ret_json);
GEMMD_API gemmd_status gemmd_stats_json(gemmd *connection, char **ret_json);
/* The plan for a product that is not run; operands may be absent. */
GEMMD_API gemmd_status gemmd_explain_json(gemmd *connection,
                                          const gemmd_product *product,
                                          char **ret_json);
/* Times the plan's best `keep` configurations for such a product on the device (0: as many as the
 * daemon thinks right) and keeps the fastest for shapes like it. Takes from milliseconds to
 * seconds; for root and the daemon's own uid. */
GEMMD_API gemmd_status gemmd_tune_json(gemmd *connection,
                                       const gemmd_product *product,
                                       uint32_t keep,
                                       char **ret_json);
/* The cubins on disk. `verify`, for root and the daemon's uid, also removes damaged ones. */
GEMMD_API gemmd_status gemmd_cache_list_json(gemmd *connection, bool verify, char **ret_json);
GEMMD_API gemmd_status gemmd_cache_prewarm(gemmd *connection,
                                           const char *configuration,
                                           double *ret_seconds);
/* The longest unused ones go until `max_bytes` remain. For root and the daemon's uid. */
GEMMD_API gemmd_status gemmd_cache_prune(gemmd *connection,
                                         uint64_t max_bytes,
                                         uint64_t *ret_removed);
GEMMD_API void gemmd_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
