/*
 * A flight is one wanted cubin, whoever waits for it:
 *
 *   ASKING    the compiler's identity is not known yet, and with it the key
 *   LOOKING   on libuv's pool: memory, disk, and when both miss the machine-wide lock of the key
 *   ELSEWHERE another process holds that lock: look again every RETRY_MS
 *   COMPILING queued for a child, or in one (compile_pool.h)
 *   STORING   delivered; on libuv's pool into the cache, then the lock is given back
 *
 * A flight frees itself after its last delivery. While it delivers it is `is_ending`: no request
 * joins it, since a callback may ask for the same configuration again.
 */
#include "compiler.h"

#include "../core/error.h"
#include "../core/list.h"
#include "../core/log.h"
#include "compile_disk.h"
#include "compile_pool.h"
#include "compile_waiters.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_MS 20 /* a tenth of a compile; only while another process has one */

enum flight_state {
    FLIGHT_ASKING,
    FLIGHT_LOOKING,
    FLIGHT_ELSEWHERE,
    FLIGHT_COMPILING,
    FLIGHT_STORING,
};

struct flight {
    struct list link; /* in compiler->flights */
    struct compiler *compiler;
    enum flight_state state;
    bool is_ending;
    struct config config;
    struct list waiters;
    uint64_t elsewhere_ns; /* when another process was first seen at it */
    struct compile_ask ask;
    struct fault obstacle; /* why a miss cannot be compiled; STATUS_OK when it can */
    struct compile_disk disk;
    bool has_waited; /* long enough for another process */
};

struct compiler {
    struct compiler_options options;
    struct sources sources;
    struct list flights;
    struct compile_pool pool;
    uv_timer_t retry;
    struct compiler_statistics statistics;
    /* What the cache remembers from an earlier run. Without NVRTC it is as good as it gets: it
     * finds what a machine with NVRTC put there. */
    struct compiler_identity recorded;
    bool is_closing, is_retry_closed, is_pool_closed;
    void (*done)(void *context);
    void *done_context;
};

static struct flight *flight_of(struct list *link)
{
    return container_of(link, struct flight, link);
}

static void look_up(struct flight *flight);

/* --- end of a flight ------------------------------------------------------------------------- */

static double seconds_since(uint64_t start_ns)
{
    return (double)(uv_hrtime() - start_ns) * 1e-9;
}

static void finish_closing(struct compiler *compiler)
{
    if (compiler->is_closing && compiler->is_retry_closed && list_is_empty(&compiler->flights) &&
        compiler->is_pool_closed && compiler->done)
        steal(compiler->done, NULL)(compiler->done_context);
}

static void deliver(struct flight *flight, enum compiler_source source, const struct fault *fault)
{
    struct compile_delivery delivery = {
        .cubin = fault->status == STATUS_OK ? &flight->disk.cubin : NULL,
        .key = &flight->disk.key,
        .source = source,
        .fault = fault,
    };

    compile_waiters_deliver(&flight->waiters, &delivery);
}

static void free_flight(struct flight *flight)
{
    compile_pool_withdraw(&flight->ask);
    compile_disk_deinit(&flight->disk);
    list_unlink(&flight->link);
    free(flight);
}

static void end_flight(struct flight *flight, const struct fault *fault)
{
    struct compiler *compiler = flight->compiler;

    flight->is_ending = true;
    deliver(flight, flight->disk.source, fault);
    free_flight(flight);
    finish_closing(compiler);
}

static void fail_flight(struct flight *flight, const struct fault *fault)
{
    struct compiler *compiler = flight->compiler;
    char text[CONFIG_TEXT_MAX];

    config_to_text(&flight->config, text);
    if (fault->status != STATUS_SHUTTING_DOWN) {
        compiler->statistics.failed += fault->status == STATUS_COMPILE_FAILED;
        compiler->statistics.timeouts += fault->status == STATUS_COMPILE_TIMEOUT;
        log_warning("compile=failed configuration=%s reason=\"%.*s\"", text,
                    (int)strcspn(fault->message, "\n"), fault->message);
    }
    end_flight(flight, fault);
}

