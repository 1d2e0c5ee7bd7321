/*
 * What each uid may have: built in (limits.h), or as the operator's configuration file says, in
 * [default] for every uid and in [uid N] for one. What a [uid N] leaves open follows [default].
 *
 * Owner: whoever embeds it. Thread: loop.
 */
#pragma once

#include "../core/std.h"
#include <sys/types.h>

enum quota_resource {
    QUOTA_CLIENTS,
    QUOTA_JOBS,
    QUOTA_BUFFERS,
    QUOTA_DESCRIPTORS,
    QUOTA_HOST_BYTES,
    QUOTA_DEVICE_BYTES,
    QUOTA_IMPORTED_BYTES,
    QUOTA_INLINE_BYTES,
    QUOTA_MESSAGE_BYTES,
    QUOTA_OUTPUT_BYTES,
    QUOTA_COUNT,
};

#define QUOTA_UIDS_MAX    64   /* that are named; the others follow [default] */
#define QUOTA_WEIGHT_MOST 1000 /* so that the others still get a turn per second */

/* Of one resource. */
struct quota_resource_entry {
    const char *key;      /* in the file */
    const char *name;     /* in a refusal */
    const char *argument; /* of the request, when one alone decides the amount; else "" */
    uint64_t limit;       /* built in */
    uint64_t most;        /* that may be configured */
    bool is_bytes;
};

/* What one uid may have. */
struct quota_policy {
    uint64_t limits[QUOTA_COUNT];
    uint32_t weight; /* of device time, against other uids that want it */
    bool trusts_ipc; /* its cudaIpc handles are opened: whoever makes one can fault the worker */
};

/* One section; bits say what it gives. */
struct quota_rule {
    uid_t uid;
    uint32_t has_limit; /* bit per enum quota_resource */
    bool has_weight, has_trusts_ipc;
    struct quota_policy policy;
};

struct quota_rules {
    struct quota_rule common; /* [default] */
    struct quota_rule uids[QUOTA_UIDS_MAX];
    size_t count;
};

const struct quota_resource_entry *quota_resource_entry(enum quota_resource resource);
/* limits.h. */
void quota_policy_init(struct quota_policy *ret_policy);
/* For one uid: its section, over [default], over `builtin`. */
void quota_rules_resolve(const struct quota_rules *rules,
                         const struct quota_policy *builtin,
                         uid_t uid,
                         struct quota_policy *ret_policy);

/* Whether a section is ours: "default", "uid N". */
bool quota_rules_know_section(const char *section);
/* Takes one key of such a section. False: the message says what is wrong. */
bool quota_rules_take(struct quota_rules *rules,
                      const char *section,
                      const char *key,
                      const char *value,
                      size_t message_size,
                      char *message);
/* A uid's weight, over what was there. False: QUOTA_UIDS_MAX are named. */
bool quota_rules_set_weight(struct quota_rules *rules, uid_t uid, uint32_t weight);
