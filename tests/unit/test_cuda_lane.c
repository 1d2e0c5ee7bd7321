/*
 * Which commands overlap on the device, over the fake driver: streams are held and released one by
 * one, so that a command which should have waited is seen to end first.
 */
#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/cuda_lane.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct backend *gpu;
static char memory[4096];

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_driver_hold(true);
}

TestSuite(cuda_lane, .init = open_fake);

static void close_clean(void)
{
    fake_driver_hold(false);
    fake_gpu_close(gpu);
}

/* Copies a byte; the lane it went to. */
static unsigned submit_on(uint32_t track, uint64_t job, unsigned to, unsigned from)
{
    struct gemmd_command command = {
        .kind = GEMMD_COMMAND_COPY,
        .track = track,
        .is_quick = true,
        .job = job,
        .body.copy = {.destination = (uintptr_t)&memory[to],
                      .source = (uintptr_t)&memory[from],
                      .size = 1},
    };

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    return fake_driver_last_stream();
}

static unsigned submit(uint64_t job, unsigned to, unsigned from)
{
    return submit_on(GEMMD_TRACK_MAIN, job, to, from);
}

/* The job whose completion is next; 0: none. */
static uint64_t reap(void)
{
    struct gemmd_completion completion;
    int r = gpu->operations->reap(gpu, &completion);

    cr_assert_geq(r, 0);
    return r ? completion.job : 0;
}

Test(cuda_lane, commands_that_touch_different_memory_get_lanes_of_their_own)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < CUDA_QUICK_LANES; i++)
        seen |= 1u << submit(i + 1, 2 * i, 2 * i + 1);
    cr_expect_eq(seen, (1u << CUDA_QUICK_LANES) - 1);
    close_clean();
}

/* A cube of this size, on memory of its own; no kernel is loaded, so it fails once it has a lane.
 */
static unsigned submit_product(uint64_t job, int64_t size)
{
    struct gemmd_command command = {
        .kind = GEMMD_COMMAND_GEMM,
        .track = GEMMD_TRACK_MAIN,
        .is_quick = size < 1024,
        .job = job,
        .body.gemm = {.m = size,
                      .n = size,
                      .k = size,
                      .batch = 1,
                      .ldd = size,
                      .d = job << 40,
                      .alpha = 1,
                      .input = DTYPE_FP32,
                      .output = DTYPE_FP32},
    };

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    return fake_driver_last_stream();
}

Test(cuda_lane, a_small_product_may_go_first_where_a_large_one_waits)
{
    unsigned first = submit_product(1, 4096), second = submit_product(2, 4096),
             third = submit_product(3, 4096), small = submit_product(4, 256);

    cr_expect_neq(first, second);
    cr_expect(third == first || third == second);
    cr_expect(small != first && small != second);
    cr_expect_lt(fake_driver_priority(small), fake_driver_priority(first));
    close_clean();
}

Test(cuda_lane, an_idle_device_is_always_given_the_same_lane)
{
    fake_driver_hold(false);
    for (uint64_t i = 1; i < 10; i++) {
        cr_expect_eq(submit(i, 0, 1), 0);
        cr_expect_eq(reap(), i);
    }
    close_clean();
}

Test(cuda_lane, a_track_has_a_lane_that_no_other_command_gets)
{
    static const uint32_t tracks[] = {GEMMD_TRACK_IN, GEMMD_TRACK_OUT, GEMMD_TRACK_STREAM};

    for (unsigned i = 0; i < ARRAY_SIZE(tracks); i++) {
        unsigned lane = submit_on(tracks[i], 2 * i + 1, 0, 1 + i);

        cr_expect_geq(lane, CUDA_MAIN_LANES);
        cr_expect_eq(submit_on(tracks[i], 2 * i + 2, 4 + 2 * i, 5 + 2 * i), lane);
    }
    for (unsigned i = 0; i < 2 * CUDA_MAIN_LANES; i++)
        cr_expect_lt(submit(100 + i, 20 + i, 19), CUDA_MAIN_LANES);
    close_clean();
}

Test(cuda_lane, what_reads_goes_behind_what_writes)
{
    unsigned writer = submit(1, 0, 1), apart = submit(2, 2, 3);

    cr_expect_neq(apart, writer);
    cr_expect_eq(submit(3, 4, 0), writer);
    cr_expect_eq(submit(4, 1, 5), writer, "a write behind a read");
    close_clean();
}

Test(cuda_lane, what_depends_on_two_lanes_waits_for_both)
{
    unsigned first = submit(1, 0, 1), second = submit(2, 2, 3), both = submit(3, 0, 2);

    cr_expect_neq(first, second);
    cr_expect(both == first || both == second);
    cr_expect_eq(fake_driver_awaited(both), 1u << (first + second - both));
    close_clean();
}

Test(cuda_lane, ended_commands_are_waited_for_by_nobody)
{
    unsigned first = submit(1, 0, 1);

    fake_driver_release(first);
    submit(2, 2, 3);
    submit(3, 0, 2);
    for (unsigned i = 0; i < CUDA_LANES; i++)
        cr_expect_eq(fake_driver_awaited(i) & 1u << first, 0);
    close_clean();
}

Test(cuda_lane, a_command_that_ends_early_is_reported_early)
{
    submit(1, 0, 1);
    fake_driver_release(submit(2, 2, 3));
    cr_expect_eq(reap(), 2);
    cr_expect_eq(reap(), 0);
    fake_driver_hold(false);
    cr_expect_eq(reap(), 1);
    close_clean();
}

Test(cuda_lane, commands_of_one_job_overlap_but_are_reported_in_order)
{
    unsigned first = submit(1, 0, 1), second = submit(1, 0, 1);

    cr_expect_neq(first, second);
    fake_driver_release(second);
    cr_expect_eq(reap(), 0);
    fake_driver_release(first);
    cr_expect_eq(reap(), 1);
    cr_expect_eq(reap(), 1);
    close_clean();
}

Test(cuda_lane, one_that_never_ends_leaves_the_others_their_order_and_their_room)
{
    unsigned stuck = submit(1, 0, 1);

    for (uint64_t i = 2; i < 10 * gpu->operations->depth; i++) {
        unsigned lane = submit(i, 2, 3);

        cr_expect_neq(lane, stuck);
        fake_driver_release(lane);
        cr_expect_eq(reap(), i);
        cr_assert_eq(gpu->operations->pending(gpu), 1);
    }
    cr_expect_eq(reap(), 0);
    fake_driver_release(stuck);
    cr_expect_eq(reap(), 1);
    cr_expect_eq(gpu->operations->pending(gpu), 0);
    close_clean();
}

Test(cuda_lane, one_whose_order_cannot_be_kept_does_not_run)
{
    submit(1, 0, 1);
    submit(2, 2, 3);
    memory[0] = 'a';
    memory[2] = 'b';
    fake_driver_fail("cuStreamWaitEvent", 0, CUDA_ERROR_INVALID_VALUE);
    submit(3, 0, 2);
    cr_expect_eq(memory[0], 'a');
    fake_driver_hold(false);
    for (int i = 0; i < 3; i++)
        cr_expect_neq(reap(), 0);
    close_clean();
}
