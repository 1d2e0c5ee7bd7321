#include "../../daemon/front/estimate.h"

#include <criterion/criterion.h>

#define CLASS 77

static struct estimates estimates;

static void learn(int count, double predicted, double measured)
{
    for (int i = 0; i < count; i++)
        estimate_learn(&estimates, CLASS, predicted, measured);
}

Test(estimate, a_class_that_never_ran_takes_what_is_predicted)
{
    cr_expect_eq(estimate_correct(&estimates, CLASS, 5e-6), 5e-6);
}

Test(estimate, the_first_job_of_a_class_says_nothing)
{
    learn(1, 5e-6, 1e-3);
    cr_expect_eq(estimate_correct(&estimates, CLASS, 5e-6), 5e-6);
    learn(1, 5e-6, 6e-6);
    cr_expect_float_eq(estimate_correct(&estimates, CLASS, 5e-6), 6e-6, 1e-12);
}

Test(estimate, long_jobs_show_a_change_within_a_few)
{
    learn(20, 1e-3, 1e-3);
    learn(30, 1e-3, 2e-3);
    cr_expect_gt(estimate_correct(&estimates, CLASS, 1e-3), 1.9e-3);
}

Test(estimate, short_jobs_that_end_in_bursts_take_their_mean)
{
    for (int i = 0; i < 100; i++) {
        learn(1, 5e-6, 200e-6);
        learn(24, 5e-6, 0);
    }
    cr_expect_float_eq(estimate_correct(&estimates, CLASS, 5e-6), 8e-6, 1.5e-6);
}

Test(estimate, the_end_of_a_backlog_weighs_no_more_than_it_is)
{
    learn(20000, 4e-6, 7e-6);
    learn(128, 4e-6, 5e-6);
    cr_expect_float_eq(estimate_correct(&estimates, CLASS, 4e-6), 7e-6, 0.15e-6);
}

Test(estimate, a_stall_is_no_habit)
{
    learn(1000, 5e-6, 5e-6);
    learn(1, 5e-6, 10);
    cr_expect_lt(estimate_correct(&estimates, CLASS, 5e-6), 7e-6);
}

Test(estimate, classes_do_not_mix)
{
    learn(10, 1e-3, 2e-3);
    cr_expect_eq(estimate_correct(&estimates, CLASS + 1, 1e-3), 1e-3);
    estimate_learn(&estimates, CLASS + ESTIMATE_CLASSES, 1e-3, 5e-3);
    cr_expect_eq(estimate_correct(&estimates, CLASS, 1e-3), 1e-3, "the older is forgotten");
}
