/*
 * Who pays for what: every client, job, buffer and byte that a peer causes is charged to its uid
 * before it is taken, and released exactly once. Over the limit is an error for that request only.
 *
 * The account also carries the uid's place in the fair order of jobs (turns.h).
 *
 * Owner: the server owns the quota; whoever holds a charge keeps its account alive. Thread: loop.
 */
#pragma once

#include "../core/list.h"
#include "../core/status.h"
#include "share.h"
#include <sys/types.h>

enum quota_resource {
    QUOTA_CLIENTS,
    QUOTA_JOBS,
    QUOTA_BUFFERS,
    QUOTA_HOST_BYTES,
    QUOTA_DEVICE_BYTES,
    QUOTA_INLINE_BYTES,
    QUOTA_MESSAGE_BYTES,
    QUOTA_COUNT,
};

#define QUOTA_PRIORITIES 3 /* -1, 0, 1: among jobs of one uid */

#define QUOTA_WEIGHTS_MAX 64   /* uids that are named; all others weigh 1 */
#define QUOTA_WEIGHT_MOST 1000 /* so that the others still get a turn per second */

/* Of device time, against other uids that want it. */
struct quota_weight {
    uid_t uid;
    uint32_t weight;
};

struct quota {
    struct list accounts;
    const struct quota_weight *weights; /* borrowed */
    size_t weight_count;
    uint64_t limits[QUOTA_COUNT];
    uint64_t used[QUOTA_COUNT]; /* all uids together */
};

struct account {
    struct list link; /* in quota.accounts */
    struct quota *quota;
    uid_t uid;
    uint64_t charges; /* how many are held, and holds; the account goes with the last */
    uint64_t used[QUOTA_COUNT];
    uint64_t faults; /* device faults that this uid's jobs caused */
    /* turns.c */
    struct share share;                           /* among uids */
    struct share_group classes[QUOTA_PRIORITIES]; /* its connections' flows */
    struct flow orphans;                          /* jobs whose connection is gone */
    struct list debt_link;                        /* in turns.debtors */
};

struct charge {
    struct account *account; /* NULL: nothing is charged */
    enum quota_resource resource;
    uint64_t amount;
};

#define CHARGE_NULL ((struct charge){0})

enum {
    QUOTA_E_LIMIT = 1, /* the fault names resource, use and limit */
};

void quota_init(struct quota *quota);   /* with the limits of limits.h */
void quota_deinit(struct quota *quota); /* every charge was released */

/* Charges a uid (its account is made when it has none). */
int quota_charge(struct quota *quota,
                 uid_t uid,
                 enum quota_resource resource,
                 uint64_t amount,
                 struct charge *ret_charge,
                 struct fault *ret_fault);
/* The same charge with another amount; over the limit it stays as it is. */
int charge_resize(struct charge *charge, uint64_t amount, struct fault *ret_fault);
void charge_release(struct charge *charge); /* idempotent */
/* Keeps an account alive without a charge. */
void account_hold(struct account *account);
void account_release(struct account *account);
