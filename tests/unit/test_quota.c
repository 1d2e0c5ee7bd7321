#include "../../daemon/front/quota.h"
#include "../../daemon/limits.h"

#include <criterion/criterion.h>
#include <string.h>

static struct quota quota;
static struct fault fault;

static void start(void)
{
    quota_init(&quota);
}

static void stop(void)
{
    quota_deinit(&quota);
}

TestSuite(quota, .init = start, .fini = stop);

Test(quota, releases_exactly_what_was_charged)
{
    struct charge bytes = CHARGE_NULL, job = CHARGE_NULL;

    cr_assert_eq(quota_charge(&quota, 7, QUOTA_HOST_BYTES, 1000, &bytes, &fault), 0);
    cr_assert_eq(quota_charge(&quota, 7, QUOTA_JOBS, 1, &job, &fault), 0);
    cr_expect_eq(quota.used[QUOTA_HOST_BYTES], 1000);
    charge_release(&bytes);
    charge_release(&bytes);
    cr_expect_eq(quota.used[QUOTA_HOST_BYTES], 0);
    cr_expect_eq(job.account->used[QUOTA_JOBS], 1);
    charge_release(&job);
    cr_expect(list_is_empty(&quota.accounts));
}

Test(quota, refuses_what_exceeds_the_limit_and_charges_nothing)
{
    struct charge most = CHARGE_NULL, more = CHARGE_NULL;

    cr_assert_eq(
        quota_charge(&quota, 7, QUOTA_INLINE_BYTES, LIMIT_INLINE_BYTES_PER_UID, &most, &fault), 0);
    cr_expect_eq(quota_charge(&quota, 7, QUOTA_INLINE_BYTES, 1, &more, &fault), QUOTA_E_LIMIT);
    cr_expect_eq(fault.status, STATUS_LIMIT);
    cr_expect_not_null(strstr(fault.message, "268435456"));
    cr_expect_null(more.account);
    charge_release(&most);
}

Test(quota, does_not_wrap_at_the_top)
{
    struct charge one = CHARGE_NULL, more = CHARGE_NULL;

    cr_assert_eq(quota_charge(&quota, 7, QUOTA_HOST_BYTES, 1, &one, &fault), 0);
    cr_expect_eq(quota_charge(&quota, 7, QUOTA_HOST_BYTES, UINT64_MAX, &more, &fault),
                 QUOTA_E_LIMIT);
    charge_release(&one);
}

Test(quota, of_one_uid_leaves_the_others_alone)
{
    struct charge mine = CHARGE_NULL, theirs = CHARGE_NULL;

    cr_assert_eq(quota_charge(&quota, 1, QUOTA_JOBS, LIMIT_JOBS_PER_UID, &mine, &fault), 0);
    cr_expect_eq(quota_charge(&quota, 2, QUOTA_JOBS, 1, &theirs, &fault), 0);
    charge_release(&mine);
    charge_release(&theirs);
}

Test(quota, has_a_limit_for_every_resource)
{
    for (int i = 0; i < QUOTA_COUNT; i++) {
        struct charge all = CHARGE_NULL, more = CHARGE_NULL;

        cr_assert_gt(quota.builtin.limits[i], 0);
        cr_assert_eq(
            quota_charge(&quota, 3, (enum quota_resource)i, quota.builtin.limits[i], &all, &fault),
            0);
        cr_expect_eq(quota_charge(&quota, 3, (enum quota_resource)i, 1, &more, &fault),
                     QUOTA_E_LIMIT);
        charge_release(&all);
    }
}

