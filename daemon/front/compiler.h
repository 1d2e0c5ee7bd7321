/*
 * The front's way to a cubin: memory, then disk, then a compile child. One flight per key, in this
 * process and between daemons. Children are `gemmd compile` processes with time and memory limits;
 * one that hangs, leaks or crashes costs one answer.
 *
 * Owner: the server. Thread: loop (disk work runs on libuv's pool).
 */
#pragma once

#include "../core/status.h"
#include "../jit/cache.h"
#include "../jit/key.h"
#include <uv.h>

struct compiler; /* opaque; embeds its uv handles */

struct compiler_options {
    uv_loop_t *loop;
    const char *program;           /* path of this binary, for the children */
    const char *kernels_directory; /* NULL: embedded */
    struct cache *cache;           /* borrowed */
    unsigned children;             /* at most; started when first needed */
    double time_limit_seconds;     /* 10 by default */
    uint64_t memory_limit_bytes;   /* 2 GiB by default */
    double idle_seconds;           /* a child without work exits after this */
};

enum compiler_source {
    COMPILER_FROM_MEMORY,
    COMPILER_FROM_DISK,
    COMPILER_COMPILED,
};

/* `cubin` is borrowed for the call, NULL when `fault` says what went wrong; `seconds` is how long
 * this request waited. */
typedef void (*compiler_fn)(const struct cubin *cubin,
                            const struct key *key,
                            enum compiler_source source,
                            double seconds,
                            const struct fault *fault,
                            void *context);

struct compiler_statistics {
    uint64_t requests, compiled, failed, timeouts, crashes;
    double compile_seconds;
    bool has_nvrtc; /* known after the first child said hello */
    struct compiler_identity identity;
};

/* Reads the kernel files once: with `kernels_directory`, a change there needs a new daemon. */
int compiler_new(struct compiler **ret_compiler, const struct compiler_options *options);
/* Starts the first child before it is needed: the first request then need not wait to learn which
 * compiler there is. */
void compiler_warm(struct compiler *compiler);
/* Asks for a cubin of a configuration that has a kernel; `fn` is called once, later, on the loop
 * (never inside this call). */
int compiler_request(struct compiler *compiler,
                     const struct config *config,
                     compiler_fn fn,
                     void *context);
/* Drops every pending request of this context without calling back. */
void compiler_forget(struct compiler *compiler, const void *context);
/* The driver refused this cubin: remove it everywhere, so that the next request compiles. */
void compiler_reject(struct compiler *compiler, const struct key *key);
void compiler_statistics(const struct compiler *compiler, struct compiler_statistics *ret);
/* Stops the children and closes all handles; `done` is called when the last is closed, after which
 * compiler_free() may be called. Pending requests get STATUS_SHUTTING_DOWN. */
void compiler_close(struct compiler *compiler, void (*done)(void *context), void *context);
struct compiler *compiler_free(struct compiler *compiler);
