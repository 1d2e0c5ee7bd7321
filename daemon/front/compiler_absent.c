/*
 * compiler.h without a compiler: every kernel is refused with UNSUPPORTED. The CPU worker needs
 * none. Gives way to compiler.c.
 */
#include "compiler.h"

#include "../core/error.h"

#include <stdlib.h>

struct pending {
    struct pending *next;
    compiler_fn fn;
    void *context;
};

struct compiler {
    uv_idle_t idle; /* active while something is pending: answers come later, on the loop */
    struct pending *first;
    uint64_t requests;
    void (*done)(void *context);
    void *context;
};

static void answer(uv_idle_t *idle)
{
    struct compiler *compiler = container_of(idle, struct compiler, idle);
    struct pending *pending = compiler->first;
    struct fault fault;

    if (!pending) {
        (void)uv_idle_stop(idle);
        return;
    }
    compiler->first = pending->next;
    (void)fault_set(&fault, STATUS_UNSUPPORTED, "", "this build of the daemon has no compiler");
    pending->fn(NULL, NULL, COMPILER_COMPILED, 0, &fault, pending->context);
    free(pending);
}

int compiler_new(struct compiler **ret_compiler, const struct compiler_options *options)
{
    struct compiler *compiler = calloc(1, sizeof(*compiler));

    if (!compiler)
        return error_origin(-ENOMEM);
    (void)uv_idle_init(options->loop, &compiler->idle);
    *ret_compiler = compiler;
    return 0;
}

int compiler_request(struct compiler *compiler,
                     const struct config *config,
                     compiler_fn fn,
                     void *context)
{
    struct pending *pending = calloc(1, sizeof(*pending));

    (void)config;
    if (!pending)
        return error_origin(-ENOMEM);
    *pending = (struct pending){.next = compiler->first, .fn = fn, .context = context};
    compiler->first = pending;
    compiler->requests++;
    (void)uv_idle_start(&compiler->idle, answer);
    return 0;
}

void compiler_forget(struct compiler *compiler, const void *context)
{
    for (struct pending **at = &compiler->first; *at;) {
        struct pending *pending = *at;

        if (pending->context == context) {
            *at = pending->next;
            free(pending);
        } else {
            at = &pending->next;
        }
    }
}

void compiler_reject(struct compiler *compiler, const struct key *key)
{
    (void)compiler;
    (void)key;
}

void compiler_statistics(const struct compiler *compiler, struct compiler_statistics *ret)
{
    *ret =
        (struct compiler_statistics){.requests = compiler->requests, .failed = compiler->requests};
}

static void idle_closed(uv_handle_t *handle)
{
    struct compiler *compiler = container_of((uv_idle_t *)handle, struct compiler, idle);

    compiler->done(compiler->context);
}

void compiler_close(struct compiler *compiler, void (*done)(void *context), void *context)
{
    compiler->done = done;
    compiler->context = context;
    while (compiler->first)
        answer(&compiler->idle);
    uv_close((uv_handle_t *)&compiler->idle, idle_closed);
}

struct compiler *compiler_free(struct compiler *compiler)
{
    free(compiler);
    return NULL;
}
