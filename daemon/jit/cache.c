/*
 * What the cache does with its directory (cache_disk.h) and its memory (cache_memory.h). The one
 * warning about a bad disk is logged here, although the rest of the folder does not log: two
 * programs use the cache and neither should have to watch a counter to tell its user.
 */
#include "cache.h"

#include "../core/error.h"
#include "../core/log.h"
#include "cache_disk.h"
#include "cache_memory.h"
#include "cubin_file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILER_NAME "compiler"
#define ENTRY_MAX     (sizeof(struct cubin_file_header) + CUBIN_BYTES_MAX)

struct cache {
    struct cache_disk disk; /* constant after cache_new() */
    uint64_t max_bytes;
    pthread_mutex_t mutex; /* of what follows; never held over a call to the disk */
    struct cache_memory memory;
    struct cache_statistics statistics;
    bool is_warned;
};

static bool has_disk(const struct cache *cache)
{
    return cache->disk.fd >= 0;
}

static void lock(struct cache *cache)
{
    (void)pthread_mutex_lock(&cache->mutex);
}

static void unlock(struct cache *cache)
{
    (void)pthread_mutex_unlock(&cache->mutex);
}

static void count(struct cache *cache, uint64_t *counter)
{
    lock(cache);
    (*counter)++;
    unlock(cache);
}

void cubin_deinit(struct cubin *cubin)
{
    free(cubin->bytes);
    *cubin = CUBIN_NULL;
}

/* --- failures -------------------------------------------------------------------------------- */

/* With the mutex held. */
static void warn_once(struct cache *cache, const char *where, const char *reason)
{
    if (!cache->is_warned)
        log_warning("cache=memory reason=\"%s\" directory=%s", reason, *where ? where : "none");
    cache->is_warned = true;
}

static void note_failure(struct cache *cache, const char *step, int error)
{
    lock(cache);
    cache->statistics.failures++;
    (void)snprintf(cache->statistics.reason, sizeof(cache->statistics.reason), "%s: %s", step,
                   strerror(error));
    cache->memory.max_bytes = CACHE_MEMORY_ONLY_BYTES;
    warn_once(cache, cache->disk.path, cache->statistics.reason);
    unlock(cache);
}

/* --- size ------------------------------------------------------------------------------------ */

static uint64_t total_bytes(const struct cache_file *files, size_t n)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += files[i].size;
    return bytes;
}

static void set_size(struct cache *cache, uint64_t entries, uint64_t bytes, uint64_t removed)
{
    lock(cache);
    cache->statistics.entries = entries;
    cache->statistics.bytes = bytes;
    cache->statistics.removed_old += removed;
    unlock(cache);
}

static void forget(struct cache *cache, const struct key *key)
{
    lock(cache);
    (void)cache_memory_remove(&cache->memory, key);
    unlock(cache);
}

/* Looks at the whole directory each time: other processes write there too, and it is asked for
 * after a compile, which took a hundred times as long. */
static int shrink_disk(struct cache *cache, uint64_t max_bytes, uint64_t *ret_removed)
{
    cleanup(freep) struct cache_file *files = NULL;
    uint64_t bytes, removed = 0;
    size_t n = 0;
    int r = cache_disk_scan(&cache->disk, &files, &n);

    if (r) {
        note_failure(cache, "scan", r);
        return r;
    }
    bytes = total_bytes(files, n);
    for (size_t i = 0; i < n && bytes > max_bytes; i++) {
        char name[CACHE_DISK_NAME_MAX];

        cache_disk_name(&files[i].key, name);
        r = cache_disk_remove(&cache->disk, name);
        if (r && r != ENOENT) {
            note_failure(cache, "unlink", r);
            break;
        }
        forget(cache, &files[i].key);
        bytes -= files[i].size;
        removed++;
    }
    set_size(cache, n - removed, bytes, removed);
    *ret_removed = removed;
    return 0;
}

int cache_prune(struct cache *cache, uint64_t max_bytes, uint64_t *ret_removed)
{
    uint64_t removed = 0, dropped;

    if (has_disk(cache))
        (void)shrink_disk(cache, max_bytes, &removed); /* counted; what could go is gone */
    lock(cache);
    dropped = cache_memory_shrink(&cache->memory, max_bytes);
    if (!has_disk(cache)) {
        cache->statistics.removed_old += dropped;
        removed = dropped;
    }
    unlock(cache);
    *ret_removed = removed;
    return 0;
}

/* --- life ------------------------------------------------------------------------------------ */

int cache_new(struct cache **ret_cache, const char *directory, uint64_t max_bytes)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    struct cache_statistics *statistics;
    uint64_t removed;

    if (!cache)
        return error_origin(-ENOMEM);
    statistics = &cache->statistics;
    cache->disk = CACHE_DISK_NULL;
    cache->max_bytes = max_bytes;
    (void)pthread_mutex_init(&cache->mutex, NULL);
    cache_memory_init(&cache->memory, CACHE_MEMORY_BYTES);
    if (cache_disk_open(&cache->disk, directory, statistics->reason)) {
        (void)snprintf(statistics->directory, sizeof(statistics->directory), "%s",
                       cache->disk.path);
        (void)shrink_disk(cache, max_bytes, &removed);
    } else {
        statistics->is_memory_only = true;
        statistics->failures++;
        cache->memory.max_bytes = MIN(max_bytes, CACHE_MEMORY_ONLY_BYTES);
        warn_once(cache, directory ? directory : "", statistics->reason);
    }
    *ret_cache = cache;
    return 0;
}

