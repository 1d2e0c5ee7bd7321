/*
 * How a lost context is found while a command does not end, over the fake driver and its NVML, by a
 * clock of the test's own: one that stands still with the test, on a machine that is busy.
 */
#include "../../daemon/core/clock.h"
#include "../../daemon/worker/cuda_health.h"
#include "../support/fake_driver.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define LONG_AGO 0      /* since when the command runs */
#define TURN_NS  100000 /* between two looks of a worker that waits */

static uint64_t clock_ns = 1000000000;
static struct driver driver;
static struct cuda_health health;
static struct fault fault;
static struct cuda_health_waiting oldest; /* the command */

/* In the place of core/clock.c's, which its library then does not give. */
uint64_t clock_now_ns(void)
{
    return clock_ns;
}

static void open_fake(void)
{
    (void)setenv("GEMMD_LIBCUDA", FAKE_DRIVER, 1);
    fake_driver_reset();
    cr_assert_eq(driver_init(&driver, &fault), 0, "%s", fault.message);
    cr_assert_eq(cu(&driver)->StreamCreate(&oldest.stream, 0), CUDA_SUCCESS);
    cr_assert_eq(cuda_health_init(&health, &driver, &fault), 0);
    cr_assert_eq(cuda_health_begin(&health), 0);
}

static void watch(void)
{
    (void)setenv("GEMMD_LIBNVML", FAKE_DRIVER, 1);
    xid_watch_init(&health.xid, FAKE_DRIVER_UUID);
    cr_assert_not_null(health.xid.events);
}

static void close_clean(void)
{
    struct fake_driver_live live;

    fake_driver_hold(false);
    cuda_health_deinit(&health);
    (void)cu(&driver)->StreamDestroy(oldest.stream);
    live = fake_driver_live();
    cr_expect_eq(live.streams, 0);
    cr_expect_eq(live.host_allocations, 0);
    cr_expect_eq(live.event_sets, 0);
}

TestSuite(cuda_health, .init = open_fake, .fini = close_clean, .timeout = 30);

/* What a worker that waits does, for so long; the first result that is not 0. */
static int look_for(unsigned ms, uint64_t since_ns)
{
    uint64_t end = clock_ns + ms * 1000000ull;
    int r = 0;

    oldest.since_ns = since_ns;
    for (; r == 0 && clock_ns < end; clock_ns += TURN_NS)
        r = cuda_health_look(&health, &oldest);
    return r;
}

/* So many writes in all. */
static void look_until_beats(unsigned writes)
{
    for (; fake_driver_calls("cuStreamWriteValue32") < writes; clock_ns += TURN_NS)
        cr_assert_eq(cuda_health_look(&health, &oldest), 0);
}

Test(cuda_health, a_command_may_take_its_time)
{
    watch();
    fake_driver_hold(true);
    cr_expect_eq(look_for(300, LONG_AGO), 0);
}

Test(cuda_health, short_command_costs_the_device_nothing)
{
    watch();
    cr_expect_eq(look_for(40, clock_ns), 0);
    cr_expect_eq(fake_driver_calls("cuStreamWriteValue32"), 0);
}

/* --- whether the device does anything -------------------------------------------------------- */

Test(cuda_health, device_that_does_other_things_beside_a_command_answers)
{
    for (uint64_t before = 0, i = 0; i < 3; i++) {
        cr_expect_eq(look_for(100, LONG_AGO), 0);
        cr_expect_gt(health.answers, before);
        before = health.answers;
    }
}

Test(cuda_health, device_that_stands_still_answers_nothing_until_it_moves)
{
    fake_driver_hold(true);
    cr_expect_eq(look_for(200, LONG_AGO), 0);
    cr_expect_eq(health.answers, 0);
    fake_driver_hold(false);
    cr_expect_eq(look_for(200, LONG_AGO), 0);
    cr_expect_gt(health.answers, 0);
}

/* Where CUDA gave a beat's stream the queue of the command's. */
Test(cuda_health, one_beat_of_two_is_an_answer)
{
    fake_driver_hold(true);
    look_until_beats(CUDA_HEALTH_BEATS);
    for (uint64_t before = 0, i = 0; i < 3; i++) {
        fake_driver_release(fake_driver_last_stream());
        cr_expect_eq(look_for(50, LONG_AGO), 0);
        cr_expect_gt(health.answers, before);
        before = health.answers;
    }
}

/* Beats are written by another part of the device than the one that runs kernels. */
Test(cuda_health, beats_are_no_answer_before_the_fill_came)
{
    health.words->has_begun = 0;
    cr_expect_eq(look_for(200, LONG_AGO), 0);
    cr_expect_gt(fake_driver_calls("cuStreamWriteValue32"), 2 * CUDA_HEALTH_BEATS);
    cr_expect_eq(health.answers, 0);
    health.words->has_begun = 1;
    cr_expect_eq(look_for(100, LONG_AGO), 0);
    cr_expect_gt(health.answers, 0);
}

/* --- whether the context lives --------------------------------------------------------------- */

