#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/cuda_lane.h"
#include "../../kernels_src/abi/ring.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define TILE 64

static struct backend *gpu;
static struct gemmd_job launched; /* the last job */
static unsigned grid;
static bool has_zero_counters;

static void look(const struct fake_driver_launch *launch)
{
    const struct gemmd_tensor_feed *feed = launch->parameter;
    const gemmd_u32 *counters = (const void *)(uintptr_t)feed->jobs[0].workspace;
    launched = feed->jobs[0];
    grid = launch->grid;
    has_zero_counters = counters != NULL;
    for (int i = 0; counters && i < GEMMD_SPLIT_COUNTERS; i++)
        has_zero_counters = has_zero_counters && counters[i] == 0;
}

static void open_fake(void)
{
    struct link_message request = {.id = 1,
                                   .threads = 160,
                                   .shared_memory = 200 << 10,
                                   .ctas_per_multiprocessor = 1,
                                   .tile_m = TILE,
                                   .tile_n = TILE,
                                   .cluster_k = 2,
                                   .begins_early = 1};

    gpu = fake_gpu_open();
    fake_driver_on_launch(look);
    request.box[GEMMD_TENSOR_A] = request.box[GEMMD_TENSOR_B] = (struct link_box){64, 64};
    fake_gpu_load(gpu, request);
}

/* A second kernel for a module: one that adds what the product leaves. */
static void load_parts(void)
{
    struct fault fault = FAULT_NONE;
    struct link_message request = {.kind = LINK_LOAD,
                                   .id = 2,
                                   .threads = 192,
                                   .shared_memory = 100 << 10,
                                   .ctas_per_multiprocessor = 2,
                                   .tile_m = TILE,
                                   .tile_n = TILE,
                                   .begins_early = 1,
                                   .leaves_parts = 1};
    strcpy(request.entry, "gemm");
    request.box[GEMMD_TENSOR_A] = request.box[GEMMD_TENSOR_B] = (struct link_box){64, 64};
    cr_assert_eq(gpu->operations->load(gpu, &request, "\177ELF", &fault), 0, "%s", fault.message);
}

static void close_fake(void)
{
    gpu->operations->close(gpu);
    cr_expect_eq(fake_driver_live().scratch, 0);
}

TestSuite(cuda_workspace, .init = open_fake, .fini = close_fake);

static enum status launch_of(uint64_t kernel, int64_t tiles, uint32_t splits)
{
    struct gemmd_completion completion;
    struct gemmd_command command = {
        .kind = GEMMD_COMMAND_GEMM,
        .kernel = kernel,
        .body.gemm =
            {
                .a = 0x10000,
                .b = 0x20000,
                .d = 0x40000,
                .m = tiles * TILE,
                .n = TILE,
                .k = 320,
                .batch = 1,
                .lda = 320,
                .ldb = TILE,
                .ldd = TILE,
                .alpha = 1,
                .input = DTYPE_BF16,
                .output = DTYPE_BF16,
                .splits = splits,
            },
    };
    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    return (enum status)completion.status;
}

static enum status launch(int64_t tiles, uint32_t splits)
{
    return launch_of(1, tiles, splits);
}

Test(cuda_workspace, is_there_for_jobs_with_splits_alone)
{
    cr_assert_eq(launch(1, 0), STATUS_OK);
    cr_expect_eq(launched.workspace, 0);
    cr_assert_eq(launch(1, 1), STATUS_OK);
    cr_expect_eq(launched.workspace, 0);
    cr_expect_eq(fake_driver_live().scratch, 0);
    cr_assert_eq(launch(1, 2), STATUS_OK);
    cr_expect(has_zero_counters);
}

Test(cuda_workspace, is_taken_once)
{
    cr_assert_eq(launch(1, 2), STATUS_OK);
    uint64_t workspace = launched.workspace;
    cr_assert_eq(launch(1, 3), STATUS_OK);
    cr_expect_eq(launched.workspace, workspace);
    cr_expect_eq(fake_driver_live().scratch, 1);
}

Test(cuda_workspace, lets_as_many_clusters_start_as_there_are_splits)
{
    cr_assert_eq(FAKE_DRIVER_MULTIPROCESSORS, 4);
    cr_assert_eq(launch(1, 2), STATUS_OK);
    cr_expect_eq(grid, 4, "two clusters of two");
}

/* The plan knows the room; this is for a front that does not. */
Test(cuda_workspace, refuses_splits_that_it_has_no_room_for)
{
    int64_t tile = TILE * TILE * 4, room = GEMMD_SPLIT_WORKSPACE - GEMMD_SPLIT_COUNTERS * 4;
    int64_t counted = GEMMD_SPLIT_COUNTERS / (2 * GEMMD_SPLIT_WARPS);

    cr_expect_eq(launch(1, (uint32_t)(room / tile)), STATUS_OK);
    cr_expect_eq(launch(1, (uint32_t)(room / tile) + 1), STATUS_INTERNAL);
    cr_expect_eq(launch(counted, 2), STATUS_OK);
    cr_expect_eq(launch(counted + 1, 2), STATUS_INTERNAL);
}

Test(cuda_workspace, is_asked_for_again_when_there_was_no_memory)
{
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(launch(1, 2), STATUS_OUT_OF_MEMORY);
    cr_expect_eq(launch(1, 2), STATUS_OK);
    cr_expect(has_zero_counters);
}

Test(cuda_workspace, has_the_parts_of_a_product_for_the_launch_that_adds_them)
{
    load_parts();
    cr_assert_eq(launch_of(2, 1, 4), STATUS_OK);
    cr_expect_neq(launched.workspace, 0);
    cr_expect_eq(fake_driver_sums(), 1);
    cr_assert_eq(launch_of(2, 1, 0), STATUS_OK);
    cr_expect_neq(launched.workspace, 0, "one part is a part, too");
    cr_expect_eq(fake_driver_sums(), 2);
    cr_assert_eq(launch(1, 2), STATUS_OK);
    cr_expect_eq(fake_driver_sums(), 2, "others add by themselves");
}
