/*
 * Of which stages each death of the worker consisted, as the daemon's status says: a thread with a
 * connection of its own looks every few milliseconds, since the next death overwrites the last.
 */
#pragma once

#include "client.h"

#include <pthread.h>
#include <stdatomic.h>

#define STAGES         5
#define STAGES_DEATHS  256 /* that one watch remembers */
#define STAGES_LOOK_US 5000

struct stages_watch {
    gemmd *connection;
    pthread_t thread;
    bool is_started;
    atomic_bool is_over;
    size_t first;                               /* deaths before it began */
    atomic_size_t deaths;                       /* since then */
    double milliseconds[STAGES_DEATHS][STAGES]; /* written by the thread */
};

int stages_start(struct stages_watch *watch, const char *socket);
void stages_stop(struct stages_watch *watch);
/* Prints the deaths from number `from` (of those since the start) on; how many there are now. */
size_t stages_print(const struct stages_watch *watch, const char *what, size_t from);
