/*
 * Slabs: device memory that small buffers are cut from. An allocation of its own costs each at
 * least a unit of the device (2 MiB), a descriptor here and a mapping in the worker; a cut costs
 * none of them. A slab holds buffers of several uids, so it is never exported, and whoever takes a
 * cut clears it first.
 *
 * Cuts are first-fit. A slab goes with its last cut: between buffers nothing is kept from those who
 * need the memory.
 *
 * Owner: buffers, by value; cuts are embedded in buffers. Thread: loop.
 */
#pragma once

#include "../core/list.h"
#include "worker_process.h"

#define SLAB_BYTES     (2u << 20)       /* at least; a unit of the device where that is more */
#define SLAB_CUT_MAX   (SLAB_BYTES / 2) /* a larger one would leave most of a slab to nobody */
#define SLAB_ALIGNMENT 256              /* plans count on it (product.c), as with any buffer */

struct slab;

struct slabs {
    struct list all; /* struct slab */
    struct worker_process *worker;
    uint64_t count;
};

struct slab_cut {
    struct list link;  /* in its slab, by offset */
    struct slab *slab; /* NULL: none taken */
    uint64_t offset, size;
    void (*changed)(struct slab_cut *cut); /* the slab's memory is MAPPED or LOST now */
};

void slabs_init(struct slabs *slabs, struct worker_process *worker);
void slabs_deinit(struct slabs *slabs); /* every cut was given back */
/* What a cut of that size takes. */
uint64_t slab_cut_bytes(uint64_t size);
/* At most SLAB_CUT_MAX bytes; they hold what the last cut left there. cut->changed is set. When the
 * memory is not MAPPED yet, `changed` is called later. */
int slab_take(struct slabs *slabs, uint64_t size, struct slab_cut *cut);
/* Whether slab_take() would take it from a slab that is there, and not LOST. */
bool slabs_have_room(const struct slabs *slabs, uint64_t size);
void slab_give(struct slab_cut *cut); /* idempotent; also from within any cut's `changed` */
struct memory *slab_memory(const struct slab_cut *cut);
