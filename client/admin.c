/*
 * Questions to the daemon that people and tools ask: status, statistics, plans, the cubin cache.
 */
#include <stdlib.h>
#include <string.h>

#include "client_internal.h"

static gemmd_status ask(gemmd *connection, const struct request *request, char **ret_json)
{
    gemmd_status status;
    struct call *call;
    char *json;

    if (!ret_json)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "ret_json",
                               "there is no place for the answer: ret_json is NULL");
    *ret_json = NULL;
    status = call_perform(connection, request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    if (reply_decode_json(&call->reply, &json))
        status = call_malformed(connection, call);
    else
        *ret_json = json;
    (void)call_free(connection, call);
    return status;
}

static gemmd_status ask_plainly(gemmd *connection, enum method method, char **ret_json)
{
    struct request request = {.method = method};
    gemmd_status status = connection_check(connection);

    return status == GEMMD_OK ? ask(connection, &request, ret_json) : status;
}

gemmd_status gemmd_status_json(gemmd *connection, char **ret_json)
{
    return ask_plainly(connection, METHOD_STATUS, ret_json);
}

gemmd_status gemmd_stats_json(gemmd *connection, char **ret_json)
{
    return ask_plainly(connection, METHOD_STATS, ret_json);
}

gemmd_status gemmd_cache_list_json(gemmd *connection, bool verify, char **ret_json)
{
    return ask_plainly(connection, verify ? METHOD_CACHE_VERIFY : METHOD_CACHE_LIST, ret_json);
}

gemmd_status gemmd_explain_json(gemmd *connection, const gemmd_product *product, char **ret_json)
{
    struct request request = {.method = METHOD_EXPLAIN};
    gemmd_product read;
    gemmd_status status = connection_check(connection);

    if (status == GEMMD_OK)
        status = product_translate(connection, product, &read, &request.body.gemm);
    return status == GEMMD_OK ? ask(connection, &request, ret_json) : status;
}

gemmd_status
gemmd_tune_json(gemmd *connection, const gemmd_product *product, uint32_t keep, char **ret_json)
{
    struct request request = {.method = METHOD_TUNE};
    gemmd_product read;
    gemmd_status status = connection_check(connection);

    if (status == GEMMD_OK)
        status = product_translate(connection, product, &read, &request.body.gemm);
    request.body.gemm.keep = keep;
    return status == GEMMD_OK ? ask(connection, &request, ret_json) : status;
}

/* The number beside `name` in a flat JSON map that this project's encoder wrote. */
static bool json_number(const char *json, const char *name, double *ret_value)
{
    size_t length = strlen(name);
    char *end;

    for (const char *p = strchr(json, '"'); p; p = strchr(p + 1, '"')) {
        const char *value = p + length + 2;

        if (strncmp(p + 1, name, length) != 0 || p[length + 1] != '"')
            continue;
        value += strspn(value, " :");
        *ret_value = strtod(value, &end);
        return end != value;
    }
    return false;
}

/* A request whose answer is a map with one number the caller wants. */
static gemmd_status
ask_number(gemmd *connection, const struct request *request, const char *name, double *ret_value)
{
    cleanup(freep) char *json = NULL;
    gemmd_status status = ask(connection, request, &json);

    if (status == GEMMD_OK && !json_number(json, name, ret_value))
        status = connection_fail(connection, GEMMD_PROTOCOL, name,
                                 "the daemon's answer to %s has no number named %s",
                                 method_name(request->method), name);
    return status;
}

gemmd_status gemmd_cache_prewarm(gemmd *connection, const char *configuration, double *ret_seconds)
{
    struct request request = {.method = METHOD_CACHE_PREWARM};
    gemmd_status status = connection_check(connection);
    double seconds;

    if (status != GEMMD_OK)
        return status;
    if (!configuration)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "configuration",
                               "the configuration is NULL; its canonical text is wanted");
    request.body.cache.configuration = configuration;
    request.body.cache.configuration_size = strlen(configuration);
    status = ask_number(connection, &request, "seconds", &seconds);
    if (status == GEMMD_OK && ret_seconds)
        *ret_seconds = seconds;
    return status;
}

gemmd_status gemmd_cache_prune(gemmd *connection, uint64_t max_bytes, uint64_t *ret_removed)
{
    struct request request = {.method = METHOD_CACHE_PRUNE, .body.cache.max_bytes = max_bytes};
    gemmd_status status = connection_check(connection);
    double removed;

    if (status == GEMMD_OK)
        status = ask_number(connection, &request, "removed", &removed);
    if (status == GEMMD_OK && ret_removed)
        *ret_removed = (uint64_t)removed;
    return status;
}
