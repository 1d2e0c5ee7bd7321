/*
 * What the front thinks of a worker whose command does not end: looks of the watchdog, without its
 * clock. The device's answers are what the test says.
 */
#include "queue_fixture.h"

static uint64_t answers;

static void start_on_gpu(void)
{
    start();
    worker.device.kind = LINK_DEVICE_CUDA;
    answers = 0;
}

TestSuite(queue_overdue, .init = start_on_gpu, .fini = stop, .timeout = 30);

/* So many looks; the verdict that was not WORKER_IS_WELL, at once. */
static enum worker_verdict look(unsigned looks, bool device_answers)
{
    enum worker_verdict verdict = WORKER_IS_WELL;

    for (unsigned i = 0; i < looks && verdict == WORKER_IS_WELL; i++) {
        link_device_answered(&taker, answers += device_answers);
        verdict = queue_judge(&queue);
    }
    return verdict;
}

static unsigned looks_until(enum worker_verdict verdict, bool device_answers)
{
    unsigned looks = 1;

    while (look(1, device_answers) != verdict)
        cr_assert_lt(++looks, 100000);
    return looks;
}

/* As the watchdog does. */
static void die_of(enum worker_verdict verdict)
{
    worker.verdict = verdict;
    die();
    worker.verdict = WORKER_IS_WELL;
    answers = 0;
}

Test(queue_overdue, command_hangs_that_runs_for_two_seconds_while_the_device_does_other_things)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));

    cr_assert_eq(take(), job);
    cr_expect_eq(look(21, true), WORKER_IS_WELL);
    cr_expect_eq(look(2, true), WORKER_JOB_HANGS);
    die_of(WORKER_JOB_HANGS);
    cr_assert_eq(take(), job);
    (void)look(30, true);
    die_of(WORKER_JOB_HANGS);
    cr_expect_eq(status_of(job), STATUS_GPU_FAULT);
}

Test(queue_overdue, long_command_may_take_twenty_times_its_estimate)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 0.5));

    cr_assert_eq(take(), job);
    cr_expect_eq(look(100, true), WORKER_IS_WELL);
    cr_expect_eq(look(2, true), WORKER_JOB_HANGS);
    complete(job);
}

Test(queue_overdue, command_that_was_not_taken_does_not_hang)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));

    cr_expect_eq(look(300, true), WORKER_IS_WELL);
    cr_assert_eq(take(), job);
    complete(job);
}

/* Its loop waits in a call of the driver, a mapping perhaps: nobody looked whether the job ended.
 */
Test(queue_overdue, looks_at_a_worker_whose_heart_stands_still_count_for_nothing)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));

    cr_assert_eq(take(), job);
    worker.beats_missed = 1;
    cr_expect_eq(look(2000, false), WORKER_IS_WELL);
    worker.beats_missed = 0;
    cr_expect_eq(look(19, true), WORKER_IS_WELL);
    complete(job);
}

Test(queue_overdue, device_that_stands_still_is_waited_for_five_times_as_long)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));

    cr_assert_eq(take(), job);
    cr_expect_eq(look(100, false), WORKER_IS_WELL);
    cr_expect_eq(look(2, false), WORKER_DEVICE_STILL);
    die_of(WORKER_DEVICE_STILL);
    cr_assert_eq(take(), job);
    complete(job);
    cr_expect_eq(status_of(job), STATUS_OK);
}

/* Whoever shares the device with many sees it move now and then. */
Test(queue_overdue, device_that_answers_seldom_does_not_stand_still)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 10));

    cr_assert_eq(take(), job);
    for (int i = 0; i < 20; i++) {
        cr_expect_eq(look(90, false), WORKER_IS_WELL);
        cr_expect_eq(look(1, true), WORKER_IS_WELL);
    }
    complete(job);
}

