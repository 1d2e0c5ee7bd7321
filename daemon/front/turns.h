/*
 * Whose turn it is among jobs that are ready: fair over uids first, by device time and weight; then
 * within the uid the higher priority; then fair over the uid's connections; then first come, first
 * served. So a priority moves work only past the same uid's other work, and nobody gains by opening
 * more connections than another uid.
 *
 * Tracks (kernels_src/abi/ring.h) take turns side by side: who waits for one of them does not keep
 * others from another. A uid is charged for what it had of all of them.
 *
 * Each level is start-time fair queueing (share.h), charged with estimates when work is committed
 * and corrected to what was measured when it completes.
 *
 * A uid's account outlives its last connection while it has had more than its turn, or coming back
 * as somebody new would pay its debt.
 *
 * Owner: the queue. Thread: loop.
 */
#pragma once

#include "quota.h"

struct job;

/* One connection's jobs. */
struct stream {
    struct list jobs;                    /* by stream_link, in the order of requests */
    struct flow flows[QUOTA_PRIORITIES]; /* ready ones, by queue_link; in account.classes */
    bool must_block_again;               /* queue_replay.c */
};

struct turns {
    struct share_group uids;
    struct list debtors; /* accounts held here */
};

void turns_init(struct turns *turns);
void turns_deinit(struct turns *turns);
void stream_init(struct stream *stream);

void turns_enter(struct turns *turns, struct job *job);
void turns_leave(struct job *job);
/* Its client is gone: from now on it belongs to its account alone. `is_ready`: it has entered;
 * `in_service`: its commands that are not over. */
void turns_orphan(struct turns *turns, struct job *job, bool is_ready, uint32_t in_service);
/* Among jobs of this track that no earlier one of their flow waits before; NULL: there is none. */
struct job *turns_next(const struct turns *turns, enum gemmd_track track);
/* A command of the job is committed, estimated at `seconds`. */
void turns_charge(struct turns *turns, struct job *job, double seconds);
/* It is over. `beyond`: seconds it took more than was charged; it is negative when less. */
void turns_served(struct turns *turns, struct job *job, double beyond);
/* Releases accounts whose debt is paid. Charges may be released in it. */
void turns_settle(struct turns *turns);
