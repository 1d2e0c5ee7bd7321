/*
 * Start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queueing: a scheduling algorithm
 * for integrated services packet switching networks", SIGCOMM 1996) over things that take turns.
 *
 * Each share has a start tag: the virtual time at which its next piece of work begins. The least
 * tag is served next; serving moves the tag on by cost / weight. The group's virtual time is the
 * tag that was served last, and a share that comes back starts no earlier: idle time is not saved
 * up. When the group has been idle its virtual time moves to the latest tag: use of a machine that
 * nobody else wanted is not held against anyone.
 *
 * Chosen among its kin because it needs a cost only when a piece is served, may be told later what
 * the piece cost in truth, and delays a share by at most one piece of each other one.
 *
 * Owner: turns.c. Thread: loop.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/list.h"

struct share {
    struct list link; /* in share_group.active while it has work */
    double start;     /* tag, in seconds of service at weight 1 */
    double weight;
};

/* Work of one kind in the order it came, and its share. */
struct flow {
    struct share share;
    struct list ready;
};

struct share_group {
    struct list active;
    double virtual, latest;
    uint64_t in_service; /* pieces charged and not yet served */
};

/* Whether the share's next piece of work runs in this track. */
typedef bool (*share_may_fn)(const struct share *share, enum gemmd_track track);

void share_group_init(struct share_group *group);
void share_init(struct share *share, double weight);
void flow_init(struct flow *flow);

void share_enter(struct share_group *group, struct share *share); /* has work now */
void share_leave(struct share *share);                            /* has none any more */
/* Whose turn it is among those that `may`; NULL: nobody's. */
struct share *share_next(const struct share_group *group, share_may_fn may, enum gemmd_track track);
/* A piece of it is being served, at this cost in seconds. */
void share_charge(struct share_group *group, struct share *share, double cost);
/* That piece is done; `correction` is what it cost beyond what was charged. */
void share_served(struct share_group *group, struct share *share, double correction);
bool share_group_is_idle(const struct share_group *group);