static void fail_by(struct flight *flight, enum status status, const char *reason)
{
    struct fault fault = FAULT_NONE;

    (void)fault_set(&fault, status, "", "%s", reason);
    fail_flight(flight, &fault);
}

/* --- looking --------------------------------------------------------------------------------- */

static void on_retry(uv_timer_t *timer)
{
    struct compiler *compiler = timer->data;

    list_for_each_safe(link, following, &compiler->flights)
    {
        if (flight_of(link)->state == FLIGHT_ELSEWHERE)
            look_up(flight_of(link));
    }
}

/* Another process that is stopped or stuck must not stop us: after the longest time that a compile
 * there can honestly take we compile too. */
static void wait_elsewhere(struct flight *flight)
{
    struct compiler *compiler = flight->compiler;

    if (flight->elsewhere_ns == 0)
        flight->elsewhere_ns = uv_hrtime();
    flight->has_waited =
        seconds_since(flight->elsewhere_ns) > 2 * compiler->options.time_limit_seconds;
    flight->state = FLIGHT_ELSEWHERE;
    if (!uv_is_active((uv_handle_t *)&compiler->retry))
        (void)uv_timer_start(&compiler->retry, on_retry, RETRY_MS, 0);
}

static void report_missing(struct flight *flight)
{
    char text[CONFIG_TEXT_MAX];
    struct fault fault = FAULT_NONE;

    config_to_text(&flight->config, text);
    (void)fault_set(&fault, flight->obstacle.status, "", "no cubin for %s in the cache, and %s",
                    text, flight->obstacle.message);
    fail_flight(flight, &fault);
}

static struct flight *flight_of_disk(struct compile_disk *disk)
{
    return container_of(disk, struct flight, disk);
}

static void after_look(struct compile_disk *disk)
{
    struct flight *flight = flight_of_disk(disk);

    if (flight->compiler->is_closing) {
        fail_by(flight, STATUS_SHUTTING_DOWN, "the daemon is draining");
    } else if (disk->look == COMPILE_LOOK_FOUND) {
        end_flight(flight, &FAULT_NONE);
    } else if (disk->look == COMPILE_LOOK_ELSEWHERE) {
        wait_elsewhere(flight);
    } else if (flight->obstacle.status != STATUS_OK) {
        report_missing(flight);
    } else {
        flight->state = FLIGHT_COMPILING;
        flight->ask.request.key = disk->key;
        flight->ask.identity = disk->identity;
        compile_pool_ask(&flight->compiler->pool, &flight->ask);
    }
}

static void look_up(struct flight *flight)
{
    struct compiler *compiler = flight->compiler;
    struct compile_disk *disk = &flight->disk;
    bool has_compiler = flight->obstacle.status == STATUS_OK;

    flight->state = FLIGHT_LOOKING;
    disk->wants_lock = has_compiler && !flight->has_waited;
    disk->identity = has_compiler ? compiler->pool.identity : compiler->recorded;
    key_compute(&disk->key, &compiler->sources, &flight->config, &disk->identity);
    compile_disk_look(disk, compiler->options.loop, after_look);
}

/* --- compiling ------------------------------------------------------------------------------- */

static struct flight *flight_of_ask(struct compile_ask *ask)
{
    return container_of(ask, struct flight, ask);
}

static struct compiler *compiler_of(struct compile_pool *pool)
{
    return container_of(pool, struct compiler, pool);
}

/* Looks each waiting flight up; without a compiler, `fault` says what a miss then means. */
static void on_learnt(struct compile_pool *pool, const struct fault *fault)
{
    list_for_each_safe(link, following, &compiler_of(pool)->flights)
    {
        struct flight *flight = flight_of(link);

        if (flight->state != FLIGHT_ASKING)
            continue;
        flight->obstacle = *fault;
        look_up(flight);
    }
}