Test(cuda_health, context_is_lost_when_cuda_says_so)
{
    watch();
    fake_driver_break(CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_expect_lt(look_for(1000, clock_ns), 0);
    fake_driver_break(CUDA_SUCCESS);
}

Test(cuda_health, context_is_lost_that_does_not_beat_after_a_report)
{
    uint64_t begun = clock_ns;

    watch();
    fake_driver_hold(true);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_expect_lt(look_for(5000, LONG_AGO), 0);
    cr_expect_geq(clock_ns - begun, 100000000);
}

/* Nor has it faulted: who died before it did, and the device is not there for the next one yet. */
Test(cuda_health, context_that_has_not_begun_is_not_lost_by_a_report)
{
    watch();
    health.words->has_begun = 0;
    fake_driver_hold(true);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_expect_eq(look_for(400, clock_ns), 0);
    fake_driver_hold(false);
    health.words->has_begun = 1;
    cr_expect_eq(look_for(200, clock_ns), 0);
}

/* Reports are of the device, and other processes have it, too. */
Test(cuda_health, report_of_another_ones_fault_ends_nobody)
{
    watch();
    for (unsigned i = 1; i <= 3; i++) {
        fake_driver_hold(true);
        fake_driver_xid(FAKE_DRIVER_XID_TRAP);
        look_until_beats(CUDA_HEALTH_BEATS * i);
        fake_driver_hold(false);
        cr_expect_eq(look_for(250, LONG_AGO), 0);
    }
}

/* Streams of the other priority live on for a while. */
Test(cuda_health, context_is_lost_when_streams_of_one_priority_do_not_beat)
{
    watch();
    fake_driver_hold(true);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    look_until_beats(CUDA_HEALTH_BEATS);
    fake_driver_release(fake_driver_last_stream());
    cr_expect_lt(look_for(5000, LONG_AGO), 0);
}

/* So for `ms` milliseconds, while the beats of that stream come. */
static int look_while_it_beats(unsigned stream, unsigned ms)
{
    int r = 0;

    for (unsigned i = 0; i < ms && r == 0; i += 5) {
        fake_driver_release(stream);
        r = look_for(5, LONG_AGO);
    }
    return r;
}

/* Where CUDA gave a beat's stream the queue of the command's, and the fault is another process's.
 */
Test(cuda_health, beat_that_was_stuck_before_a_report_ends_nobody_after_it)
{
    unsigned stream;

    watch();
    fake_driver_hold(true);
    look_until_beats(CUDA_HEALTH_BEATS);
    stream = fake_driver_last_stream();
    cr_expect_eq(look_while_it_beats(stream, 600), 0);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_expect_eq(look_while_it_beats(stream, 300), 0);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_expect_lt(look_for(300, LONG_AGO), 0, "now no beat comes");
}

/* Whoever asks of a trap waits in that call for a second, on a device. */
Test(cuda_health, cuda_is_not_asked_of_a_trap)
{
    uint64_t begun = clock_ns;

    watch();
    fake_driver_hold(true);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_expect_lt(look_for(5000, begun), 0);
    cr_expect_lt(clock_ns - begun, 400000000);
    cr_expect_eq(fake_driver_calls("cuStreamQuery"), 0);
}

Test(cuda_health, cuda_is_asked_at_once_of_other_faults)
{
    uint64_t begun = clock_ns;

    watch();
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    fake_driver_xid(FAKE_DRIVER_XID_ADDRESS);
    fake_driver_fail("cuStreamQuery", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    fake_driver_hold(true);
    cr_expect_lt(look_for(5000, begun), 0);
    cr_expect_lt(clock_ns - begun, 90000000, "not by the beats");
}

/* Of the worker before this one. */
Test(cuda_health, reports_from_before_the_first_command_are_dropped)
{
    watch();
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_assert_eq(cuda_health_begin(&health), 0);
    fake_driver_hold(true);
    cr_expect_eq(look_for(40, clock_ns), 0);
    cr_expect_eq(fake_driver_calls("cuStreamWriteValue32"), 0);
}

/* It stands for long while commands are short; then one is not. */
Test(cuda_health, old_report_ends_nobody_whose_command_takes_long)
{
    watch();
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    fake_driver_stop_stream(0);
    cr_expect_eq(look_for(400, clock_ns), 0);
}

/* What makes no report. */
Test(cuda_health, other_errors_are_asked_for_after_half_a_second)
{
    watch();
    fake_driver_hold(true);
    cr_expect_eq(look_for(300, clock_ns), 0);
    cr_expect_eq(fake_driver_calls("cuStreamQuery"), 0);
    fake_driver_break(CUDA_ERROR_UNKNOWN);
    cr_expect_lt(look_for(5000, clock_ns), 0);
    fake_driver_break(CUDA_SUCCESS);
}

Test(cuda_health, reports_are_not_looked_for_while_commands_are_short)
{
    watch();
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    for (int i = 0; i < 100; i++)
        cr_expect_eq(look_for(1, clock_ns), 0);
    cr_expect_eq(fake_driver_calls("cuStreamWriteValue32"), 0);
}

Test(cuda_health, without_nvml_cuda_alone_is_asked)
{
    (void)setenv("GEMMD_LIBNVML", "/nonexistent.so", 1);
    xid_watch_init(&health.xid, FAKE_DRIVER_UUID);
    fake_driver_hold(true);
    fake_driver_xid(FAKE_DRIVER_XID_TRAP);
    cr_expect_eq(look_for(250, LONG_AGO), 0);
    cr_expect_null(health.xid.events);
}
