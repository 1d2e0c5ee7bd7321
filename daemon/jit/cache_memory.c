#include "cache_memory.h"

#include "../core/error.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct item {
    struct list link;
    struct key key;
    struct cubin cubin;
    int64_t used_seconds;
};

static struct item *item_of(struct list *link)
{
    return container_of(link, struct item, link);
}

static int copy_cubin(const struct cubin *cubin, struct cubin *ret_copy)
{
    struct cubin copy = *cubin;

    copy.bytes = malloc(cubin->size);
    if (!copy.bytes)
        return error_origin(-ENOMEM);
    memcpy(copy.bytes, cubin->bytes, cubin->size);
    *ret_copy = copy;
    return 0;
}

static struct item *find(struct cache_memory *memory, const struct key *key)
{
    list_for_each(link, &memory->items)
    {
        if (key_equal(&item_of(link)->key, key))
            return item_of(link);
    }
    return NULL;
}

static void drop(struct cache_memory *memory, struct item *item)
{
    list_unlink(&item->link);
    memory->bytes -= item->cubin.size;
    memory->count--;
    cubin_deinit(&item->cubin);
    free(item);
}

void cache_memory_init(struct cache_memory *memory, uint64_t max_bytes)
{
    *memory = (struct cache_memory){.max_bytes = max_bytes};
    list_init(&memory->items);
}

void cache_memory_deinit(struct cache_memory *memory)
{
    (void)cache_memory_shrink(memory, 0);
}

int cache_memory_get(struct cache_memory *memory, const struct key *key, struct cubin *ret_cubin)
{
    struct item *item = find(memory, key);

    if (!item)
        return CACHE_E_MISS;
    list_unlink(&item->link);
    list_prepend(&memory->items, &item->link);
    item->used_seconds = time(NULL);
    return copy_cubin(&item->cubin, ret_cubin);
}

int cache_memory_put(struct cache_memory *memory, const struct key *key, const struct cubin *cubin)
{
    struct item *item = calloc(1, sizeof(*item));
    int r;

    if (!item)
        return error_origin(-ENOMEM);
    r = copy_cubin(cubin, &item->cubin);
    if (r) {
        free(item);
        return error_trace(r);
    }
    item->key = *key;
    item->used_seconds = time(NULL);
    (void)cache_memory_remove(memory, key);
    list_prepend(&memory->items, &item->link);
    memory->bytes += cubin->size;
    memory->count++;
    (void)cache_memory_shrink(memory, memory->max_bytes);
    return 0;
}

bool cache_memory_remove(struct cache_memory *memory, const struct key *key)
{
    struct item *item = find(memory, key);

    if (item)
        drop(memory, item);
    return item != NULL;
}

uint64_t cache_memory_shrink(struct cache_memory *memory, uint64_t bytes)
{
    uint64_t before = memory->count;

    while (memory->bytes > bytes)
        drop(memory, item_of(memory->items.previous));
    return before - memory->count;
}

void cache_memory_for_each(struct cache_memory *memory, cache_memory_fn fn, void *context)
{
    list_for_each(link, &memory->items)
    {
        const struct item *item = item_of(link);

        fn(&item->key, &item->cubin, item->used_seconds, context);
    }
}
