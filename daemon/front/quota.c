#include "quota.h"

#include "../core/error.h"
#include "../limits.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct {
    uint64_t limit;
    const char *name, *argument; /* of the request, when one alone decides the amount */
} resources[QUOTA_COUNT] = {
    [QUOTA_CLIENTS] = {LIMIT_CLIENTS_PER_UID, "connections", ""},
    [QUOTA_JOBS] = {LIMIT_JOBS_PER_UID, "jobs under way", ""},
    [QUOTA_BUFFERS] = {LIMIT_BUFFERS_PER_UID, "buffers", ""},
    [QUOTA_HOST_BYTES] = {LIMIT_HOST_BYTES_PER_UID, "bytes of host memory", "size"},
    [QUOTA_DEVICE_BYTES] = {LIMIT_DEVICE_BYTES_PER_UID, "bytes of device memory", "size"},
    [QUOTA_INLINE_BYTES] = {LIMIT_INLINE_BYTES_PER_UID, "bytes of inline operands", ""},
    [QUOTA_MESSAGE_BYTES] = {LIMIT_MESSAGE_BYTES_PER_UID, "bytes of frames under way", ""},
};

void quota_init(struct quota *quota)
{
    *quota = (struct quota){0};
    list_init(&quota->accounts);
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        quota->limits[i] = resources[i].limit;
}

void quota_deinit(struct quota *quota)
{
    assert(list_is_empty(&quota->accounts));
    (void)quota;
}

static struct account *account_find(struct quota *quota, uid_t uid)
{
    list_for_each(cursor, &quota->accounts)
    {
        struct account *account = container_of(cursor, struct account, link);

        if (account->uid == uid)
            return account;
    }
    return NULL;
}

static double weight_of(const struct quota *quota, uid_t uid)
{
    for (size_t i = 0; i < quota->weight_count; i++) {
        if (quota->weights[i].uid == uid)
            return quota->weights[i].weight;
    }
    return 1;
}

static struct account *account_new(struct quota *quota, uid_t uid)
{
    struct account *account = calloc(1, sizeof(*account));

    if (!account)
        return NULL;
    account->quota = quota;
    account->uid = uid;
    share_init(&account->share, weight_of(quota, uid));
    flow_init(&account->orphans);
    list_init(&account->debt_link);
    for (size_t i = 0; i < QUOTA_PRIORITIES; i++)
        share_group_init(&account->classes[i]);
    list_append(&quota->accounts, &account->link);
    return account;
}

static int refuse(const struct quota *quota,
                  const struct charge *wanted,
                  uint64_t used,
                  uid_t uid,
                  struct fault *ret_fault)
{
    (void)fault_set(ret_fault, STATUS_LIMIT, resources[wanted->resource].argument,
                    "uid %u would have %" PRIu64 " + %" PRIu64 " %s; the limit is %" PRIu64,
                    (unsigned)uid, used, wanted->amount, resources[wanted->resource].name,
                    quota->limits[wanted->resource]);
    return QUOTA_E_LIMIT;
}

int quota_charge(struct quota *quota,
                 uid_t uid,
                 enum quota_resource resource,
                 uint64_t amount,
                 struct charge *ret_charge,
                 struct fault *ret_fault)
{
    struct account *account = account_find(quota, uid);
    uint64_t used = account ? account->used[resource] : 0;

    if (amount > quota->limits[resource] - MIN(used, quota->limits[resource]))
        return refuse(quota, &(struct charge){.resource = resource, .amount = amount}, used, uid,
                      ret_fault);
    if (!account)
        account = account_new(quota, uid);
    if (!account)
        return error_origin(-ENOMEM);

    account->charges++;
    account->used[resource] += amount;
    quota->used[resource] += amount;
    *ret_charge = (struct charge){.account = account, .resource = resource, .amount = amount};
    return 0;
}

int charge_resize(struct charge *charge, uint64_t amount, struct fault *ret_fault)
{
    struct account *account = charge->account;
    const uint64_t limit = account->quota->limits[charge->resource];
    const uint64_t others = account->used[charge->resource] - charge->amount;
    const struct charge wanted = {.resource = charge->resource, .amount = amount};

    if (amount > charge->amount && amount > limit - MIN(others, limit))
        return refuse(account->quota, &wanted, others, account->uid, ret_fault);
    account->used[charge->resource] = others + amount;
    account->quota->used[charge->resource] += amount - charge->amount;
    charge->amount = amount;
    return 0;
}

void account_hold(struct account *account)
{
    account->charges++;
}

void account_release(struct account *account)
{
    if (--account->charges > 0)
        return;
    assert(list_is_empty(&account->share.link) && list_is_empty(&account->orphans.ready));
    list_unlink(&account->link);
    free(account);
}

void charge_release(struct charge *charge)
{
    struct account *account = charge->account;

    if (!account)
        return;
    assert(account->used[charge->resource] >= charge->amount);
    account->used[charge->resource] -= charge->amount;
    account->quota->used[charge->resource] -= charge->amount;
    *charge = CHARGE_NULL;
    account_release(account);
}
