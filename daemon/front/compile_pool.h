/*
 * The compile children and what is queued for them. Starts a child when there is work and none is
 * idle, learns from its hello which compiler there is, and lets it go after a rest.
 *
 * A child that dies costs one answer: that of the ask it had, or, before its hello, of the ask that
 * would have been next (else a program that cannot start would be started for ever).
 *
 * Owner: the compiler, which embeds it; asks belong to their flights. Thread: loop.
 */
#pragma once

#include "compile_child.h"
#include "compiler.h"

struct compile_pool;
struct compile_ask;

struct compile_pool_operations {
    /* What compile_pool_learn() asked for: STATUS_OK when there is a compiler, whose identity is
     * known now; else why there is none, or why its child died before it could say. */
    void (*learnt)(struct compile_pool *pool, const struct fault *fault);
    void (*answered)(struct compile_ask *ask,
                     const struct compile_result *result,
                     const void *cubin);
    void (*failed)(struct compile_ask *ask, const struct fault *fault);
    /* The compiler was replaced while the ask was queued: its key is that of the old one. */
    void (*outdated)(struct compile_ask *ask);
    void (*closed)(struct compile_pool *pool);
};

/* In the queue, or with a child, until one of its three callbacks; unlinked before it. */
struct compile_ask {
    struct list link;
    struct compile_child *child;
    struct compile_request request;
    struct compiler_identity identity; /* that the key was computed with */
};

struct compile_pool {
    const struct compile_pool_operations *operations;
    const struct compiler_options *options; /* the compiler's */
    struct list children, queue, running;
    unsigned child_count;
    bool is_known;  /* a child said hello */
    bool is_wanted; /* somebody waits for `learnt` */
    bool is_closing;
    struct fault absence; /* why there is no compiler, once that is known */
    struct compiler_identity identity;
    uint64_t crashes;
};

void compile_pool_init(struct compile_pool *pool,
                       const struct compiler_options *options,
                       const struct compile_pool_operations *operations);
/* Starts a child when the identity is not known; `learnt` follows. */
void compile_pool_learn(struct compile_pool *pool);
void compile_pool_ask(struct compile_pool *pool, struct compile_ask *ask);
void compile_pool_withdraw(struct compile_ask *ask); /* no callback follows; idempotent */
/* Kills all children; `closed` follows, perhaps at once. Asks have been withdrawn. */
void compile_pool_close(struct compile_pool *pool);

bool compiler_identity_equal(const struct compiler_identity *a, const struct compiler_identity *b);
