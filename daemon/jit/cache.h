/*
 * The cubin cache on disk: one file per entry, named by its key, safe for several daemons on one
 * directory. An entry that does not verify is a miss and is removed. Writes go to a unique
 * temporary in the same directory, fsync, rename, fsync of the directory. Size-bounded LRU with a
 * use record of its own (access times may be off). One flight per key between daemons: a lock on a
 * lock file that is never deleted.
 *
 * Directory: `$CACHE_DIRECTORY`, else `$XDG_CACHE_HOME/gemmd`, else `$HOME/.cache/gemmd`, else
 * memory only; never the working directory, never one owned by somebody else. A full or read-only
 * disk costs one warning and a counter; cubins then live in memory.
 *
 * Threads: cache_get and cache_put may run on a worker thread (they block on the disk); the struct
 * is guarded by its own mutex.
 */
#pragma once

#include "../core/std.h"
#include "key.h"

struct cubin {
    void *bytes; /* owned */
    size_t size;
    uint32_t registers, shared_memory, spill_bytes; /* static shared memory, bytes */
    double compile_seconds;
    char configuration[CONFIG_TEXT_MAX];
};

#define CUBIN_NULL ((struct cubin){0})

void cubin_deinit(struct cubin *cubin);

struct cache; /* opaque */

struct cache_statistics {
    uint64_t hits, misses, stores, removed_damaged, removed_old, failures;
    uint64_t entries, bytes;
    bool is_memory_only;
    char directory[256]; /* empty when memory only */
    char reason[160];    /* why memory only; else the last failure, empty when there was none */
};

#define CACHE_BYTES_DEFAULT (512u << 20)
/* Kept in memory in front of a disk that works, and in place of one that does not. */
#define CACHE_MEMORY_BYTES      (4u << 20)
#define CACHE_MEMORY_ONLY_BYTES (64u << 20)

/* `directory` NULL: by the rules above. Never fails for a bad directory (memory only then); < 0
 * only for lack of memory. */
int cache_new(struct cache **ret_cache, const char *directory, uint64_t max_bytes);
struct cache *cache_free(struct cache *cache);

/* 0 with `ret_cubin` (owned by the caller), CACHE_E_MISS otherwise. */
int cache_get(struct cache *cache, const struct key *key, struct cubin *ret_cubin);
/* The same, but a miss is not counted: for looking again. */
int cache_get_again(struct cache *cache, const struct key *key, struct cubin *ret_cubin);
/* The same without the disk: does not block. */
int cache_get_memory(struct cache *cache, const struct key *key, struct cubin *ret_cubin);
/* Never fails the caller: what cannot be stored is counted and kept in memory. */
void cache_put(struct cache *cache, const struct key *key, const struct cubin *cubin);
void cache_remove(struct cache *cache, const struct key *key); /* the driver refused it */

/* Holds the machine-wide flight for a key: 0 when we should compile, CACHE_E_BUSY when another
 * process does (try cache_get again later). Memory only: always 0. */
int cache_flight_begin(struct cache *cache, const struct key *key, int *ret_lock);
void cache_flight_end(struct cache *cache, int lock);

/* The identity of the compiler last used with this directory: a machine without NVRTC needs it to
 * find what a machine with NVRTC put here. CACHE_E_MISS when none is recorded. */
void cache_put_compiler(struct cache *cache, const struct compiler_identity *compiler);
int cache_get_compiler(struct cache *cache, struct compiler_identity *ret_compiler);

struct cache_entry {
    struct key key;
    char configuration[CONFIG_TEXT_MAX];
    uint64_t bytes;
    uint32_t registers, shared_memory, spill_bytes;
    double compile_seconds;
    int64_t last_used; /* seconds since the epoch */
};

/* Calls back for each entry, last used first; every payload is read and checked, and `verify`
 * removes those that are damaged. The callback must not call the cache. */
typedef void (*cache_entry_fn)(const struct cache_entry *entry, bool is_damaged, void *context);
int cache_list(struct cache *cache, bool verify, cache_entry_fn fn, void *context);
/* Removes least recently used entries until at most `max_bytes` remain; counts them. */
int cache_prune(struct cache *cache, uint64_t max_bytes, uint64_t *ret_removed);
void cache_statistics(struct cache *cache, struct cache_statistics *ret_statistics);

enum {
    CACHE_E_MISS = 1,
    CACHE_E_BUSY,
};
