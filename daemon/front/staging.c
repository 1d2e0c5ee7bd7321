#include "staging.h"

#include "../core/error.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct staging_chunk {
    struct list link;
    struct staging *staging;
    struct memory memory;
    struct list regions; /* by offset */
    uint8_t *data;
};

void staging_init(struct staging *staging, struct worker_process *worker)
{
    *staging = (struct staging){.worker = worker};
    list_init(&staging->chunks);
}

static struct staging_chunk *chunk_free(struct staging_chunk *chunk)
{
    assert(list_is_empty(&chunk->regions));
    list_unlink(&chunk->link);
    worker_memory_remove(chunk->staging->worker, &chunk->memory);
    if (chunk->data != MAP_FAILED)
        (void)munmap(chunk->data, STAGING_CHUNK);
    free(chunk);
    return NULL;
}

void staging_deinit(struct staging *staging)
{
    list_for_each_safe(cursor, following, &staging->chunks)
    {
        (void)chunk_free(container_of(cursor, struct staging_chunk, link));
    }
}

/* One empty chunk is kept: most loads need no more, and mapping one in a CUDA worker costs 1 ms. So
 * is one that the worker was asked to map and has not: whoever comes next uses it, or each client
 * that goes meanwhile would leave a chunk in the queue to a slow worker. */
static void chunk_release(struct staging_chunk *chunk)
{
    bool is_other = chunk->staging->chunks.next != &chunk->link;
    bool is_under_way = chunk->memory.is_asked && chunk->memory.state == MEMORY_WANTED;

    if ((is_other && !is_under_way) || chunk->memory.state == MEMORY_LOST)
        (void)chunk_free(chunk);
}

static void chunk_changed(struct memory *memory)
{
    struct staging_chunk *chunk = container_of(memory, struct staging_chunk, memory);

    if (list_is_empty(&chunk->regions))
        chunk_release(chunk);
}

static int chunk_map(struct staging_chunk *chunk)
{
    int fd = memfd_create("gemmd-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return error_origin(-errno);
    chunk->memory.fd = fd;
    if (ftruncate(fd, STAGING_CHUNK) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return error_origin(-errno);
    chunk->data = mmap(NULL, STAGING_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (chunk->data == MAP_FAILED)
        return error_origin(-errno);
    return error_trace(worker_memory_add(chunk->staging->worker, &chunk->memory));
}

static int chunk_new(struct staging *staging, struct staging_chunk **ret_chunk)
{
    struct staging_chunk *chunk = calloc(1, sizeof(*chunk));
    int r;

    if (!chunk)
        return error_origin(-ENOMEM);
    chunk->staging = staging;
    chunk->data = MAP_FAILED;
    chunk->memory = (struct memory){.kind = LINK_MEMORY_HOST,
                                    .fd = -1,
                                    .size = STAGING_CHUNK,
                                    .is_writable = true,
                                    .changed = chunk_changed};
    list_init(&chunk->memory.link);
    list_init(&chunk->regions);
    list_append(&staging->chunks, &chunk->link);
    r = chunk_map(chunk);
    if (r < 0) {
        (void)chunk_free(chunk);
        return error_trace(r);
    }
    *ret_chunk = chunk;
    return 0;
}

/* First gap that is large enough. */
static bool
chunk_take(struct staging_chunk *chunk, uint64_t size, struct staging_region *ret_region)
{
    uint64_t begin = 0;
    struct list *position = &chunk->regions;

    if (chunk->memory.state == MEMORY_LOST)
        return false;
    list_for_each(cursor, &chunk->regions)
    {
        struct staging_region *region = container_of(cursor, struct staging_region, link);

        if (region->offset - begin >= size) {
            position = cursor;
            break;
        }
        begin = region->offset + region->size;
    }
    if (STAGING_CHUNK - begin < size)
        return false;
    *ret_region = (struct staging_region){.chunk = chunk, .offset = begin, .size = size};
    list_insert_before(position, &ret_region->link);
    return true;
}

int staging_take(struct staging *staging, uint64_t size, struct staging_region *ret_region)
{
    uint64_t rounded = (size + STAGING_ALIGNMENT - 1) & ~(uint64_t)(STAGING_ALIGNMENT - 1);
    struct staging_chunk *chunk;
    int r;

    assert(size > 0 && rounded <= STAGING_CHUNK);
    staging->bytes += rounded;
    list_for_each(cursor, &staging->chunks)
    {
        if (chunk_take(container_of(cursor, struct staging_chunk, link), rounded, ret_region))
            return 0;
    }
    r = chunk_new(staging, &chunk);
    if (r < 0) {
        staging->bytes -= rounded;
        return error_trace(r);
    }
    (void)chunk_take(chunk, rounded, ret_region);
    return 0;
}

void staging_give(struct staging_region *region)
{
    struct staging_chunk *chunk = steal(region->chunk, NULL);

    if (!chunk)
        return;
    chunk->staging->bytes -= region->size;
    list_unlink(&region->link);
    if (list_is_empty(&chunk->regions))
        chunk_release(chunk);
}

uint8_t *staging_data(const struct staging_region *region)
{
    return region->chunk->data + region->offset;
}

struct memory *staging_memory(const struct staging_region *region)
{
    return &region->chunk->memory;
}
