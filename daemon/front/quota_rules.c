#include "quota_rules.h"

#include "../limits.h"
#include "value_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT_MOST (1ull << 20) /* of things: far beyond what a machine holds */
#define BYTES_MOST (1ull << 50) /* sums of a few stay far from 2^64 */

static const struct quota_resource_entry resources[QUOTA_COUNT] = {
    [QUOTA_CLIENTS] = {.key = "connections",
                       .name = "connections",
                       .argument = "",
                       .limit = LIMIT_CLIENTS_PER_UID,
                       .most = LIMIT_CLIENTS},
    [QUOTA_JOBS] = {.key = "jobs",
                    .name = "jobs under way",
                    .argument = "",
                    .limit = LIMIT_JOBS_PER_UID,
                    .most = COUNT_MOST},
    [QUOTA_BUFFERS] = {.key = "buffers",
                       .name = "buffers",
                       .argument = "",
                       .limit = LIMIT_BUFFERS_PER_UID,
                       .most = COUNT_MOST},
    [QUOTA_DESCRIPTORS] = {.key = "descriptors",
                           .name = "descriptors",
                           .argument = "",
                           .limit = LIMIT_DESCRIPTORS_PER_UID,
                           .most = COUNT_MOST},
    [QUOTA_HOST_BYTES] = {.key = "host-bytes",
                          .name = "bytes of host memory",
                          .argument = "size",
                          .limit = LIMIT_HOST_BYTES_PER_UID,
                          .most = BYTES_MOST,
                          .is_bytes = true},
    [QUOTA_DEVICE_BYTES] = {.key = "device-bytes",
                            .name = "bytes of device memory",
                            .argument = "size",
                            .limit = LIMIT_DEVICE_BYTES_PER_UID,
                            .most = BYTES_MOST,
                            .is_bytes = true},
    [QUOTA_IMPORTED_BYTES] = {.key = "imported-bytes",
                              .name = "bytes of imported device memory",
                              .argument = "size",
                              .limit = LIMIT_IMPORTED_BYTES_PER_UID,
                              .most = BYTES_MOST,
                              .is_bytes = true},
    [QUOTA_INLINE_BYTES] = {.key = "inline-bytes",
                            .name = "bytes of inline operands",
                            .argument = "",
                            .limit = LIMIT_INLINE_BYTES_PER_UID,
                            .most = BYTES_MOST,
                            .is_bytes = true},
    [QUOTA_MESSAGE_BYTES] = {.key = "message-bytes",
                             .name = "bytes of unfinished frames",
                             .argument = "",
                             .limit = LIMIT_MESSAGE_BYTES_PER_UID,
                             .most = BYTES_MOST,
                             .is_bytes = true},
    [QUOTA_OUTPUT_BYTES] = {.key = "output-bytes",
                            .name = "bytes of unread replies",
                            .argument = "",
                            .limit = LIMIT_OUTPUT_BYTES_PER_UID,
                            .most = BYTES_MOST,
                            .is_bytes = true},
};

const struct quota_resource_entry *quota_resource_entry(enum quota_resource resource)
{
    return &resources[resource];
}

void quota_policy_init(struct quota_policy *ret_policy)
{
    *ret_policy = (struct quota_policy){.weight = 1};
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        ret_policy->limits[i] = resources[i].limit;
}

/* --- which holds ----------------------------------------------------------------------------- */

static void apply(const struct quota_rule *rule, struct quota_policy *policy)
{
    for (size_t i = 0; i < QUOTA_COUNT; i++) {
        if (rule->has_limit & (1u << i))
            policy->limits[i] = rule->policy.limits[i];
    }
    if (rule->has_weight)
        policy->weight = rule->policy.weight;
    if (rule->has_trusts_ipc)
        policy->trusts_ipc = rule->policy.trusts_ipc;
}

static const struct quota_rule *find(const struct quota_rules *rules, uid_t uid)
{
    for (size_t i = 0; i < rules->count; i++) {
        if (rules->uids[i].uid == uid)
            return &rules->uids[i];
    }
    return NULL;
}

void quota_rules_resolve(const struct quota_rules *rules,
                         const struct quota_policy *builtin,
                         uid_t uid,
                         struct quota_policy *ret_policy)
{
    const struct quota_rule *own = find(rules, uid);

    *ret_policy = *builtin;
    apply(&rules->common, ret_policy);
    if (own)
        apply(own, ret_policy);
}

/* --- the file's sections --------------------------------------------------------------------- */

static bool uid_from_section(const char *section, uid_t *ret_uid)
{
    uint64_t uid;

    /* The last number is "no uid". */
    if (strncmp(section, "uid ", 4) != 0 ||
        !number_from_text(section + 4, 10, UINT32_MAX - 1, &uid))
        return false;
    *ret_uid = (uid_t)uid;
    return true;
}