static void after_store(struct compile_disk *disk)
{
    disk->source = COMPILER_FROM_MEMORY; /* for who asked in the meantime */
    end_flight(flight_of_disk(disk), &FAULT_NONE);
}

static int take_cubin(struct flight *flight, const struct compile_result *result, const void *bytes)
{
    flight->disk.cubin = (struct cubin){
        .size = result->cubin_size,
        .registers = result->registers,
        .shared_memory = result->shared_memory,
        .spill_bytes = result->spill_bytes,
        .compile_seconds = result->compile_seconds,
    };
    config_to_text(&flight->config, flight->disk.cubin.configuration);
    flight->disk.cubin.bytes = malloc(flight->disk.cubin.size);
    if (!flight->disk.cubin.bytes)
        return error_origin(-ENOMEM);
    memcpy(flight->disk.cubin.bytes, bytes, flight->disk.cubin.size);
    return 0;
}

/* The answer does not wait for the disk. */
static void land(struct flight *flight)
{
    struct compiler *compiler = flight->compiler;
    const struct cubin *cubin = &flight->disk.cubin;

    compiler->statistics.compiled++;
    compiler->statistics.compile_seconds += cubin->compile_seconds;
    log_info("compile=done configuration=%s seconds=%.3f registers=%u shared_memory=%u spills=%u",
             cubin->configuration, cubin->compile_seconds, cubin->registers, cubin->shared_memory,
             cubin->spill_bytes);
    flight->disk.source = COMPILER_COMPILED;
    flight->state = FLIGHT_STORING;
    compile_disk_store(&flight->disk, compiler->options.loop, after_store);
    deliver(flight, COMPILER_COMPILED, &FAULT_NONE);
}

static void
on_answered(struct compile_ask *ask, const struct compile_result *result, const void *bytes)
{
    struct flight *flight = flight_of_ask(ask);

    if (result->fault.status != STATUS_OK)
        fail_flight(flight, &result->fault);
    else if (take_cubin(flight, result, bytes) == 0)
        land(flight);
    else
        fail_by(flight, STATUS_INTERNAL, "no memory for the cubin");
}

static void on_failed(struct compile_ask *ask, const struct fault *fault)
{
    fail_flight(flight_of_ask(ask), fault);
}

static void on_outdated(struct compile_ask *ask)
{
    struct flight *flight = flight_of_ask(ask);

    compile_disk_unlock(&flight->disk);
    look_up(flight);
}

static void on_pool_closed(struct compile_pool *pool)
{
    struct compiler *compiler = compiler_of(pool);

    compiler->is_pool_closed = true;
    finish_closing(compiler);
}

static const struct compile_pool_operations pool_operations = {
    .learnt = on_learnt,
    .answered = on_answered,
    .failed = on_failed,
    .outdated = on_outdated,
    .closed = on_pool_closed,
};

/* --- requests -------------------------------------------------------------------------------- */

static struct flight *find_flight(struct compiler *compiler, const struct config *config)
{
    list_for_each(link, &compiler->flights)
    {
        if (!flight_of(link)->is_ending && config_equal(&flight_of(link)->config, config))
            return flight_of(link);
    }
    return NULL;
}

static struct flight *start_flight(struct compiler *compiler, const struct config *config)
{
    struct flight *flight = calloc(1, sizeof(*flight));

    if (!flight)
        return NULL;
    flight->compiler = compiler;
    flight->config = *config;
    flight->disk.cache = compiler->options.cache;
    flight->disk.lock = -1;
    flight->disk.cubin = CUBIN_NULL;
    flight->state = FLIGHT_ASKING;
    flight->obstacle = compiler->pool.absence;
    config_to_text(config, flight->ask.request.configuration);
    list_init(&flight->ask.link);
    list_init(&flight->waiters);
    list_append(&compiler->flights, &flight->link);
    return flight;
}

