/*
 * What a flight does with the cache, on libuv's pool, since a disk may take its time: looks for a
 * cubin and, when there is none, for the machine-wide lock of its key; or stores one and gives the
 * lock back.
 *
 * Owner: the flight that embeds it. Between a start and its `done` the pool has the struct and the
 * loop only waits; it cannot be cancelled.
 */
#pragma once

#include "compiler.h"

enum compile_look {
    COMPILE_LOOK_FOUND,
    COMPILE_LOOK_MISSED,    /* and the lock is ours, or nobody's */
    COMPILE_LOOK_ELSEWHERE, /* and another process has the lock */
};

struct compile_disk {
    uv_work_t work;
    void (*done)(struct compile_disk *disk);
    struct cache *cache;
    struct key key;
    struct compiler_identity identity; /* that the key was computed with */
    int lock;                          /* -1: none */
    bool wants_lock;                   /* a miss would be compiled */
    bool is_again;                     /* looked before: not another miss in the statistics */
    enum compile_look look;
    enum compiler_source source;
    struct cubin cubin;
};

void compile_disk_look(struct compile_disk *disk,
                       uv_loop_t *loop,
                       void (*done)(struct compile_disk *disk));
void compile_disk_store(struct compile_disk *disk,
                        uv_loop_t *loop,
                        void (*done)(struct compile_disk *disk));
/* Not while the pool has it. */
void compile_disk_unlock(struct compile_disk *disk);
void compile_disk_deinit(struct compile_disk *disk);
