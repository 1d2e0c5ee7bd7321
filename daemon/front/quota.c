#include "quota.h"

#include "../core/error.h"

#include <inttypes.h>
#include <stdlib.h>

void quota_init(struct quota *quota)
{
    *quota = (struct quota){0};
    list_init(&quota->accounts);
    quota_policy_init(&quota->builtin);
}

void quota_deinit(struct quota *quota)
{
    list_for_each_safe(cursor, following, &quota->accounts)
    {
        struct account *account = container_of(cursor, struct account, link);

        if (steal(account->import_faults, 0) > 0)
            account_release(account);
    }
    assert(list_is_empty(&quota->accounts));
    (void)quota;
}

void quota_fit(struct quota *quota, enum quota_resource resource, uint64_t most)
{
    quota->builtin.limits[resource] = MIN(quota->builtin.limits[resource], most);
}

void quota_set_rules(struct quota *quota, const struct quota_rules *rules)
{
    quota->rules = *rules;
    list_for_each(cursor, &quota->accounts)
    {
        struct account *account = container_of(cursor, struct account, link);

        quota_rules_resolve(rules, &quota->builtin, account->uid, &account->policy);
        account->share.weight = account->policy.weight;
    }
}

bool quota_trusts_ipc(const struct quota *quota, uid_t uid)
{
    struct quota_policy policy;

    quota_rules_resolve(&quota->rules, &quota->builtin, uid, &policy);
    return policy.trusts_ipc;
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

static struct account *account_new(struct quota *quota, uid_t uid)
{
    struct account *account = calloc(1, sizeof(*account));

    if (!account)
        return NULL;
    account->quota = quota;
    account->uid = uid;
    quota_rules_resolve(&quota->rules, &quota->builtin, uid, &account->policy);
    share_init(&account->share, account->policy.weight);
    flow_init(&account->orphans);
    list_init(&account->debt_link);
    for (size_t i = 0; i < QUOTA_PRIORITIES; i++)
        share_group_init(&account->classes[i]);
    list_append(&quota->accounts, &account->link);
    return account;
}

static int refuse(const struct account *account,
                  const struct charge *wanted,
                  uint64_t used,
                  struct fault *ret_fault)
{
    const struct quota_resource_entry *entry = quota_resource_entry(wanted->resource);

    (void)fault_set(ret_fault, STATUS_LIMIT, entry->argument,
                    "uid %u would have %" PRIu64 " + %" PRIu64 " %s; the limit is %" PRIu64,
                    (unsigned)account->uid, used, wanted->amount, entry->name,
                    account->policy.limits[wanted->resource]);
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
    struct charge charge;
    int r;

    if (!account)
        account = account_new(quota, uid);
    if (!account)
        return error_origin(-ENOMEM);

    account_hold(account);
    charge = (struct charge){.account = account, .resource = resource};
    r = charge_resize(&charge, amount, ret_fault);
    if (r != 0) {
        account_release(account);
        return r;
    }
    *ret_charge = charge;
    return 0;
}

int charge_resize(struct charge *charge, uint64_t amount, struct fault *ret_fault)
{
    struct account *account = charge->account;
    const uint64_t limit = account->policy.limits[charge->resource];
    const uint64_t others = account->used[charge->resource] - charge->amount;
    const struct charge wanted = {.resource = charge->resource, .amount = amount};

    if (amount > charge->amount && amount > limit - MIN(others, limit))
        return refuse(account, &wanted, others, ret_fault);
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

/* --- import ---------------------------------------------------------------------------------- */

void quota_note_import_fault(struct quota *quota, uid_t uid)
{
    struct account *account = account_find(quota, uid);

    if (!account)
        account = account_new(quota, uid);
    if (!account) /* no memory: the next one counts */
        return;
    if (account->import_faults++ == 0)
        account_hold(account);
}

bool quota_may_import(struct quota *quota, uid_t uid, bool is_ipc, struct fault *ret_fault)
{
    const struct account *account = account_find(quota, uid);

    if (account && account->import_faults >= QUOTA_IMPORT_FAULTS) {
        (void)fault_set(ret_fault, STATUS_PERMISSION, "",
                        "%u workers died of memory that uid %u imported: it may import no more",
                        account->import_faults, (unsigned)uid);
        return false;
    }
    if (is_ipc && !quota_trusts_ipc(quota, uid)) {
        (void)fault_set(ret_fault, STATUS_PERMISSION, "handle",
                        "uid %u is not trusted with legacy CUDA handles; pass a descriptor (from "
                        "cuMemExportToShareableHandle), or have trusts-ipc set for it",
                        (unsigned)uid);
        return false;
    }
    return true;
}
