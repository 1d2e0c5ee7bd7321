/*
 * The stages of a worker's replacement: each from the one before, none out of turn.
 */
#include "../../daemon/front/worker_recovery.h"

#include <criterion/criterion.h>

#define MS 1000000ull

TestSuite(worker_recovery);

Test(worker_recovery, has_a_time_for_each_stage_from_the_one_before)
{
    struct recovery recovery = {0};

    recovery_begin(&recovery, 10 * MS, 13 * MS);
    recovery_reach(&recovery, RECOVERY_ENDED, 113 * MS);
    recovery_reach(&recovery, RECOVERY_STARTED, 114 * MS);
    recovery_reach(&recovery, RECOVERY_RESTORED, 120 * MS);
    recovery_reach(&recovery, RECOVERY_ANSWERED, 121 * MS);
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_NOTICED), 3e-3, 1e-9);
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_ENDED), 100e-3, 1e-9);
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_STARTED), 1e-3, 1e-9);
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_RESTORED), 6e-3, 1e-9);
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_ANSWERED), 1e-3, 1e-9);
}

/* The first worker says hello and answers, too. */
Test(worker_recovery, knows_nothing_of_a_worker_that_replaced_none)
{
    struct recovery recovery = {0};

    for (int stage = RECOVERY_ENDED; stage < RECOVERY_STAGES; stage++) {
        recovery_reach(&recovery, (enum recovery_stage)stage, 5 * MS);
        cr_expect_not(recovery_has_reached(&recovery, (enum recovery_stage)stage));
        cr_expect_eq(recovery_seconds(&recovery, (enum recovery_stage)stage), 0);
    }
}

/* An answer of the old worker that is taken after its death is none of the new one. */
Test(worker_recovery, takes_no_stage_before_its_turn_or_twice)
{
    struct recovery recovery = {0};

    recovery_begin(&recovery, 10 * MS, 11 * MS);
    recovery_reach(&recovery, RECOVERY_ANSWERED, 12 * MS);
    cr_expect_not(recovery_has_reached(&recovery, RECOVERY_ANSWERED));
    recovery_reach(&recovery, RECOVERY_ENDED, 20 * MS);
    recovery_reach(&recovery, RECOVERY_ENDED, 90 * MS);
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_ENDED), 9e-3, 1e-9);
}

Test(worker_recovery, begins_anew_with_the_next_death)
{
    struct recovery recovery = {0};

    recovery_begin(&recovery, 10 * MS, 11 * MS);
    recovery_reach(&recovery, RECOVERY_ENDED, 20 * MS);
    recovery_begin(&recovery, 40 * MS, 45 * MS);
    cr_expect_not(recovery_has_reached(&recovery, RECOVERY_ENDED));
    cr_expect_float_eq(recovery_seconds(&recovery, RECOVERY_NOTICED), 5e-3, 1e-9);
}
