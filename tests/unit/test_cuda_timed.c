/*
 * Jobs of the tuner's in the CUDA backend, over the fake driver: how often and on what they are
 * launched.
 */
#include "../../daemon/core/dtype.h"
#include "../../kernels_src/abi/job.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL 7

static struct backend *gpu;

static struct {
    uint64_t a[8], b[8], d[8];
    unsigned count;
} seen;

static void note_addresses(const struct fake_driver_launch *launch)
{
    const struct gemmd_feed *feed = launch->parameter;
    unsigned i = seen.count++ % 8;

    seen.a[i] = feed->jobs[0].a;
    seen.b[i] = feed->jobs[0].b;
    seen.d[i] = feed->jobs[0].d;
}

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_driver_on_launch(note_addresses);
    fake_gpu_load(gpu,
                  (struct link_message){.id = KERNEL, .threads = 128, .tile_m = 16, .tile_n = 16});
}

TestSuite(cuda_timed, .init = open_fake);

static void run(uint32_t repeats, uint32_t sets)
{
    struct gemmd_completion completion;
    struct gemmd_command command = {
        .kind = GEMMD_COMMAND_GEMM,
        .kernel = KERNEL,
        .body.gemm = {.a = 0x10000,
                      .b = 0x20000,
                      .d = 0x30000,
                      .m = 64,
                      .n = 64,
                      .k = 64,
                      .batch = 1,
                      .lda = 64,
                      .ldb = 64,
                      .ldd = 64,
                      .alpha = 1,
                      .input = DTYPE_FP32,
                      .output = DTYPE_FP32,
                      .repeats = repeats,
                      .repeat_sets = sets,
                      .repeat_step = 0x1000},
    };

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    cr_assert_eq(completion.status, STATUS_OK);
    gpu->operations->close(gpu);
}

Test(cuda_timed, launches_on_its_sets_in_turns)
{
    run(5, 2);
    cr_assert_eq(seen.count, 5);
    for (unsigned i = 0; i < 5; i++) {
        cr_expect_eq(seen.a[i], 0x10000 + i % 2 * 0x1000);
        cr_expect_eq(seen.b[i], 0x20000 + i % 2 * 0x1000);
        cr_expect_eq(seen.d[i], 0x30000 + i % 2 * 0x1000);
    }
}

Test(cuda_timed, launches_what_is_not_timed_once_and_where_it_lies)
{
    run(0, 0);
    cr_assert_eq(seen.count, 1);
    cr_expect_eq(seen.d[0], 0x30000);
}

Test(cuda_timed, has_one_set_when_none_are_given)
{
    run(3, 0);
    cr_assert_eq(seen.count, 3);
    cr_expect_eq(seen.d[2], 0x30000);
}
