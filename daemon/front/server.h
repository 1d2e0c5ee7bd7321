/*
 * The front: owns everything by value and wires it; the only object that knows all modules.
 *
 * Life: server_new, server_run (until drained), server_free. Draining: no new connections, new
 * requests are refused with SHUTTING_DOWN, those under way finish, answers are flushed; then
 * worker, compiler and sessions close, and the loop ends when no handle is left (uv_loop_close is
 * asserted: the cheapest leak test there is).
 *
 * Owner: front_main(). Thread: loop.
 */
#pragma once

#include "../jit/cache.h"
#include "buffer.h"
#include "compiler.h"
#include "copies.h"
#include "kernel.h"
#include "listener.h"
#include "options.h"
#include "plans.h"
#include "queue.h"
#include "quota.h"
#include "session.h"
#include "staging.h"
#include "stats.h"
#include "tuner.h"
#include "worker_process.h"

enum server_state {
    SERVER_RUNNING,
    SERVER_DRAINING, /* requests under way finish */
    SERVER_CLOSING,  /* handles close */
};

struct server {
    const struct options *options;
    enum server_state state;
    int exit_status;
    uv_loop_t loop;
    uv_signal_t terminate, interrupt, reload;
    uv_timer_t drain;
    uv_timer_t deadline; /* the next one of a job; cancel.c */
    struct listener listener;
    struct worker_process worker;
    struct quota quota;
    struct stats stats;
    struct buffers buffers;
    struct staging staging;
    struct copies copies;
    struct kernels kernels;
    struct queue queue;
    struct cache *cache;       /* owned */
    struct compiler *compiler; /* owned */
    struct list sessions;
    struct list prewarms; /* compiles that a session waits for: report_cache.c */
    uint32_t session_count;
    struct plan_device device; /* valid once worker.is_device_known */
    struct plans plans;        /* for it */
    struct tuner tuner;        /* what it learned of it */
    uint64_t started_ns;
    uint64_t looked_ns;             /* while draining: the last time */
    uint64_t drained_ns, unread_ns; /* since draining began; since the last answer */
    uint64_t deadline_ns;           /* when `deadline` is due; 0: not armed */
    bool is_announced;              /* somebody was told that requests are served */
    bool is_listening, is_worker_closed, is_compiler_closed;
};

int server_new(struct server **ret_server, const struct options *options);
struct server *server_free(struct server *server);
/* Returns the exit status. */
int server_run(struct server *server);