/* From the second that died in vain on, as far as 8 times. */
static void expect_patience_to_double(enum worker_verdict verdict, bool device_answers)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));
    unsigned first, looks;

    cr_assert_eq(take(), job);
    first = looks_until(verdict, device_answers);
    for (unsigned deaths = 1; deaths <= 6; deaths++) {
        die_of(WORKER_IS_WELL);
        if (status_of(job) != STATUS_TIMEOUT) /* it was alone with the second of them */
            job = submit(&session_a, copy(1, 0, 1, 1e-5));
        cr_assert_eq(take(), job);
        looks = looks_until(verdict, device_answers);
        cr_expect_eq(looks - 2, (first - 2) << MIN(deaths - 1, 3u), "%u: %u looks", deaths, looks);
    }
    complete(job);
    job = submit(&session_a, copy(1, 0, 1, 1e-5));
    cr_assert_eq(take(), job);
    cr_expect_eq(looks_until(verdict, device_answers), first, "something completed");
    complete(job);
}

Test(queue_overdue, patience_with_a_device_doubles_with_workers_that_die_in_vain)
{
    expect_patience_to_double(WORKER_DEVICE_STILL, false);
}

/* A slow machine may not end workers for ever. */
Test(queue_overdue, patience_with_a_command_doubles_with_workers_that_die_in_vain)
{
    expect_patience_to_double(WORKER_JOB_HANGS, true);
}

Test(queue_overdue, nobody_is_suspected_or_guilty_because_the_device_stood_still)
{
    uint64_t guilty = submit(&session_b, copy(2, 0, 2, 1e-5));
    uint64_t innocent = submit(&session_a, copy(1, 0, 1, 1e-5));

    cr_assert_eq(take(), guilty);
    cr_assert_eq(take(), innocent);
    die_of(WORKER_DEVICE_STILL);
    cr_assert_eq(take(), guilty, "none of them is alone");
    cr_assert_eq(take(), innocent);
    die_of(WORKER_JOB_HANGS); /* both are suspects now */
    cr_assert_eq(take(), innocent);
    die_of(WORKER_DEVICE_STILL);
    cr_assert_eq(take(), innocent);
    complete(innocent);
    cr_assert_eq(take(), guilty);
    die_of(WORKER_DEVICE_STILL);
    cr_assert_eq(take(), guilty);
    die_of(WORKER_JOB_HANGS);
    cr_expect_eq(status_of(innocent), STATUS_OK);
    cr_expect_eq(status_of(guilty), STATUS_GPU_FAULT);
    cr_expect_eq(stats.suspects_guilty, 1);
}

/* Every wait has an end. */
Test(queue_overdue, job_is_told_after_it_waited_in_vain_with_four_workers)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));

    for (int i = 0; i < QUEUE_STILL_DEATHS; i++) {
        cr_expect_eq(status_of(job), STATUS_TIMEOUT);
        cr_assert_eq(take(), job);
        die_of(WORKER_DEVICE_STILL);
    }
    cr_expect_eq(status_of(job), STATUS_GPU_FAULT);
    cr_expect_eq(stats.suspects_guilty, 0);
}

/* It may have run in part. */
Test(queue_overdue, job_that_overwrites_its_input_is_lost_also_when_the_device_stood_still)
{
    uint64_t job = submit(&session_a, copy(1, 1, 1, 1e-5));

    cr_assert_eq(take(), job);
    die_of(WORKER_DEVICE_STILL);
    cr_expect_eq(status_of(job), STATUS_GPU_FAULT);
}

/* It computes in its loop, and says nothing of its device: there is a limit when an operator sets
 * one. */
Test(queue_overdue, of_a_cpu_every_look_counts)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 1e-5));

    worker.device.kind = LINK_DEVICE_CPU;
    cr_assert_eq(take(), job);
    cr_expect_eq(look(2000, false), WORKER_IS_WELL);
    queue.job_seconds = 1;
    queue.watched = 0;
    cr_expect_eq(looks_until(WORKER_JOB_HANGS, false), 12);
    complete(job);
}
