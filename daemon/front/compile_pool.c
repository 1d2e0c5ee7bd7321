#include "compile_pool.h"

#include "../core/log.h"

#include <string.h>

static void advance(struct compile_pool *pool);

bool compiler_identity_equal(const struct compiler_identity *a, const struct compiler_identity *b)
{
    return a->major == b->major && a->minor == b->minor && strcmp(a->build, b->build) == 0;
}

static struct compile_child *child_of(struct list *link)
{
    return container_of(link, struct compile_child, link);
}

static struct compile_ask *ask_of(struct list *link)
{
    return container_of(link, struct compile_ask, link);
}

static struct compile_ask *ask_of_child(struct compile_pool *pool,
                                        const struct compile_child *child)
{
    list_for_each(link, &pool->running)
    {
        if (ask_of(link)->child == child)
            return ask_of(link);
    }
    return NULL;
}

static void report_learnt(struct compile_pool *pool, const struct fault *fault)
{
    if (pool->is_wanted) {
        pool->is_wanted = false;
        pool->operations->learnt(pool, fault);
    }
}

/* --- what children say ----------------------------------------------------------------------- */

static void on_hello(struct compile_child *child, const struct compile_hello *hello)
{
    struct compile_pool *pool = child->options.context;

    if (!hello->has_nvrtc) {
        if (!pool->is_known)
            log_warning("compiler=none reason=\"%s\"", hello->fault.message);
        pool->absence = hello->fault;
        compile_child_stop(child);
    } else if (!pool->is_known || !compiler_identity_equal(&pool->identity, &hello->identity)) {
        log_info("compiler=nvrtc version=%u.%u build=%s", hello->identity.major,
                 hello->identity.minor, hello->identity.build);
        pool->identity = hello->identity;
    }
    pool->is_known = true;
    report_learnt(pool, &pool->absence);
    advance(pool);
}

static void
on_result(struct compile_child *child, const struct compile_result *result, const void *cubin)
{
    struct compile_pool *pool = child->options.context;
    struct compile_ask *ask = ask_of_child(pool, child);

    if (ask) { /* else it was withdrawn */
        list_unlink(&ask->link);
        pool->operations->answered(ask, result, cubin);
    }
    advance(pool);
}

static void
charge_death(struct compile_pool *pool, const struct compile_child *child, const struct fault *how)
{
    struct compile_ask *ask = ask_of_child(pool, child);

    pool->crashes += how->status == STATUS_COMPILE_FAILED;
    if (!ask && !child->was_ready && !list_is_empty(&pool->queue))
        ask = ask_of(pool->queue.next);
    if (ask) {
        list_unlink(&ask->link);
        pool->operations->failed(ask, how);
    }
    if (!child->was_ready)
        report_learnt(pool, how);
}

static void on_gone(struct compile_child *child, const struct fault *how)
{
    struct compile_pool *pool = child->options.context;

    pool->child_count--;
    if (!pool->is_closing) {
        if (how->status != STATUS_OK)
            charge_death(pool, child, how);
        advance(pool);
    } else if (pool->child_count == 0) {
        pool->operations->closed(pool);
    }
}

static const struct compile_child_operations child_operations = {
    .hello = on_hello,
    .result = on_result,
    .gone = on_gone,
};

/* --- work for them --------------------------------------------------------------------------- */

static void start_child(struct compile_pool *pool)
{
    struct compile_child_options options = {
        .loop = pool->options->loop,
        .program = pool->options->program,
        .kernels_directory = pool->options->kernels_directory,
        .memory_limit_bytes = pool->options->memory_limit_bytes,
        .time_limit_seconds = pool->options->time_limit_seconds,
        .operations = &child_operations,
        .context = pool,
    };
    struct compile_child *child;

    if (compile_child_start(&child, &options) < 0)
        return; /* no memory: traced, and tried again with the next event */
    list_append(&pool->children, &child->link);
    pool->child_count++;
}

static bool has_child_starting(struct compile_pool *pool)
{
    list_for_each(link, &pool->children)
    {
        if (child_of(link)->state == COMPILE_CHILD_STARTING)
            return true;
    }
    return false;
}

/* An idle child of the current compiler. Those of an earlier one are told to go on the way. */
static struct compile_child *idle_child(struct compile_pool *pool)
{
    list_for_each(link, &pool->children)
    {
        struct compile_child *child = child_of(link);

        if (child->state != COMPILE_CHILD_IDLE)
            continue;
        if (compiler_identity_equal(&child->identity, &pool->identity))
            return child;
        compile_child_stop(child);
    }
    return NULL;
}

/* Gives idle children what is queued. One child starts at a time: its hello starts the next. */
static void serve_queue(struct compile_pool *pool)
{
    while (!list_is_empty(&pool->queue)) {
        struct compile_ask *ask = ask_of(pool->queue.next);
        struct compile_child *child;

        if (!compiler_identity_equal(&ask->identity, &pool->identity)) {
            list_unlink(&ask->link);
            pool->operations->outdated(ask);
            continue;
        }
        child = idle_child(pool);
        if (!child) {
            if (pool->child_count < pool->options->children && !has_child_starting(pool))
                start_child(pool);
            return;
        }
        list_unlink(&ask->link);
        list_append(&pool->running, &ask->link);
        ask->child = child;
        compile_child_ask(child, &ask->request);
    }
}

static void advance(struct compile_pool *pool)
{
    if (pool->is_closing)
        return;
    serve_queue(pool);
    list_for_each(link, &pool->children)
    {
        if (child_of(link)->state == COMPILE_CHILD_IDLE)
            compile_child_rest(child_of(link), pool->options->idle_seconds);
    }
}

/* --- for the compiler ------------------------------------------------------------------------ */

void compile_pool_init(struct compile_pool *pool,
                       const struct compiler_options *options,
                       const struct compile_pool_operations *operations)
{
    *pool = (struct compile_pool){
        .operations = operations,
        .options = options,
        .absence = FAULT_NONE,
    };
    list_init(&pool->children);
    list_init(&pool->queue);
    list_init(&pool->running);
}

void compile_pool_learn(struct compile_pool *pool)
{
    assert(!pool->is_known);
    pool->is_wanted = true;
    if (pool->child_count == 0)
        start_child(pool);
}

void compile_pool_ask(struct compile_pool *pool, struct compile_ask *ask)
{
    list_append(&pool->queue, &ask->link);
    advance(pool);
}

void compile_pool_withdraw(struct compile_ask *ask)
{
    list_unlink(&ask->link);
}

void compile_pool_close(struct compile_pool *pool)
{
    pool->is_closing = true;
    list_for_each(link, &pool->children) compile_child_stop(child_of(link));
    if (pool->child_count == 0)
        pool->operations->closed(pool);
}
