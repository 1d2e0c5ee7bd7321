/*
 * Who waits for one cubin, and the delivery to them: callbacks may ask again, forget others or
 * close the compiler while it goes on.
 *
 * Owner: the flight that embeds the list. Thread: loop.
 */
#pragma once

#include "../core/list.h"
#include "compiler.h"

struct compile_delivery {
    const struct cubin *cubin; /* NULL with a fault */
    const struct key *key;
    enum compiler_source source;
    const struct fault *fault;
};

/* The time that each is told is its own, from here to the delivery. */
int compile_waiters_add(struct list *waiters, compiler_fn fn, void *context);
/* To all who wait now; those who join during it wait on. */
void compile_waiters_deliver(struct list *waiters, const struct compile_delivery *delivery);
void compile_waiters_forget(struct list *waiters, const void *context);
