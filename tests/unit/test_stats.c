#include "../../daemon/front/stats.h"

#include <criterion/criterion.h>

Test(stats, quantile_is_near_what_was_recorded)
{
    static const uint64_t values[] = {0, 1, 3, 4, 7, 8, 100, 12345, 1000000007, 1ull << 46};

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        struct stats_histogram histogram = {0};
        double got;

        stats_record(&histogram, values[i]);
        got = (double)stats_quantile(&histogram, 0.5);
        cr_expect_geq(got, (double)values[i]);
        cr_expect_leq(got, 1.25 * (double)values[i] + 1);
    }
}

Test(stats, quantiles_are_ordered)
{
    struct stats_histogram histogram = {0};

    for (uint64_t i = 1; i <= 1000; i++)
        stats_record(&histogram, i * 1000);
    cr_expect_leq(stats_quantile(&histogram, 0.5), stats_quantile(&histogram, 0.99));
    cr_expect_geq(stats_quantile(&histogram, 0.5), 490000);
    cr_expect_leq(stats_quantile(&histogram, 0.5), 640000);
}

Test(stats, takes_any_value)
{
    struct stats_histogram histogram = {0};

    stats_record(&histogram, UINT64_MAX);
    cr_expect_gt(stats_quantile(&histogram, 1), 0);
    cr_expect_eq(histogram.count, 1);
}

Test(stats, nothing_recorded_is_zero)
{
    struct stats_histogram histogram = {0};

    cr_expect_eq(stats_quantile(&histogram, 0.5), 0);
}
