/*
 * cache.list, verify, prewarm, prune. Listing reads directory entries only; verify reads every
 * payload and so holds the loop for as long as the disk takes (0.5 GB at most): an operator's tool.
 */
#include "handlers.h"

#include "../core/error.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
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

/* --- list and verify ------------------------------------------------------------------------- */

struct listing {
    struct reply_map *map;
    uint64_t entries, damaged, bytes;
};

static void put_entry(const struct cache_entry *entry, bool is_damaged, void *context)
{
    struct listing *listing = context;
    char key[KEY_TEXT_SIZE];

    key_to_text(&entry->key, key);
    listing->entries++;
    listing->damaged += is_damaged;
    listing->bytes += entry->bytes;
    reply_map_open(listing->map, NULL);
    reply_map_text(listing->map, "key", key);
    reply_map_text(listing->map, "configuration", entry->configuration);
    reply_map_unsigned(listing->map, "bytes", entry->bytes);
    reply_map_unsigned(listing->map, "registers", entry->registers);
    reply_map_unsigned(listing->map, "shared_memory", entry->shared_memory);
    reply_map_unsigned(listing->map, "spill_bytes", entry->spill_bytes);
    reply_map_real(listing->map, "compile_seconds", entry->compile_seconds);
    reply_map_real(listing->map, "last_used", (double)entry->last_used);
    reply_map_bool(listing->map, "damaged", is_damaged);
    reply_map_close(listing->map);
}

static int list_entries(struct session *session, uint32_t id, bool verify)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    struct listing listing = {0};
    int r = reply_map_new(&map);

    if (r < 0)
        return error_trace(r);
    listing.map = map;
    reply_map_open_array(map, "entries");
    r = cache_list(session->server->cache, verify, put_entry, &listing);
    if (r < 0)
        return error_trace(r);
    reply_map_close(map);
    reply_map_unsigned(map, "count", listing.entries);
    reply_map_unsigned(map, "damaged", listing.damaged);
    reply_map_unsigned(map, "bytes", listing.bytes);
    return error_trace(answer_map(session, id, map));
}

static int prune(struct session *session, const struct request *request)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    uint64_t removed = 0;
    int r = reply_map_new(&map);

    if (r == 0)
        r = cache_prune(session->server->cache, request->body.cache.max_bytes, &removed);
    if (r < 0)
        return error_trace(r);
    reply_map_unsigned(map, "removed", removed);
    return error_trace(answer_map(session, request->id, map));
}

/* --- prewarm --------------------------------------------------------------------------------- */

struct prewarm {
    struct list link;
    struct session *session;
    struct charge charge;
    uint32_t id;
};

static void prewarm_free(struct prewarm *prewarm)
{
    list_unlink(&prewarm->link);
    charge_release(&prewarm->charge);
    free(prewarm);
}

static const char *source_name(enum compiler_source source)
{
    static const char *const names[] = {
        [COMPILER_FROM_MEMORY] = "memory",
        [COMPILER_FROM_DISK] = "disk",
        [COMPILER_COMPILED] = "compiled",
    };

    return names[source];
}

static int answer_prewarm(struct prewarm *prewarm,
                          const struct cubin *cubin,
                          enum compiler_source source,
                          double seconds)
{
    cleanup(reply_map_freep) struct reply_map *map = NULL;
    int r = reply_map_new(&map);

    if (r < 0)
        return error_trace(r);
    reply_map_text(map, "configuration", cubin->configuration);
    reply_map_text(map, "source", source_name(source));
    reply_map_real(map, "seconds", seconds);
    reply_map_unsigned(map, "bytes", cubin->size);
    reply_map_unsigned(map, "registers", cubin->registers);
    reply_map_unsigned(map, "spill_bytes", cubin->spill_bytes);
    return error_trace(answer_map(prewarm->session, prewarm->id, map));
}

static void prewarmed(const struct cubin *cubin,
                      const struct key *key,
                      enum compiler_source source,
                      double seconds,
                      const struct fault *fault,
                      void *context)
{
    struct prewarm *prewarm = context;

    (void)key;
    if (!cubin)
        session_answer_fault(prewarm->session, prewarm->id, fault);
    else if (answer_prewarm(prewarm, cubin, source, seconds) < 0)
        session_close(prewarm->session, "no memory for an answer");
    prewarm_free(prewarm);
}

static int prewarm(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_cache *body = &request->body.cache;
    char text[CONFIG_TEXT_MAX];
    struct prewarm *made;
    struct config config;
    int r;

    (void)snprintf(text, sizeof(text), "%.*s", (int)MIN(body->configuration_size, sizeof(text)),
                   body->configuration);
    if (!config_from_text(text, &config) || config.family == CONFIG_CPU) {
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, "configuration",
                        "\"%.*s\" is not the text of a kernel's configuration",
                        (int)MIN(body->configuration_size, sizeof(text)), body->configuration);
        return SESSION_E_FAULT;
    }
    made = calloc(1, sizeof(*made));
    if (!made)
        return error_origin(-ENOMEM);
    *made = (struct prewarm){.session = session, .id = request->id};
    list_append(&session->server->prewarms, &made->link);
    r = quota_charge(&session->server->quota, session->uid, QUOTA_JOBS, 1, &made->charge, fault);
    if (r == 0)
        r = compiler_request(session->server->compiler, &config, prewarmed, made);
    if (r != 0)
        prewarm_free(made);
    return r == QUOTA_E_LIMIT ? SESSION_E_FAULT : error_trace(r);
}

void cache_forget(struct server *server, struct session *session)
{
    list_for_each_safe(cursor, following, &server->prewarms)
    {
        struct prewarm *prewarm = container_of(cursor, struct prewarm, link);

        if (prewarm->session != session)
            continue;
        compiler_forget(server->compiler, prewarm);
        prewarm_free(prewarm);
    }
}

/* Removing takes from everybody, and verifying holds up everybody. */
static bool is_operator(const struct session *session)
{
    return session->uid == 0 || session->uid == geteuid();
}

int cache_request(struct session *session, const struct request *request, struct fault *fault)
{
    bool is_for_operators =
        request->method == METHOD_CACHE_PRUNE || request->method == METHOD_CACHE_VERIFY;

    if (is_for_operators && !is_operator(session)) {
        (void)fault_set(fault, STATUS_PERMISSION, "",
                        "uid %u may not call %s; allowed are root and the daemon's own uid %u",
                        (unsigned)session->uid, method_name(request->method), (unsigned)geteuid());
        return SESSION_E_FAULT;
    }
    switch (request->method) {
    case METHOD_CACHE_PREWARM:
        return prewarm(session, request, fault);
    case METHOD_CACHE_PRUNE:
        return prune(session, request);
    default:
        return list_entries(session, request->id, request->method == METHOD_CACHE_VERIFY);
    }
}
