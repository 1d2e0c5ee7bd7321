/*
 * status, stats, explain: what people and dashboards read. Names are stable; new ones are added.
 */
#include "handlers.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "server.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void reply_map_freep(struct reply_map **map)
{
    *map = reply_map_free(*map);
}

static int answer_map(struct session *session, uint32_t id, const struct reply_map *map)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    int r = reply_encode_map(id, map, &message);

    if (r < 0)
        return error_trace(r);
    session_answer(session, &message, -1);
    return 0;
}

/* --- status ---------------------------------------------------------------------------------- */

static void put_device(struct reply_map *map, const struct worker_process *worker)
{
    const struct link_device *device = &worker->device;

    reply_map_open(map, "device");
    reply_map_text(map, "selected_by", worker->selector);
    if (worker->is_device_known) {
        reply_map_text(map, "name", device->name);
        reply_map_text(map, "kind", device->kind == LINK_DEVICE_CUDA ? "cuda" : "cpu");
        reply_map_text(map, "uuid", device->uuid);
        reply_map_text(map, "driver", device->driver);
        reply_map_text(map, "note", device->note);
        reply_map_unsigned(map, "compute_major", device->compute_major);
        reply_map_unsigned(map, "compute_minor", device->compute_minor);
        reply_map_unsigned(map, "multiprocessors", device->multiprocessors);
        reply_map_unsigned(map, "memory_bytes", device->memory);
    }
    reply_map_close(map);
}

/* Milliseconds of each stage; 0 while it is not over. */
static void put_recovery(struct reply_map *map, const struct recovery *recovery)
{
    reply_map_open(map, "recovery");
    for (enum recovery_stage stage = 0; stage < RECOVERY_STAGES; stage++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%s_ms", recovery_stage_name(stage));
        reply_map_real(map, name, recovery_seconds(recovery, stage) * 1e3);
    }
    reply_map_close(map);
}

static void put_worker(struct reply_map *map, const struct worker_process *worker)
{
    reply_map_open(map, "worker");
    reply_map_text(map, "state", worker_state_name(worker));
    reply_map_unsigned(map, "pid", (uint64_t)worker->pid);
    reply_map_unsigned(map, "starts", worker->starts);
    reply_map_unsigned(map, "deaths", worker->deaths);
    reply_map_text(map, "spare", worker_spare_name(worker));
    reply_map_text(map, "last_death", worker->died_of);
    put_recovery(map, &worker->recovery);
    reply_map_close(map);
}

static void put_cache(struct reply_map *map, struct cache *cache)
{
    struct cache_statistics statistics;

    cache_statistics(cache, &statistics);
    reply_map_open(map, "cache");
    reply_map_bool(map, "memory_only", statistics.is_memory_only);
    reply_map_text(map, "directory", statistics.directory);
    reply_map_text(map, "reason", statistics.reason);
    reply_map_unsigned(map, "entries", statistics.entries);
    reply_map_unsigned(map, "bytes", statistics.bytes);
    reply_map_close(map);
}

static void put_tuning(struct reply_map *map, const struct tuner *tuner)
{
    reply_map_open(map, "tuning");
    reply_map_text(map, "mode", tuner->mode == TUNER_IDLE ? "idle" : "off");
    reply_map_unsigned(map, "epoch", tuner->tuning.epoch);
    reply_map_unsigned(map, "classes", tuner->tuning.count);
    reply_map_bool(map, "memory_only", tuner->store.disk.fd < 0);
    reply_map_text(map, "directory", tuner->store.disk.path);
    reply_map_text(map, "reason", tuner->store.reason);
    reply_map_bool(map, "running", tuner->run != NULL);
    reply_map_unsigned(map, "runs", tuner->runs);
    reply_map_unsigned(map, "failed", tuner->failed);
    reply_map_close(map);
}

static void put_use(struct reply_map *map, const struct server *server)
{
    reply_map_unsigned(map, "clients", server->session_count);
    reply_map_unsigned(map, "jobs", server->queue.count);
    reply_map_unsigned(map, "kernels", kernels_count(&server->kernels));
    reply_map_open(map, "buffers");
    reply_map_unsigned(map, "count", server->buffers.count);
    reply_map_unsigned(map, "host_bytes", server->quota.used[QUOTA_HOST_BYTES]);
    reply_map_unsigned(map, "device_bytes", server->quota.used[QUOTA_DEVICE_BYTES]);
    reply_map_unsigned(map, "copied_bytes", server->copies.bytes);
    reply_map_unsigned(map, "copies_made", server->copies.made);
    reply_map_unsigned(map, "copies_used", server->copies.hits);
    reply_map_unsigned(map, "slabs", server->buffers.slabs.count);
    reply_map_unsigned(map, "imported_bytes", server->quota.used[QUOTA_IMPORTED_BYTES]);
    reply_map_unsigned(map, "staged_bytes", server->staging.bytes);
    reply_map_close(map);
}