struct cache *cache_free(struct cache *cache)
{
    if (!cache)
        return NULL;
    cache_memory_deinit(&cache->memory);
    cache_disk_close(&cache->disk);
    (void)pthread_mutex_destroy(&cache->mutex);
    free(cache);
    return NULL;
}

void cache_statistics(struct cache *cache, struct cache_statistics *ret_statistics)
{
    lock(cache);
    *ret_statistics = cache->statistics;
    if (!has_disk(cache)) {
        ret_statistics->entries = cache->memory.count;
        ret_statistics->bytes = cache->memory.bytes;
    }
    unlock(cache);
}

/* --- one entry ------------------------------------------------------------------------------- */

static void remove_damaged(struct cache *cache, const char *name)
{
    uint64_t removed;
    int r = cache_disk_remove(&cache->disk, name);

    if (r == ENOENT)
        return;
    if (r) {
        note_failure(cache, "unlink", r);
        return;
    }
    count(cache, &cache->statistics.removed_damaged);
    (void)shrink_disk(cache, cache->max_bytes, &removed);
}

enum {
    ENTRY_E_ABSENT = 1,
    ENTRY_E_DAMAGED,
};

static int
read_entry(struct cache *cache, const struct key *key, bool is_use, struct cubin *ret_cubin)
{
    cleanup(freep) void *bytes = NULL;
    char name[CACHE_DISK_NAME_MAX];
    size_t size;
    int r;

    cache_disk_name(key, name);
    r = cache_disk_read(&cache->disk, name, ENTRY_MAX, is_use, &bytes, &size);
    if (r == EPERM || r == EFBIG || r == EIO)
        return ENTRY_E_DAMAGED;
    if (r) {
        if (r != ENOENT)
            note_failure(cache, "read", r);
        return ENTRY_E_ABSENT;
    }
    r = cubin_file_decode(bytes, size, key, ret_cubin);
    if (r == CUBIN_FILE_E_DAMAGED)
        return ENTRY_E_DAMAGED;
    return r ? error_trace(r) : 0;
}

static int get_from_disk(struct cache *cache, const struct key *key, struct cubin *ret_cubin)
{
    int r = read_entry(cache, key, true, ret_cubin);

    if (r == ENTRY_E_DAMAGED) {
        char name[CACHE_DISK_NAME_MAX];

        cache_disk_name(key, name);
        remove_damaged(cache, name);
    }
    return r > 0 ? CACHE_E_MISS : r;
}

int cache_get_memory(struct cache *cache, const struct key *key, struct cubin *ret_cubin)
{
    int r;

    lock(cache);
    r = cache_memory_get(&cache->memory, key, ret_cubin);
    if (r == 0)
        cache->statistics.hits++;
    unlock(cache);
    return r;
}

int cache_get_again(struct cache *cache, const struct key *key, struct cubin *ret_cubin)
{
    int r = cache_get_memory(cache, key, ret_cubin);

    if (r != CACHE_E_MISS || !has_disk(cache))
        return r;
    r = get_from_disk(cache, key, ret_cubin);
    if (r)
        return r;
    lock(cache);
    cache->statistics.hits++;
    (void)cache_memory_put(&cache->memory, key, ret_cubin); /* without it, the disk again */
    unlock(cache);
    return 0;
}

int cache_get(struct cache *cache, const struct key *key, struct cubin *ret_cubin)
{
    int r = cache_get_again(cache, key, ret_cubin);

    if (r == CACHE_E_MISS)
        count(cache, &cache->statistics.misses);
    return r;
}

static void store(struct cache *cache, const struct key *key, const struct cubin *cubin)
{
    struct cubin_file_header header;
    char name[CACHE_DISK_NAME_MAX];
    uint64_t removed;
    int r;

    cubin_file_header_init(&header, key, cubin);
    cache_disk_name(key, name);
    r = cache_disk_write(&cache->disk, name, &header, sizeof(header), cubin->bytes, cubin->size);
    if (r) {
        note_failure(cache, "write", r);
        return;
    }
    count(cache, &cache->statistics.stores);
    (void)shrink_disk(cache, cache->max_bytes, &removed);
}

void cache_put(struct cache *cache, const struct key *key, const struct cubin *cubin)
{
    if (cubin->size == 0 || cubin->size > CUBIN_BYTES_MAX) {
        note_failure(cache, "put", EFBIG);
        return;
    }
    /* The disk first: its failure makes room in memory. */
    if (has_disk(cache))
        store(cache, key, cubin);
    lock(cache);
    (void)cache_memory_put(&cache->memory, key, cubin);
    unlock(cache);
}

