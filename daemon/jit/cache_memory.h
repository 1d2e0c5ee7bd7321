/*
 * Cubins in memory, least recently used out first: the hot ones in front of the disk, or all there
 * is when there is no disk.
 *
 * Owner: the cache, under its mutex.
 */
#pragma once

#include "../core/list.h"
#include "../core/std.h"
#include "cache.h"

struct cache_memory {
    struct list items; /* most recently used first */
    uint64_t bytes, count, max_bytes;
};

/* Calls back for each, most recently used first. */
typedef void (*cache_memory_fn)(const struct key *key,
                                const struct cubin *cubin,
                                int64_t used_seconds,
                                void *context);

void cache_memory_init(struct cache_memory *memory, uint64_t max_bytes);
void cache_memory_deinit(struct cache_memory *memory);
/* 0 with a copy, CACHE_E_MISS, or -ENOMEM. */
int cache_memory_get(struct cache_memory *memory, const struct key *key, struct cubin *ret_cubin);
/* Keeps a copy, in place of an earlier one; -ENOMEM leaves things as they are. */
int cache_memory_put(struct cache_memory *memory, const struct key *key, const struct cubin *cubin);
bool cache_memory_remove(struct cache_memory *memory, const struct key *key);
/* Down to `bytes`; returns how many went. */
uint64_t cache_memory_shrink(struct cache_memory *memory, uint64_t bytes);
void cache_memory_for_each(struct cache_memory *memory, cache_memory_fn fn, void *context);