/* Of all uids together: when nobody is connected and nothing is named, all of it is 0. Named as in
 * the configuration file, but for the sign between words. */
static void put_charged(struct reply_map *map, const struct quota *quota)
{
    reply_map_open(map, "charged");
    for (int i = 0; i < QUOTA_COUNT; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%s", quota_resource_entry((enum quota_resource)i)->key);
        for (char *c = strchr(name, '-'); c; c = strchr(c, '-'))
            *c = '_';
        reply_map_unsigned(map, name, quota->used[i]);
    }
    reply_map_close(map);
}

int report_status(struct session *session, const struct request *request, struct fault *fault)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    struct server *server = session->server;
    int r = reply_map_new(&map);

    (void)fault;
    if (r < 0)
        return error_trace(r);
    reply_map_text(map, "version", GEMMD_VERSION);
    reply_map_unsigned(map, "pid", (uint64_t)getpid());
    reply_map_real(map, "uptime_seconds", (double)(clock_now_ns() - server->started_ns) * 1e-9);
    reply_map_text(map, "socket", server->listener.address);
    reply_map_bool(map, "ready", worker_is_ready(&server->worker));
    reply_map_bool(map, "draining", server->state != SERVER_RUNNING);
    put_device(map, &server->worker);
    put_worker(map, &server->worker);
    put_cache(map, server->cache);
    put_tuning(map, &server->tuner);
    put_use(map, server);
    put_charged(map, &server->quota);
    return error_trace(answer_map(session, request->id, map));
}

/* --- stats ----------------------------------------------------------------------------------- */

static void
put_histogram(struct reply_map *map, const char *name, const struct stats_histogram *histogram)
{
    reply_map_open(map, name);
    reply_map_unsigned(map, "count", histogram->count);
    reply_map_unsigned(map, "p50_ns", stats_quantile(histogram, 0.5));
    reply_map_unsigned(map, "p90_ns", stats_quantile(histogram, 0.9));
    reply_map_unsigned(map, "p99_ns", stats_quantile(histogram, 0.99));
    reply_map_close(map);
}

static void put_products(struct reply_map *map, const struct stats *stats)
{
    reply_map_open(map, "products");
    for (unsigned i = 0; i < STATS_STATUSES; i++) {
        if (stats->products_by_status[i] > 0 || i == STATUS_OK)
            reply_map_unsigned(map, status_name((enum status)i), stats->products_by_status[i]);
    }
    reply_map_close(map);
    reply_map_open(map, "products_by_dtype");
    for (enum dtype dtype = DTYPE_BF16; dtype < DTYPE_COUNT; dtype++) {
        if (stats->products_by_input[dtype] > 0)
            reply_map_unsigned(map, dtype_name(dtype), stats->products_by_input[dtype]);
    }
    reply_map_close(map);
}

static void put_compiles(struct reply_map *map, const struct server *server)
{
    struct compiler_statistics compiles;
    struct cache_statistics cache;

    compiler_statistics(server->compiler, &compiles);
    cache_statistics(server->cache, &cache);
    reply_map_open(map, "compiles");
    reply_map_unsigned(map, "requests", compiles.requests);
    reply_map_unsigned(map, "compiled", compiles.compiled);
    reply_map_unsigned(map, "failed", compiles.failed);
    reply_map_unsigned(map, "timeouts", compiles.timeouts);
    reply_map_unsigned(map, "crashes", compiles.crashes);
    reply_map_real(map, "seconds", compiles.compile_seconds);
    reply_map_close(map);
    reply_map_open(map, "cache");
    reply_map_unsigned(map, "hits", cache.hits);
    reply_map_unsigned(map, "misses", cache.misses);
    reply_map_unsigned(map, "stores", cache.stores);
    reply_map_unsigned(map, "removed_damaged", cache.removed_damaged);
    reply_map_unsigned(map, "removed_old", cache.removed_old);
    reply_map_unsigned(map, "failures", cache.failures);
    reply_map_close(map);
}

static void put_bytes(struct reply_map *map, const struct server *server)
{
    uint64_t received = server->stats.received_bytes, sent = server->stats.sent_bytes;

    list_for_each(cursor, &server->sessions)
    {
        const struct session *session = container_of(cursor, struct session, link);

        received += session->socket.received_bytes;
        sent += session->socket.sent_bytes;
    }
    reply_map_unsigned(map, "received_bytes", received);
    reply_map_unsigned(map, "sent_bytes", sent);
}

