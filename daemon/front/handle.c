/*
 * A connection's numbers for buffers (buffer.h): slot in the low half, generation in the high, so
 * that a number given back does not soon mean another buffer.
 */
#include "buffer.h"

#include "../core/error.h"

#include <inttypes.h>
#include <stdlib.h>

void handles_deinit(struct handles *handles)
{
    for (uint32_t i = 0; i < handles->capacity; i++) {
        struct handle *handle = &handles->entries[i];

        if (handle->buffer && handle->is_maker)
            handle->buffer->has_maker = false;
        /* A client's own memory goes with the client. */
        if (handle->buffer && handle->is_maker && buffer_is_imported(handle->buffer))
            buffer_forget_name(handle->buffer);
        handle->buffer = buffer_unref(handle->buffer);
    }
    free(handles->entries);
    *handles = (struct handles){0};
}

static int grow(struct handles *handles)
{
    uint32_t capacity = handles->capacity ? handles->capacity * 2 : 8;
    struct handle *entries = realloc(handles->entries, capacity * sizeof(*entries));

    if (!entries)
        return error_origin(-ENOMEM);
    for (uint32_t i = handles->capacity; i < capacity; i++)
        entries[i] = (struct handle){0};
    handles->entries = entries;
    handles->capacity = capacity;
    return 0;
}

int handles_add(struct handles *handles,
                struct buffer *buffer,
                bool writable,
                bool maker,
                uint64_t *ret_id,
                struct fault *ret_fault)
{
    uint32_t slot = 0;
    int r;

    if (handles->count >= HANDLES_MAX) {
        (void)fault_set(ret_fault, STATUS_LIMIT, "buffer",
                        "this connection has %d buffers open; the limit is %d", HANDLES_MAX,
                        HANDLES_MAX);
        return BUFFER_E_FAULT;
    }
    if (handles->count == handles->capacity) {
        r = grow(handles);
        if (r < 0)
            return error_trace(r);
        slot = handles->count;
    }
    while (handles->entries[slot].buffer)
        slot++;
    handles->entries[slot].buffer = buffer;
    handles->entries[slot].is_writable = writable;
    handles->entries[slot].is_maker = maker;
    handles->entries[slot].generation++;
    handles->count++;
    if (maker)
        buffer->has_maker = true;
    *ret_id = (uint64_t)handles->entries[slot].generation << 32 | slot;
    return 0;
}

bool handle_may_write(const struct handle *handle,
                      const char *argument,
                      uint64_t id,
                      struct fault *ret_fault)
{
    if (handle->is_writable && !handle->buffer->is_frozen)
        return true;
    (void)fault_set(ret_fault, STATUS_PERMISSION, argument, "buffer %" PRIu64 " is %s", id,
                    handle->buffer->is_frozen ? "frozen" : "open for reading only");
    return false;
}

struct handle *handles_find(const struct handles *handles, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    struct handle *handle;

    if (slot >= handles->capacity)
        return NULL;
    handle = &handles->entries[slot];
    return handle->buffer && handle->generation == id >> 32 ? handle : NULL;
}

void handles_remove(struct handles *handles, struct handle *handle, uid_t uid)
{
    struct buffer *buffer = steal(handle->buffer, NULL);
    bool is_owner = uid == buffer->uid || uid == 0;

    handles->count--;
    if (handle->is_maker || (!buffer->has_maker && is_owner))
        buffer_forget_name(buffer);
    if (handle->is_maker)
        buffer->has_maker = false;
    (void)buffer_unref(buffer);
}
