/*
 * Staging blocks: daemon-owned host memory for plain operands that are too large for a message.
 *
 * One block serves one job (or transfer) at a time, so the blocks are as many as were ever busy at
 * once. Idle ones are kept, since making one costs a round trip and, on a GPU, a registration; the
 * smallest that fits is taken. When none fits, an idle one gives way to its larger successor.
 */
#include <stdlib.h>

#include "client_internal.h"

#define BLOCK_MIN  ((uint64_t)1 << 20)
#define BLOCK_STEP ((uint64_t)64 << 20) /* above it sizes round up to its multiples, not powers */
#define KEPT_MAX   ((uint64_t)1 << 30)  /* idle bytes a connection holds on to */

static uint64_t block_size(uint64_t size)
{
    uint64_t rounded = BLOCK_MIN;

    if (size > UINT64_MAX - BLOCK_STEP)
        return size;
    if (size > BLOCK_STEP)
        return (size + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
    while (rounded < size)
        rounded *= 2;
    return rounded;
}

static struct staging_block *find_idle(gemmd *connection, uint64_t size)
{
    struct staging_block *best = NULL;

    list_for_each(node, &connection->staging)
    {
        struct staging_block *block = container_of(node, struct staging_block, link);

        if (!block->is_busy && block->buffer->size >= size &&
            (!best || block->buffer->size < best->buffer->size))
            best = block;
    }
    return best;
}

static void block_drop(struct staging_block *block)
{
    list_unlink(&block->link);
    gemmd_buffer_free(block->buffer);
    free(block);
}

static gemmd_status block_new(gemmd *connection, uint64_t size, struct staging_block **ret_block)
{
    cleanup(freep) struct staging_block *block = calloc(1, sizeof(*block));
    gemmd_status status;

    if (!block)
        return connection_fail(connection, GEMMD_OUT_OF_MEMORY, "",
                               "this process has no memory left");
    status = gemmd_buffer_create(connection, GEMMD_HOST, block_size(size), NULL, 0, &block->buffer);
    if (status != GEMMD_OK)
        return connection_fail(connection, status, "", "staging for %llu bytes of plain memory: %s",
                               (unsigned long long)size, connection->error.message);
    list_append(&connection->staging, &block->link);
    *ret_block = steal(block, NULL);
    return GEMMD_OK;
}

gemmd_status staging_take(gemmd *connection, uint64_t size, struct staging_block **ret_block)
{
    struct staging_block *block = find_idle(connection, size), *outgrown;
    gemmd_status status;

    if (!block) {
        outgrown = find_idle(connection, 0);
        if (outgrown)
            block_drop(outgrown);
        status = block_new(connection, size, &block);
        if (status != GEMMD_OK)
            return status;
    }
    block->is_busy = true;
    *ret_block = block;
    return GEMMD_OK;
}

static uint64_t idle_bytes(const gemmd *connection)
{
    uint64_t bytes = 0;

    list_for_each(node, &connection->staging)
    {
        const struct staging_block *block = container_of(node, struct staging_block, link);

        if (!block->is_busy)
            bytes += block->buffer->size;
    }
    return bytes;
}

void staging_give(gemmd *connection, struct staging_block *block)
{
    block->is_busy = false;
    if (!connection->is_lost && idle_bytes(connection) > KEPT_MAX)
        block_drop(block);
}

void staging_deinit(gemmd *connection)
{
    list_for_each_safe(node, following, &connection->staging)
    {
        struct staging_block *block = container_of(node, struct staging_block, link);

        buffer_forget(block->buffer);
        free(block);
    }
    list_init(&connection->staging);
}
