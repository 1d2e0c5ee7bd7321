/*
 * The worker's loop: commands from the ring to the backend, completions back, messages in between.
 *
 * Owner: worker.c, by value. Thread: the worker's one.
 */
#pragma once

#include "../link/link.h"
#include "backend.h"

struct worker_loop {
    struct link *link;       /* borrowed */
    struct backend *backend; /* borrowed */
    bool may_spin;           /* enough CPUs that spinning takes none from the front */
    bool is_quitting;        /* no more commands are taken */
    bool is_over;            /* the front is gone */
    uint64_t active_ns;      /* CLOCK_MONOTONIC of the last thing that happened */
    long pause_ns;           /* the next wait for a busy device */
};

void worker_loop_init(struct worker_loop *loop, struct link *link, struct backend *backend);
/* 0 when the front said so or is gone; < 0 when the device is lost or this process cannot go on.
 * `ret_fault` is written in the second case. */
int worker_loop_run(struct worker_loop *loop, struct fault *ret_fault);
/* Sends a message, waiting for a front that is slow to read. LINK_E_CLOSED when it is gone. */
int worker_loop_send(struct link *link, const struct link_message *message, int fd);
