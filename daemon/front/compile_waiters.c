#include "compile_waiters.h"

#include "../core/error.h"

#include <stdlib.h>

struct waiter {
    struct list link;
    bool is_due;
    uint64_t started_ns;
    compiler_fn fn;
    void *context;
};

static struct waiter *waiter_of(struct list *link)
{
    return container_of(link, struct waiter, link);
}

int compile_waiters_add(struct list *waiters, compiler_fn fn, void *context)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));

    if (!waiter)
        return error_origin(-ENOMEM);
    waiter->fn = fn;
    waiter->context = context;
    waiter->started_ns = uv_hrtime();
    list_append(waiters, &waiter->link);
    return 0;
}

static struct waiter *next_due(struct list *waiters)
{
    list_for_each(link, waiters)
    {
        if (waiter_of(link)->is_due)
            return waiter_of(link);
    }
    return NULL;
}

/* One at a time from the list, so that a callback can forget those that follow. */
void compile_waiters_deliver(struct list *waiters, const struct compile_delivery *delivery)
{
    struct waiter *waiter;

    list_for_each(link, waiters) waiter_of(link)->is_due = true;
    while ((waiter = next_due(waiters))) {
        list_unlink(&waiter->link);
        waiter->fn(delivery->cubin, delivery->key, delivery->source,
                   (double)(uv_hrtime() - waiter->started_ns) * 1e-9, delivery->fault,
                   waiter->context);
        free(waiter);
    }
}

void compile_waiters_forget(struct list *waiters, const void *context)
{
    list_for_each_safe(link, following, waiters)
    {
        if (waiter_of(link)->context != context)
            continue;
        list_unlink(link);
        free(waiter_of(link));
    }
}