int compiler_request(struct compiler *compiler,
                     const struct config *config,
                     compiler_fn fn,
                     void *context)
{
    struct flight *flight = find_flight(compiler, config);
    bool is_new = !flight;
    int r;

    assert(config_source(config));
    if (compiler->is_closing)
        return error_origin(-ESHUTDOWN);
    if (is_new)
        flight = start_flight(compiler, config);
    if (!flight)
        return error_origin(-ENOMEM);
    r = compile_waiters_add(&flight->waiters, fn, context);
    if (r) {
        if (is_new)
            free_flight(flight);
        return error_trace(r);
    }
    compiler->statistics.requests++;
    if (is_new && compiler->pool.is_known)
        look_up(flight);
    else if (is_new)
        compile_pool_learn(&compiler->pool);
    return 0;
}

void compiler_forget(struct compiler *compiler, const void *context)
{
    list_for_each(link, &compiler->flights)
        compile_waiters_forget(&flight_of(link)->waiters, context);
}

/* On the loop although it is a disk operation: the next request must not find the cubin again, and
 * a refusal is rare. */
void compiler_reject(struct compiler *compiler, const struct key *key)
{
    cache_remove(compiler->options.cache, key);
}

void compiler_statistics(const struct compiler *compiler, struct compiler_statistics *ret)
{
    *ret = compiler->statistics;
    ret->crashes = compiler->pool.crashes;
    ret->has_nvrtc = compiler->pool.is_known && compiler->pool.absence.status == STATUS_OK;
    ret->identity = ret->has_nvrtc ? compiler->pool.identity : compiler->recorded;
}

/* --- life ------------------------------------------------------------------------------------ */

int compiler_new(struct compiler **ret_compiler, const struct compiler_options *options)
{
    struct compiler *compiler = calloc(1, sizeof(*compiler));
    int r;

    assert(options->children > 0);
    if (!compiler)
        return error_origin(-ENOMEM);
    compiler->options = *options;
    r = sources_open(&compiler->sources, options->kernels_directory);
    if (r) {
        free(compiler);
        return r < 0 ? error_trace(r) : error_origin(-EINVAL);
    }
    list_init(&compiler->flights);
    compile_pool_init(&compiler->pool, &compiler->options, &pool_operations);
    (void)cache_get_compiler(options->cache, &compiler->recorded); /* zeros find nothing */
    (void)uv_timer_init(options->loop, &compiler->retry);
    compiler->retry.data = compiler;
    *ret_compiler = compiler;
    return 0;
}

void compiler_warm(struct compiler *compiler)
{
    if (!compiler->is_closing && !compiler->pool.is_known)
        compile_pool_learn(&compiler->pool);
}

static void on_retry_closed(uv_handle_t *handle)
{
    struct compiler *compiler = handle->data;

    compiler->is_retry_closed = true;
    finish_closing(compiler);
}

static bool is_on_pool(const struct flight *flight)
{
    return flight->state == FLIGHT_LOOKING || flight->state == FLIGHT_STORING;
}

void compiler_close(struct compiler *compiler, void (*done)(void *context), void *context)
{
    struct fault fault = FAULT_NONE;

    compiler->is_closing = true;
    compiler->done = done;
    compiler->done_context = context;
    (void)fault_set(&fault, STATUS_SHUTTING_DOWN, "", "the daemon is draining");
    uv_close((uv_handle_t *)&compiler->retry, on_retry_closed);
    list_for_each_safe(link, following, &compiler->flights)
    {
        struct flight *flight = flight_of(link);

        if (flight->is_ending) /* close was called by its own delivery */
            continue;
        if (is_on_pool(flight))
            deliver(flight, COMPILER_FROM_MEMORY, &fault);
        else
            end_flight(flight, &fault);
    }
    compile_pool_close(&compiler->pool);
}

struct compiler *compiler_free(struct compiler *compiler)
{
    if (!compiler)
        return NULL;
    assert(list_is_empty(&compiler->flights));
    sources_deinit(&compiler->sources);
    free(compiler);
    return NULL;
}
