/*
 * Where inline operands and results lie while their job is under way: host memory of the front's,
 * mapped by the worker, in chunks of one largest message. Regions are cut first-fit and given
 * back when the job is done; an empty chunk beyond the first goes.
 *
 * Owner: the server. Thread: loop. Regions are embedded in jobs.
 */
#pragma once

#include "../../proto/frame.h"
#include "../core/list.h"
#include "worker_process.h"

#define STAGING_CHUNK     FRAME_LENGTH_MAX /* no inline operand or result is larger */
#define STAGING_ALIGNMENT 256              /* rows then start as they would in a buffer */

struct staging {
    struct list chunks;
    struct worker_process *worker;
    uint64_t bytes; /* in regions */
};

struct staging_region {
    struct list link;            /* in its chunk, by offset */
    struct staging_chunk *chunk; /* NULL: none taken */
    uint64_t offset, size;
};

void staging_init(struct staging *staging, struct worker_process *worker);
void staging_deinit(struct staging *staging); /* every region was given back */
/* The bytes keep what an earlier job left: the caller overwrites or clears them. */
int staging_take(struct staging *staging, uint64_t size, struct staging_region *ret_region);
void staging_give(struct staging_region *region); /* idempotent */
uint8_t *staging_data(const struct staging_region *region);
struct memory *staging_memory(const struct staging_region *region);
