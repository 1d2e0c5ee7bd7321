/*
 * Device copies of frozen host buffers. What nobody writes any more need not cross the bus for each
 * product: the first product that reads such a buffer has it copied as a whole, beside it, and the
 * next ones find it on the device, at the same offsets, by the same plan and with the same bits.
 *
 * A copy is a buffer of its own, charged to the uid that made the original. Together they take at
 * most a part of the device, the longest unused go first, and all that are idle go when somebody
 * else finds no memory. The original is what counts: without a copy products read it.
 *
 * Owner: the server, by value; a copy belongs to its original. Thread: loop.
 */
#pragma once

#include "buffer.h"
#include "turns.h"

#define COPIES_FRACTION 4             /* of the device's memory, at most, is copies */
#define COPIES_RETRY_NS 1000000000ull /* after one found no memory */

struct server;

struct copies {
    struct list used; /* struct copy, the longest unused first */
    struct stream stream;
    uint64_t limit, bytes;
    uint64_t made, hits; /* since the start */
};

void copies_init(struct copies *copies);
/* What a product that reads the buffer is to use: its copy, or the buffer itself. */
struct buffer *copies_use(struct server *server, struct buffer *buffer);
/* Lets go of all that no job uses, or of one uid's of them; false when there is none. */
bool copies_release(struct copies *copies, const uid_t *uid);
void copies_end(struct copies *copies); /* there are no jobs any more */
