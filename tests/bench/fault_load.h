/*
 * Clients with one product under way each, every result looked at, while something happens to their
 * worker. Each product has one of several B, so that a result left over from an earlier one is
 * wrong.
 *
 * Owner: the command. Threads: one of each client; the atomics are how they tell.
 */
#pragma once

#include <stdio.h>

#include "client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define LOAD_CLIENTS 4

struct load_client {
    pthread_t thread;
    gemmd *connection;
    gemmd_buffer *a, *b, *d;
    uint16_t *host_a, *host_b, *expected, *result; /* bf16; b and expected: a few of them */
    size_t count;                                  /* elements of a matrix */
    int64_t size;
    const atomic_bool *is_over;
    _Atomic double last_good, gap; /* seconds; the longest since load_reset() */
    atomic_uint good, errors, wrong, other_bits, is_broken;
};

struct load {
    struct load_client clients[LOAD_CLIENTS];
    atomic_bool is_over;
    size_t started;
};

/* All work when this returns 0. */
int load_start(struct load *load, const char *socket, int64_t size);
void load_stop(struct load *load);
/* Gaps and errors are counted from here. */
void load_reset(struct load *load);
/* Each client got some good answers within so many seconds. */
bool load_has_recovered(struct load *load, double timeout);