Test(quota, a_charge_grows_and_shrinks_within_the_limit)
{
    struct charge mine, other;

    cr_assert_eq(quota_charge(&quota, 7, QUOTA_MESSAGE_BYTES, 0, &mine, &fault), 0);
    cr_assert_eq(quota_charge(&quota, 7, QUOTA_MESSAGE_BYTES, 1000, &other, &fault), 0);
    cr_expect_eq(charge_resize(&mine, LIMIT_MESSAGE_BYTES_PER_UID - 1000, &fault), 0);
    cr_expect_eq(quota.used[QUOTA_MESSAGE_BYTES], LIMIT_MESSAGE_BYTES_PER_UID);
    cr_expect_eq(charge_resize(&other, 1001, &fault), QUOTA_E_LIMIT);
    cr_expect_eq(other.amount, 1000);
    cr_expect_eq(charge_resize(&other, UINT64_MAX, &fault), QUOTA_E_LIMIT);
    cr_expect_eq(charge_resize(&mine, 5, &fault), 0);
    cr_expect_eq(charge_resize(&other, 1001, &fault), 0);
    cr_expect_eq(quota.used[QUOTA_MESSAGE_BYTES], 1006);
    charge_release(&mine);
    charge_release(&other);
    cr_expect_eq(quota.used[QUOTA_MESSAGE_BYTES], 0);
}

static struct quota_rules rules(enum quota_resource resource, uid_t uid, uint64_t limit)
{
    struct quota_rules rules = {.count = 1};

    rules.uids[0] = (struct quota_rule){.uid = uid, .has_limit = 1u << resource};
    rules.uids[0].policy.limits[resource] = limit;
    return rules;
}

Test(quota, a_new_limit_holds_at_once_and_takes_nothing_away)
{
    struct quota_rules fewer = rules(QUOTA_JOBS, 7, 2), more = rules(QUOTA_JOBS, 7, 4);
    struct charge three, one = CHARGE_NULL;

    cr_assert_eq(quota_charge(&quota, 7, QUOTA_JOBS, 3, &three, &fault), 0);
    quota_set_rules(&quota, &fewer);
    cr_expect_eq(quota_charge(&quota, 7, QUOTA_JOBS, 1, &one, &fault), QUOTA_E_LIMIT);
    cr_expect_eq(three.account->used[QUOTA_JOBS], 3);
    cr_expect_eq(charge_resize(&three, 2, &fault), 0, "less is always granted");
    quota_set_rules(&quota, &more);
    cr_expect_eq(quota_charge(&quota, 7, QUOTA_JOBS, 2, &one, &fault), 0);
    charge_release(&three);
    charge_release(&one);
}

Test(quota, a_limit_of_one_uid_is_not_that_of_another)
{
    struct quota_rules none = rules(QUOTA_CLIENTS, 7, 0);
    struct charge mine = CHARGE_NULL, theirs = CHARGE_NULL;

    quota_set_rules(&quota, &none);
    cr_expect_eq(quota_charge(&quota, 7, QUOTA_CLIENTS, 1, &mine, &fault), QUOTA_E_LIMIT);
    cr_expect(list_is_empty(&quota.accounts), "a refusal leaves no account");
    cr_expect_eq(quota_charge(&quota, 8, QUOTA_CLIENTS, 1, &theirs, &fault), 0);
    charge_release(&theirs);
}

Test(quota, what_a_machine_lacks_bounds_what_is_built_in_and_not_what_was_configured)
{
    struct quota_rules configured = rules(QUOTA_HOST_BYTES, 7, 100);
    struct charge built_in = CHARGE_NULL, said = CHARGE_NULL;

    quota_fit(&quota, QUOTA_HOST_BYTES, 10);
    quota_set_rules(&quota, &configured);
    cr_expect_eq(quota_charge(&quota, 8, QUOTA_HOST_BYTES, 11, &built_in, &fault), QUOTA_E_LIMIT);
    cr_expect_eq(quota_charge(&quota, 7, QUOTA_HOST_BYTES, 11, &said, &fault), 0);
    charge_release(&said);
}

Test(quota, weights_change_for_uids_that_are_here)
{
    struct quota_rules heavier = {0};
    struct charge job;

    cr_assert_eq(quota_charge(&quota, 7, QUOTA_JOBS, 1, &job, &fault), 0);
    cr_expect_eq(job.account->share.weight, 1);
    cr_assert(quota_rules_set_weight(&heavier, 7, 5));
    quota_set_rules(&quota, &heavier);
    cr_expect_eq(job.account->share.weight, 5);
    charge_release(&job);
}
