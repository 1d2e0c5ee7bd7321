/*
 * One `gemmd compile` process as the front sees it: started, asked, put to rest, stopped.
 *
 * The child compiles one request at a time. It is killed when its hello or an answer takes longer
 * than the time limit, by looks and not by the clock (worker_watch.c says why), and told to exit
 * (its socket is closed) after a rest; a child at rest has no timer but that one, so nothing wakes
 * for it in between.
 *
 * Owner: itself, from compile_child_start() until it calls `gone`, which is its last call; it frees
 * itself afterwards. Thread: loop.
 */
#pragma once

#include "../core/list.h"
#include "../core/status.h"
#include "../jit/compile_message.h"

#include <uv.h>

#define COMPILE_CHILD_LOOKS 20 /* what a pause of the machine costs it: a twentieth of its time */

struct compile_child;

struct compile_child_operations {
    void (*hello)(struct compile_child *child, const struct compile_hello *hello);
    /* The answer to compile_child_ask(); from here on the child can be asked again if its state is
     * IDLE. The cubin is valid during the call. */
    void (*result)(struct compile_child *child,
                   const struct compile_result *result,
                   const void *cubin);
    /* The process is waited for and all handles are closed. `how` is STATUS_OK when it went because
     * it was told to, else it says how it died. */
    void (*gone)(struct compile_child *child, const struct fault *how);
};

enum compile_child_state {
    COMPILE_CHILD_STARTING,
    COMPILE_CHILD_IDLE,
    COMPILE_CHILD_BUSY,
    COMPILE_CHILD_ENDING,
};

struct compile_child_options {
    uv_loop_t *loop;
    const char *program;
    const char *kernels_directory;
    uint64_t memory_limit_bytes;
    double time_limit_seconds;
    const struct compile_child_operations *operations;
    void *context;
};

struct compile_child {
    struct list link; /* for the user of the child; unlinked when it frees itself */
    struct compile_child_options options;
    enum compile_child_state state;
    bool was_ready; /* said hello, as: */
    struct compiler_identity identity;
    uv_process_t process;
    uv_pipe_t pipe;
    uv_timer_t timer;
    unsigned looks; /* at it while it is waited for: COMPILE_CHILD_LOOKS are its time limit */
    unsigned open_handles;
    bool has_exited, has_ended; /* waited for; end of file */
    struct fault how;
    /* read side: the header, then the body in memory of just its size */
    struct compile_header header;
    uint8_t *body;
    size_t header_size, body_size;
};

/* < 0 only for lack of memory; a program that cannot be started is told by `gone`. */
int compile_child_start(struct compile_child **ret_child,
                        const struct compile_child_options *options);
/* The child is idle. */
void compile_child_ask(struct compile_child *child, const struct compile_request *request);
/* The child is idle and exits unless it is asked within this time. */
void compile_child_rest(struct compile_child *child, double seconds);
void compile_child_stop(struct compile_child *child); /* kills it; idempotent */