bool quota_rules_know_section(const char *section)
{
    uid_t uid;

    return strcmp(section, "default") == 0 || uid_from_section(section, &uid);
}

/* The uid's rule, made when there is none; NULL: too many. */
static struct quota_rule *rule_of(struct quota_rules *rules, uid_t uid)
{
    struct quota_rule *rule = (struct quota_rule *)find(rules, uid);

    if (rule || rules->count == QUOTA_UIDS_MAX)
        return rule;
    rule = &rules->uids[rules->count++];
    *rule = (struct quota_rule){.uid = uid};
    return rule;
}

bool quota_rules_set_weight(struct quota_rules *rules, uid_t uid, uint32_t weight)
{
    struct quota_rule *rule = rule_of(rules, uid);

    if (!rule)
        return false;
    rule->policy.weight = weight;
    rule->has_weight = true;
    return true;
}

/* One key on its way into a rule. */
struct setting {
    struct quota_rule *rule;
    const char *section, *key, *value;
    size_t size;
    char *message;
};

static bool is_twice(const struct setting *s)
{
    (void)snprintf(s->message, s->size, "[%.32s] has %.32s twice", s->section, s->key);
    return false;
}

static bool is_wrong(const struct setting *s, const char *allowed)
{
    (void)snprintf(s->message, s->size, "[%.32s] %.32s is \"%.64s\"; allowed is %s", s->section,
                   s->key, s->value, allowed);
    return false;
}

static bool take_limit(const struct setting *s, enum quota_resource resource)
{
    const struct quota_resource_entry *entry = &resources[resource];
    char allowed[96];
    uint64_t limit;
    bool is_number = entry->is_bytes ? size_from_text(s->value, &limit)
                                     : number_from_text(s->value, 10, UINT64_MAX, &limit);

    if (s->rule->has_limit & (1u << resource))
        return is_twice(s);
    if (!is_number || limit > entry->most) {
        (void)snprintf(allowed, sizeof(allowed), "a number from 0 to %" PRIu64 "%s", entry->most,
                       entry->is_bytes ? ", or one with K, M, G or T" : "");
        return is_wrong(s, allowed);
    }
    s->rule->policy.limits[resource] = limit;
    s->rule->has_limit |= 1u << resource;
    return true;
}

static bool take_weight(const struct setting *s)
{
    uint64_t weight;

    static_assert(QUOTA_WEIGHT_MOST == 1000, "the sentence says so");
    if (s->rule->has_weight)
        return is_twice(s);
    if (!number_from_text(s->value, 10, QUOTA_WEIGHT_MOST, &weight) || weight == 0)
        return is_wrong(s, "a number from 1 to 1000");
    s->rule->policy.weight = (uint32_t)weight;
    s->rule->has_weight = true;
    return true;
}

static bool take_trusts_ipc(const struct setting *s)
{
    if (s->rule->has_trusts_ipc)
        return is_twice(s);
    s->rule->has_trusts_ipc = true;
    return switch_from_text(s->value, &s->rule->policy.trusts_ipc) || is_wrong(s, "yes or no");
}

/* The key that was meant, most likely, and all there are. */
static bool is_unknown(const struct setting *s)
{
    const char *nearest = "weight";
    int length = snprintf(s->message, s->size,
                          "[%.32s] has no %.32s; allowed are weight, "
                          "trusts-ipc",
                          s->section, s->key);

    if (text_distance(s->key, "trusts-ipc") < text_distance(s->key, nearest))
        nearest = "trusts-ipc";
    for (size_t i = 0; i < QUOTA_COUNT; i++) {
        if (text_distance(s->key, resources[i].key) < text_distance(s->key, nearest))
            nearest = resources[i].key;
        length += snprintf(s->message + length, s->size - (size_t)length, ", %s", resources[i].key);
    }
    (void)snprintf(s->message + length, s->size - (size_t)length, "; did you mean %s?", nearest);
    return false;
}

bool quota_rules_take(struct quota_rules *rules,
                      const char *section,
                      const char *key,
                      const char *value,
                      size_t message_size,
                      char *message)
{
    struct setting setting = {NULL, section, key, value, message_size, message};
    uid_t uid;

    setting.rule = uid_from_section(section, &uid) ? rule_of(rules, uid) : &rules->common;
    if (!setting.rule) {
        (void)snprintf(message, message_size, "[%.32s] is one section too many; at most %d uids",
                       section, QUOTA_UIDS_MAX);
        return false;
    }
    if (strcmp(key, "weight") == 0)
        return take_weight(&setting);
    if (strcmp(key, "trusts-ipc") == 0)
        return take_trusts_ipc(&setting);
    for (size_t i = 0; i < QUOTA_COUNT; i++) {
        if (strcmp(key, resources[i].key) == 0)
            return take_limit(&setting, (enum quota_resource)i);
    }
    return is_unknown(&setting);
}
