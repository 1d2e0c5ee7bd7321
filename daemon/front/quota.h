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
#include "quota_rules.h"
#include "share.h"
#include <sys/types.h>

#define QUOTA_PRIORITIES 3 /* -1, 0, 1: among jobs of one uid */

struct quota {
    struct list accounts;
    struct quota_policy builtin; /* limits.h, as this machine allows it */
    struct quota_rules rules;    /* the operator's */
    uint64_t used[QUOTA_COUNT];  /* all uids together */
};

#define QUOTA_IMPORT_FAULTS 2 /* one may be an accident */

struct account {
    struct list link; /* in quota.accounts */
    struct quota *quota;
    uid_t uid;
    struct quota_policy policy; /* what it may have now */
    uint64_t charges;           /* how many are held, and holds; the account goes with the last */
    uint64_t used[QUOTA_COUNT];
    uint64_t faults;        /* device faults that this uid's jobs caused */
    uint32_t import_faults; /* workers that died of memory which this uid imported */
    /* turns.c */
    struct share share;                           /* among uids */
    struct share_group classes[QUOTA_PRIORITIES]; /* its connections' flows */
    struct flow orphans;                          /* jobs whose connection is gone */
    uint32_t ready[GEMMD_TRACK_COUNT];            /* jobs that have entered */
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
/* Lowers a built-in limit to what the machine has; what an operator says stands as it is. */
void quota_fit(struct quota *quota, enum quota_resource resource, uint64_t most);
/* From now on these hold, for uids that are here too. Who is over a new limit keeps what it has,
 * and gets no more. */
void quota_set_rules(struct quota *quota, const struct quota_rules *rules);
bool quota_trusts_ipc(const struct quota *quota, uid_t uid);

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
/* A worker died of memory that the uid imported. Remembered for as long as the daemon lives. */
void quota_note_import_fault(struct quota *quota, uid_t uid);
/* False when the uid has lost the right to import, or is not trusted with legacy handles: the fault
 * says which. */
bool quota_may_import(struct quota *quota, uid_t uid, bool is_ipc, struct fault *ret_fault);
/* Keeps an account alive without a charge. */
void account_hold(struct account *account);
void account_release(struct account *account);
