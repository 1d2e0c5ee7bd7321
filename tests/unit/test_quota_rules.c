#include "../../daemon/front/quota_rules.h"
#include "../../daemon/limits.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct quota_rules rules;
static char message[512];

static bool take(const char *section, const char *key, const char *value)
{
    return quota_rules_take(&rules, section, key, value, sizeof(message), message);
}

static struct quota_policy policy_of(uid_t uid)
{
    struct quota_policy builtin, policy;

    quota_policy_init(&builtin);
    quota_rules_resolve(&rules, &builtin, uid, &policy);
    return policy;
}

Test(quota_rules, built_in_is_what_limits_h_says_and_trusts_nobody)
{
    struct quota_policy policy = policy_of(0);

    cr_expect_eq(policy.limits[QUOTA_JOBS], LIMIT_JOBS_PER_UID);
    cr_expect_eq(policy.limits[QUOTA_OUTPUT_BYTES], LIMIT_OUTPUT_BYTES_PER_UID);
    cr_expect_eq(policy.weight, 1);
    cr_expect_not(policy.trusts_ipc);
}

Test(quota_rules, a_uid_section_wins_over_default_which_wins_over_built_in)
{
    cr_assert(take("uid 7", "jobs", "3"), "%s", message);
    cr_assert(take("default", "jobs", "2"), "%s", message);
    cr_assert(take("default", "buffers", "9"), "%s", message);
    cr_expect_eq(policy_of(7).limits[QUOTA_JOBS], 3, "whichever comes first in the file");
    cr_expect_eq(policy_of(7).limits[QUOTA_BUFFERS], 9);
    cr_expect_eq(policy_of(8).limits[QUOTA_JOBS], 2);
    cr_expect_eq(policy_of(8).limits[QUOTA_CLIENTS], LIMIT_CLIENTS_PER_UID);
}

Test(quota_rules, every_resource_has_a_key_that_sets_it)
{
    for (int i = 0; i < QUOTA_COUNT; i++) {
        const struct quota_resource_entry *entry = quota_resource_entry((enum quota_resource)i);

        cr_assert(take("uid 1", entry->key, "5"), "%s", message);
        cr_expect_eq(policy_of(1).limits[i], 5, "%s", entry->key);
        cr_expect_eq(policy_of(2).limits[i], entry->limit, "%s", entry->key);
        cr_expect_leq(entry->limit, entry->most, "%s", entry->key);
    }
}

Test(quota_rules, reads_bytes_with_units_weights_and_trust)
{
    cr_assert(take("uid 1", "host-bytes", "3G"), "%s", message);
    cr_assert(take("uid 1", "weight", "1000"), "%s", message);
    cr_assert(take("uid 1", "trusts-ipc", "yes"), "%s", message);
    cr_expect_eq(policy_of(1).limits[QUOTA_HOST_BYTES], 3ull << 30);
    cr_expect_eq(policy_of(1).weight, 1000);
    cr_expect(policy_of(1).trusts_ipc);
    cr_expect_not(policy_of(0).trusts_ipc);
}

Test(quota_rules, trust_of_all_can_be_taken_from_one)
{
    cr_assert(take("default", "trusts-ipc", "yes"));
    cr_assert(take("uid 1", "trusts-ipc", "no"));
    cr_expect(policy_of(2).trusts_ipc);
    cr_expect_not(policy_of(1).trusts_ipc);
}

Test(quota_rules, refuses_what_is_out_of_range_and_says_what_is_allowed)
{
    static const char *const wrong[][2] = {
        {"connections", "513"},   {"connections", "-1"},
        {"connections", "1K"},    {"jobs", ""},
        {"jobs", "1048577"},      {"buffers", "many"},
        {"weight", "0"},          {"weight", "1001"},
        {"host-bytes", "1025T"},  {"host-bytes", "1Q"},
        {"trusts-ipc", "1"},      {"trusts-ipc", ""},
        {"device-bytes", "1.5G"}, {"descriptors", "0x10"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        rules = (struct quota_rules){0};
        cr_expect_not(take("default", wrong[i][0], wrong[i][1]), "%s %s", wrong[i][0], wrong[i][1]);
        cr_expect_not_null(strstr(message, wrong[i][0]), "%s", message);
        cr_expect_not_null(strstr(message, "allowed is"), "%s", message);
    }
}

Test(quota_rules, an_unknown_key_is_answered_with_the_nearest_and_all)
{
    cr_expect_not(take("uid 1", "job", "3"));
    cr_expect_not_null(strstr(message, "[uid 1] has no job"), "%s", message);
    cr_expect_not_null(strstr(message, "did you mean jobs?"), "%s", message);
    cr_expect_not_null(strstr(message, "output-bytes"), "%s", message);
    cr_expect_not(take("default", "trust-ipc", "yes"));
    cr_expect_not_null(strstr(message, "did you mean trusts-ipc?"), "%s", message);
    cr_expect_not(take("default", "hostbytes", "1G"));
    cr_expect_not_null(strstr(message, "did you mean host-bytes?"), "%s", message);
}

Test(quota_rules, a_key_given_twice_is_refused)
{
    cr_assert(take("uid 1", "jobs", "3"));
    cr_expect_not(take("uid 1", "jobs", "3"));
    cr_expect_not_null(strstr(message, "twice"), "%s", message);
    cr_expect(take("uid 2", "jobs", "3"), "that is another section");
}

Test(quota_rules, knows_its_sections)
{
    cr_expect(quota_rules_know_section("default"));
    cr_expect(quota_rules_know_section("uid 0"));
    cr_expect(quota_rules_know_section("uid 4294967294"));
    cr_expect_not(quota_rules_know_section("uid 4294967295"));
    cr_expect_not(quota_rules_know_section("uid"));
    cr_expect_not(quota_rules_know_section("uid joe"));
    cr_expect_not(quota_rules_know_section("uid -1"));
    cr_expect_not(quota_rules_know_section("Default"));
}

Test(quota_rules, takes_as_many_uids_as_the_limit_says)
{
    char section[32];

    for (unsigned i = 0; i < QUOTA_UIDS_MAX; i++) {
        (void)snprintf(section, sizeof(section), "uid %u", i);
        cr_assert(take(section, "weight", "2"), "%s", message);
    }
    cr_expect_not(take("uid 1000", "weight", "2"));
    cr_expect_not_null(strstr(message, "64"), "%s", message);
    cr_expect(take("uid 63", "jobs", "2"), "one that is there is not one more");
    cr_expect_not(quota_rules_set_weight(&rules, 1000, 2));
}