int report_stats(struct session *session, const struct request *request, struct fault *fault)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    const struct server *server = session->server;
    const struct stats *stats = &server->stats;
    int r = reply_map_new(&map);

    (void)fault;
    if (r < 0)
        return error_trace(r);
    reply_map_unsigned(map, "requests", stats->requests);
    reply_map_unsigned(map, "connections", stats->connections);
    reply_map_unsigned(map, "refused_connections", stats->refused_connections);
    reply_map_unsigned(map, "violations", stats->violations);
    reply_map_unsigned(map, "dropped_unread", stats->unread);
    put_bytes(map, server);
    put_products(map, stats);
    reply_map_unsigned(map, "copies", stats->copies);
    reply_map_unsigned(map, "copied_bytes", stats->copied_bytes);
    reply_map_unsigned(map, "replayed", stats->replayed);
    reply_map_unsigned(map, "faulted", stats->suspects_guilty);
    reply_map_unsigned(map, "worker_starts", server->worker.starts);
    reply_map_unsigned(map, "worker_deaths", server->worker.deaths);
    reply_map_unsigned(map, "link_system_calls", worker_system_calls(&server->worker));
    put_compiles(map, server);
    put_histogram(map, "queued", &stats->queued);
    put_histogram(map, "device", &stats->device);
    return error_trace(answer_map(session, request->id, map));
}

/* --- explain --------------------------------------------------------------------------------- */

int report_explain(struct session *session,
                   uint32_t id,
                   const struct problem *problem,
                   const struct plan *plan)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    bool is_empty = problem_is_empty(problem);
    char text[CONFIG_TEXT_MAX] = "";
    int r = reply_map_new(&map);

    if (r < 0)
        return error_trace(r);
    if (!is_empty)
        config_to_text(&plan->config, text);
    reply_map_text(map, "configuration", text);
    reply_map_unsigned(map, "epoch", plan->epoch);
    reply_map_text(map, "reason", plan->reason);
    reply_map_text(map, "device", session->server->worker.device.name);
    reply_map_real(map, "flop", is_empty ? 0 : problem_flop(problem));
    reply_map_real(map, "predicted_seconds", plan->predicted_seconds);
    if (plan->measured_seconds > 0) {
        reply_map_real(map, "measured_seconds", plan->measured_seconds);
        reply_map_real(map, "first_choice_seconds", plan->first_seconds);
    }
    reply_map_bool(map, "tuned", plan->measured_seconds > 0);
    reply_map_real(map, "tensor_seconds", plan->tensor_seconds);
    reply_map_real(map, "l2_seconds", plan->l2_seconds);
    reply_map_real(map, "memory_seconds", plan->memory_seconds);
    reply_map_real(map, "fixed_seconds", plan->fixed_seconds);
    reply_map_real(map, "wave_efficiency", plan->wave_efficiency);
    reply_map_unsigned(map, "tiles", plan->tiles);
    if (plan->splits > 1)
        reply_map_unsigned(map, "splits", plan->splits);
    if (plan->repack_bytes > 0)
        reply_map_unsigned(map, "repacked_bytes", (uint64_t)plan->repack_bytes);
    return error_trace(answer_map(session, id, map));
}

/* --- tune ------------------------------------------------------------------------------------ */

static void
put_candidate(struct reply_map *map, const struct tuner_run *run, size_t i, double seconds)
{
    const struct plan *plan = &run->ranking.plan[i];
    const struct fault *fault = &run->candidates[i].fault;
    char text[CONFIG_TEXT_MAX];

    config_to_text(&plan->config, text);
    reply_map_open(map, NULL);
    reply_map_text(map, "configuration", text);
    reply_map_real(map, "predicted_seconds", plan->predicted_seconds);
    reply_map_real(map, "measured_seconds", isfinite(seconds) ? seconds : 0);
    reply_map_text(map, "failed", fault->status == STATUS_OK ? "" : fault->message);
    reply_map_close(map);
}

int report_tuned(struct session *session,
                 const struct tuner_run *run,
                 const double *seconds,
                 size_t winner)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    const struct tuner *tuner = &session->server->tuner;
    char text[CONFIG_TEXT_MAX];
    int r = reply_map_new(&map);

    if (r < 0)
        return error_trace(r);
    config_to_text(&run->ranking.plan[winner].config, text);
    reply_map_text(map, "configuration", text);
    reply_map_unsigned(map, "epoch", tuner->tuning.epoch);
    reply_map_real(map, "seconds", seconds[winner]);
    reply_map_real(map, "first_choice_seconds", isfinite(seconds[0]) ? seconds[0] : 0);
    reply_map_unsigned(map, "launches", run->repeats);
    reply_map_unsigned(map, "sets", run->sets);
    reply_map_open_array(map, "candidates");
    for (size_t i = 0; i < run->keep; i++)
        put_candidate(map, run, i, seconds[i]);
    reply_map_close(map);
    return error_trace(answer_map(session, run->id, map));
}
