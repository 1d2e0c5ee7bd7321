#include "slab.h"

#include "../core/error.h"

#include <stdlib.h>

struct slab {
    struct list link;
    struct slabs *slabs;
    struct memory memory;
    struct list cuts;       /* struct slab_cut, by offset */
    struct list *following; /* while its cuts are told, and it must stay: the next one; else NULL */
};

void slabs_init(struct slabs *slabs, struct worker_process *worker)
{
    *slabs = (struct slabs){.worker = worker};
    list_init(&slabs->all);
}

void slabs_deinit(struct slabs *slabs)
{
    assert(list_is_empty(&slabs->all));
    (void)slabs;
}

uint64_t slab_cut_bytes(uint64_t size)
{
    return (size + SLAB_ALIGNMENT - 1) & ~(uint64_t)(SLAB_ALIGNMENT - 1);
}

static void slab_free(struct slab *slab)
{
    list_unlink(&slab->link);
    slab->slabs->count--;
    worker_memory_remove(slab->slabs->worker, &slab->memory);
    free(slab);
}

static void free_if_unused(struct slab *slab)
{
    if (list_is_empty(&slab->cuts) && !slab->following)
        slab_free(slab);
}

static void slab_changed(struct memory *memory)
{
    struct slab *slab = container_of(memory, struct slab, memory);

    slab->following = slab->cuts.next;
    while (slab->following != &slab->cuts) {
        struct slab_cut *cut = container_of(slab->following, struct slab_cut, link);

        slab->following = cut->link.next;
        cut->changed(cut); /* may give it back, and any other: the queue goes on meanwhile */
    }
    slab->following = NULL;
    free_if_unused(slab);
}

static int slab_new(struct slabs *slabs, struct slab **ret_slab)
{
    struct slab *slab = calloc(1, sizeof(*slab));
    int r;

    if (!slab)
        return error_origin(-ENOMEM);
    slab->slabs = slabs;
    slab->memory = (struct memory){
        .kind = LINK_MEMORY_DEVICE_CREATE,
        .fd = -1,
        .size = MAX(SLAB_BYTES, slabs->worker->device.allocation_unit),
        .is_writable = true,
        .changed = slab_changed,
    };
    list_init(&slab->memory.link);
    list_init(&slab->cuts);
    r = worker_memory_add(slabs->worker, &slab->memory);
    if (r < 0) {
        worker_memory_remove(slabs->worker, &slab->memory);
        free(slab);
        return error_trace(r);
    }
    list_append(&slabs->all, &slab->link);
    slabs->count++;
    *ret_slab = slab;
    return 0;
}

struct gap {
    uint64_t begin;
    struct list *following; /* the cut behind it, or the list's end */
};

/* The first that is large enough; false: there is none. */
static bool find_gap(struct slab *slab, uint64_t size, struct gap *ret_gap)
{
    struct gap gap = {.following = &slab->cuts};

    if (slab->memory.state == MEMORY_LOST)
        return false;
    list_for_each(cursor, &slab->cuts)
    {
        const struct slab_cut *other = container_of(cursor, struct slab_cut, link);

        if (other->offset - gap.begin >= size) {
            gap.following = cursor;
            break;
        }
        gap.begin = other->offset + other->size;
    }
    if (slab->memory.size - gap.begin < size)
        return false;
    *ret_gap = gap;
    return true;
}

static bool take_from(struct slab *slab, uint64_t size, struct slab_cut *cut)
{
    struct gap gap;

    if (!find_gap(slab, size, &gap))
        return false;
    cut->slab = slab;
    cut->offset = gap.begin;
    cut->size = size;
    list_insert_before(gap.following, &cut->link);
    return true;
}

bool slabs_have_room(const struct slabs *slabs, uint64_t size)
{
    struct gap gap;

    list_for_each(cursor, &slabs->all)
    {
        if (find_gap(container_of(cursor, struct slab, link), slab_cut_bytes(size), &gap))
            return true;
    }
    return false;
}

int slab_take(struct slabs *slabs, uint64_t size, struct slab_cut *cut)
{
    uint64_t bytes = slab_cut_bytes(size);
    struct slab *slab;
    int r;

    assert(size > 0 && size <= SLAB_CUT_MAX);
    list_for_each(cursor, &slabs->all)
    {
        if (take_from(container_of(cursor, struct slab, link), bytes, cut))
            return 0;
    }
    r = slab_new(slabs, &slab);
    if (r < 0)
        return error_trace(r);
    (void)take_from(slab, bytes, cut);
    return 0;
}

void slab_give(struct slab_cut *cut)
{
    struct slab *slab = steal(cut->slab, NULL);

    if (!slab)
        return;
    if (slab->following == &cut->link)
        slab->following = cut->link.next;
    list_unlink(&cut->link);
    free_if_unused(slab);
}

struct memory *slab_memory(const struct slab_cut *cut)
{
    return &cut->slab->memory;
}