void cache_remove(struct cache *cache, const struct key *key)
{
    char name[CACHE_DISK_NAME_MAX];

    forget(cache, key);
    if (!has_disk(cache))
        return;
    cache_disk_name(key, name);
    remove_damaged(cache, name);
}

/* --- all entries ----------------------------------------------------------------------------- */

static struct cache_entry
describe(const struct key *key, const struct cubin *cubin, uint64_t bytes, int64_t last_used)
{
    struct cache_entry entry = {
        .key = *key,
        .bytes = bytes,
        .registers = cubin->registers,
        .shared_memory = cubin->shared_memory,
        .spill_bytes = cubin->spill_bytes,
        .compile_seconds = cubin->compile_seconds,
        .last_used = last_used,
    };

    static_assert(sizeof(entry.configuration) == sizeof(cubin->configuration), "copied whole");
    memcpy(entry.configuration, cubin->configuration, sizeof(entry.configuration));
    return entry;
}

struct listing {
    cache_entry_fn fn;
    void *context;
};

static void list_in_memory(const struct key *key,
                           const struct cubin *cubin,
                           int64_t used_seconds,
                           void *context)
{
    const struct listing *listing = context;
    struct cache_entry entry = describe(key, cubin, cubin->size, used_seconds);

    listing->fn(&entry, false, listing->context);
}

static int list_file(struct cache *cache,
                     const struct cache_file *file,
                     bool verify,
                     const struct listing *listing)
{
    cleanup(cubin_deinit) struct cubin cubin = CUBIN_NULL;
    struct cache_entry entry;
    int r = read_entry(cache, &file->key, false, &cubin);

    if (r < 0)
        return error_trace(r);
    if (r == ENTRY_E_ABSENT)
        return 0; /* removed by another process in between */
    entry = describe(&file->key, &cubin, file->size, file->used_ns / 1000000000);
    listing->fn(&entry, r == ENTRY_E_DAMAGED, listing->context);
    if (r == ENTRY_E_DAMAGED && verify) {
        char name[CACHE_DISK_NAME_MAX];

        cache_disk_name(&file->key, name);
        remove_damaged(cache, name);
    }
    return 0;
}

int cache_list(struct cache *cache, bool verify, cache_entry_fn fn, void *context)
{
    struct listing listing = {.fn = fn, .context = context};
    cleanup(freep) struct cache_file *files = NULL;
    size_t n = 0;
    int r;

    if (!has_disk(cache)) {
        lock(cache);
        cache_memory_for_each(&cache->memory, list_in_memory, &listing);
        unlock(cache);
        return 0;
    }
    r = cache_disk_scan(&cache->disk, &files, &n);
    if (r) {
        note_failure(cache, "scan", r);
        return 0;
    }
    while (n > 0) {
        r = list_file(cache, &files[--n], verify, &listing);
        if (r)
            return error_trace(r);
    }
    return 0;
}

/* --- flights --------------------------------------------------------------------------------- */

int cache_flight_begin(struct cache *cache, const struct key *key, int *ret_lock)
{
    int r, fd = -1;

    if (has_disk(cache)) {
        r = cache_disk_lock(&cache->disk, key, &fd);
        if (r == EAGAIN)
            return CACHE_E_BUSY;
        if (r) /* compile alone rather than not at all */
            note_failure(cache, "lock", r);
    }
    *ret_lock = fd;
    return 0;
}

void cache_flight_end(struct cache *cache, int lock_fd)
{
    (void)cache;
    fd_closep(&lock_fd);
}

/* --- the compiler last used ------------------------------------------------------------------ */

static bool identity_equal(const struct compiler_identity *a, const struct compiler_identity *b)
{
    return a->major == b->major && a->minor == b->minor && strcmp(a->build, b->build) == 0;
}

int cache_get_compiler(struct cache *cache, struct compiler_identity *ret_compiler)
{
    struct compiler_identity compiler = {0};
    cleanup(freep) void *bytes = NULL;
    char text[128];
    size_t size;

    if (!has_disk(cache) ||
        cache_disk_read(&cache->disk, COMPILER_NAME, sizeof(text) - 1, false, &bytes, &size) != 0)
        return CACHE_E_MISS;
    memcpy(text, bytes, size);
    text[size] = '\0';
    static_assert(sizeof(compiler.build) == 64, "the format below has its length");
    if (sscanf(text, "%u %u %63s", &compiler.major, &compiler.minor, compiler.build) != 3)
        return CACHE_E_MISS;
    *ret_compiler = compiler;
    return 0;
}

void cache_put_compiler(struct cache *cache, const struct compiler_identity *compiler)
{
    struct compiler_identity last;
    char text[128];
    int r, n;

    if (!has_disk(cache) ||
        (cache_get_compiler(cache, &last) == 0 && identity_equal(&last, compiler)))
        return;
    n = snprintf(text, sizeof(text), "%u %u %s\n", compiler->major, compiler->minor,
                 compiler->build);
    r = cache_disk_write(&cache->disk, COMPILER_NAME, text, (size_t)n, NULL, 0);
    if (r)
        note_failure(cache, "write", r);
}
