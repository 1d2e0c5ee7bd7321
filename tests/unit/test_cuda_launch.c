#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/cuda_launch.h"
#include "../../kernels_src/abi/ring.h"
#include "last_launch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define TILE 64

TestSuite(cuda_launch, .init = open_fake);

static struct link_message kernel(void)
{
    struct link_message request = {.kind = LINK_LOAD,
                                   .id = 1,
                                   .threads = 384,
                                   .shared_memory = 200 << 10,
                                   .ctas_per_multiprocessor = 1,
                                   .tile_m = TILE,
                                   .tile_n = TILE};
    strcpy(request.entry, "gemm");
    return request;
}

static enum status launch(const struct link_message *request, int64_t m, int64_t n)
{
    struct fault fault = FAULT_NONE;
    struct gemmd_completion completion;
    struct gemmd_command command = {
        .kind = GEMMD_COMMAND_GEMM,
        .kernel = request->id,
        .body.gemm =
            {
                .a = 0x10000,
                .b = 0x20000,
                .d = 0x40000,
                .m = m,
                .n = n,
                .k = 32,
                .batch = 1,
                .lda = 32,
                .ldb = n,
                .ldd = n,
                .alpha = 1,
                .input = DTYPE_BF16,
                .output = DTYPE_BF16,
            },
    };
    cr_assert_eq(gpu->operations->load(gpu, request, "\177ELF", &fault), 0, "%s", fault.message);
    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    gpu->operations->unload(gpu, request->id);
    return (enum status)completion.status;
}

Test(cuda_launch, starts_no_more_walkers_than_run_at_once)
{
    struct link_message request = kernel();
    cr_assert_eq(launch(&request, 100 * TILE, 10 * TILE), STATUS_OK);
    cr_expect_leq(fake_driver_last_launch().grid, FAKE_DRIVER_MULTIPROCESSORS);
    cr_assert_eq(launch(&request, 2 * TILE, TILE), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().grid, 2);
}

/* Four at once and six tiles: two rounds either way, so three do. */
Test(cuda_launch, starts_as_few_walkers_as_take_as_long)
{
    struct link_message request = kernel();
    cr_assert_eq(FAKE_DRIVER_MULTIPROCESSORS, 4);
    cr_assert_eq(launch(&request, 6 * TILE, TILE), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().grid, 3);
}

Test(cuda_launch, starts_a_cta_for_each_tile_of_a_kernel_that_does_not_walk)
{
    struct link_message request = kernel();
    request.has_cta_per_tile = 1;
    cr_assert_eq(launch(&request, 5 * TILE, 7 * TILE), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().grid, 35);
}

Test(cuda_launch, starts_whole_clusters)
{
    struct link_message request = kernel();
    request.cluster_m = 2;
    request.begins_early = 1;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){64, 64};
    cr_assert_eq(launch(&request, 3 * TILE, TILE), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().cluster, 2);
    cr_expect_eq(fake_driver_last_launch().grid, 4);
    cr_assert_eq(launch(&request, 100 * TILE, TILE), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().grid, FAKE_DRIVER_MULTIPROCESSORS);
}

Test(cuda_launch, begins_small_products_beside_the_end_of_the_one_before_and_large_ones_after_it)
{
    struct link_message request = kernel();
    request.cluster_m = 2;
    request.begins_early = 1;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){64, 64};
    cr_assert_eq(launch(&request, 32 * TILE, 32 * TILE), STATUS_OK);
    cr_expect(fake_driver_last_launch().is_early);
    cr_assert_eq(launch(&request, 1024 * TILE, 1024 * TILE), STATUS_OK);
    cr_expect_not(fake_driver_last_launch().is_early);
    request.cluster_m = 1;
    cr_assert_eq(launch(&request, 1024 * TILE, 1024 * TILE), STATUS_OK);
    cr_expect(fake_driver_last_launch().is_early, "no cluster that must find its places");
    request.cluster_m = 2;
    request.tile_m = request.tile_n = 1 << 15;
    cr_assert_eq(launch(&request, TILE, TILE), STATUS_OK);
    cr_assert_lt(fake_driver_last_launch().grid, FAKE_DRIVER_MULTIPROCESSORS);
    cr_expect(fake_driver_last_launch().is_early, "places are free all the time");
    request = kernel();
    request.begins_early = 0;
    cr_assert_eq(launch(&request, TILE, TILE), STATUS_OK);
    cr_expect_not(fake_driver_last_launch().is_early);
}

/* K = 32: four threads for each element, as abi/job.h says. */
Test(cuda_launch, shares_the_threads_of_a_cta_among_elements_where_those_are_the_tiles)
{
    struct link_message request = kernel();

    request.threads = 256;
    request.tile_m = request.tile_n = 1;
    cr_assert_eq(gemmd_dot_threads(&(struct gemmd_job){.k = 32}, 65 * 3), 4);
    cr_assert_eq(launch(&request, 65, 3), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().grid, (65 * 3 * 4 + 255) / 256);
}

Test(cuda_launch, encodes_maps_only_for_kernels_that_take_them)
{
    struct link_message request = kernel();
    cr_assert_eq(launch(&request, TILE, TILE), STATUS_OK);
    cr_expect_eq(fake_driver_calls("cuTensorMapEncodeTiled"), 0);

    request.begins_early = 1;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){64, 64};
    cr_assert_eq(launch(&request, TILE, TILE), STATUS_OK);
    cr_expect_eq(fake_driver_calls("cuTensorMapEncodeTiled"), 3, "C is not read");
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_A].words[0], 0x10000);
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_B].words[0], 0x20000);
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_C].words[0], 0);
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_D].words[0], 0x40000);
}

Test(cuda_launch, encodes_a_map_for_the_rows_that_a_whole_copy_would_pass)
{
    struct link_message request = kernel();
    request.begins_early = 1;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){64, 64};
    cr_assert_eq(launch(&request, TILE, TILE), STATUS_OK);
    cr_expect_eq(maps.edge[0][GEMMD_TENSOR_A].words[0], 0, "there are none");
    cr_assert_eq(launch(&request, TILE + 8, TILE + 8), STATUS_OK);
    cr_expect_eq(maps.edge[0][GEMMD_TENSOR_A].words[0], 0x10000);
    cr_expect_eq(maps.edge[0][GEMMD_TENSOR_B].words[0], 0, "whose rows go along K");
}

Test(cuda_launch, answers_a_map_that_the_driver_refuses)
{
    struct link_message request = kernel();
    request.begins_early = 1;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){64, 64};
    fake_driver_fail("cuTensorMapEncodeTiled", 1, CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(launch(&request, TILE, TILE), STATUS_INTERNAL);
    cr_expect_eq(fake_driver_calls("cuLaunchKernelEx"), 0);
    cr_expect_eq(launch(&request, TILE, TILE), STATUS_OK);
}

/* --- inputs that the launch before cannot be writing ----------------------------------------- */

static struct link_message early_kernel(void)
{
    struct link_message request = kernel();

    request.begins_early = 1;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){64, 64};
    return request;
}

/* 64 x 64 x 64, on the same lane as any other of its kind. */
static struct gemmd_job square(uint64_t a, uint64_t b, uint64_t d)
{
    return (struct gemmd_job){.a = a,
                              .b = b,
                              .d = d,
                              .m = TILE,
                              .n = TILE,
                              .k = TILE,
                              .batch = 1,
                              .lda = TILE,
                              .ldb = TILE,
                              .ldd = TILE,
                              .alpha = 1,
                              .input = DTYPE_BF16,
                              .output = DTYPE_BF16};
}

static bool is_settled(const struct gemmd_job *job)
{
    struct gemmd_completion completion;
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .kernel = 1, .body.gemm = *job};

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    cr_assert_eq(completion.status, STATUS_OK);
    return launched.flags & GEMMD_JOB_INPUTS_SETTLED;
}

static void load(struct link_message request)
{
    fake_gpu_load(gpu, request);
}

Test(cuda_launch, lets_inputs_be_read_at_once_that_the_launch_before_does_not_write)
{
    struct gemmd_job first = square(0x10000, 0x20000, 0x30000);
    struct gemmd_job other = square(0x10000, 0x20000, 0x40000);

    load(early_kernel());
    cr_expect(is_settled(&first), "there is none before it");
    cr_expect(is_settled(&other), "it shares its inputs, and writes elsewhere");
}

Test(cuda_launch, makes_inputs_wait_for_the_launch_that_writes_them)
{
    struct gemmd_job first = square(0x10000, 0x20000, 0x30000);
    struct gemmd_job reads_as_a = square(0x30000, 0x20000, 0x40000);
    struct gemmd_job reads_as_b = square(0x10000, 0x40000, 0x50000);
    struct gemmd_job reads_its_end = square(0x50000 + 2 * TILE * TILE - 16, 0x20000, 0x60000);
    struct gemmd_job reads_behind_it = square(0x60000 + 2 * TILE * TILE, 0x20000, 0x70000);

    load(early_kernel());
    cr_expect(is_settled(&first));
    cr_expect_not(is_settled(&reads_as_a));
    cr_expect_not(is_settled(&reads_as_b));
    cr_expect_not(is_settled(&reads_its_end));
    cr_expect(is_settled(&reads_behind_it));
}

/* A tile more than run at once. */
static struct gemmd_job tall(uint64_t a, uint64_t b, uint64_t d)
{
    struct gemmd_job job = square(a, b, d);

    job.m = (FAKE_DRIVER_MULTIPROCESSORS + 1) * TILE;
    return job;
}

/* Each grid that fills the device lets the next one begin when the one before it has ended. */
Test(cuda_launch, makes_inputs_wait_for_no_launch_but_the_last)
{
    struct gemmd_job first = tall(0x10000, 0x20000, 0x30000);
    struct gemmd_job between = tall(0x10000, 0x20000, 0x40000);
    struct gemmd_job reads_the_first = tall(0x30000, 0x20000, 0x50000);

    load(early_kernel());
    cr_expect(is_settled(&first));
    cr_expect_not(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
    cr_expect(is_settled(&between));
    cr_expect(is_settled(&reads_the_first));
}

/* Places that fall free are taken one by one; two beside each other seldom are. */
Test(cuda_launch, lets_the_next_begin_at_once_by_the_places_that_a_grid_of_its_kind_needs)
{
    struct gemmd_job job = square(0x10000, 0x20000, 0x30000);
    struct link_message of_pairs = early_kernel();

    load(early_kernel());
    job.m = FAKE_DRIVER_MULTIPROCESSORS * TILE; /* all places */
    cr_expect(is_settled(&job));
    cr_expect(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
    job.m /= 2;
    job.splits = 2; /* which wait for the end of the grid before where they are */
    cr_expect(is_settled(&job));
    cr_expect_not(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
    job.m *= 2;
    job.splits = 0;

    of_pairs.cluster_m = 2;
    load(of_pairs);
    cr_expect(is_settled(&job));
    cr_expect_not(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
    job.m = FAKE_DRIVER_MULTIPROCESSORS / 2 * TILE; /* half of them */
    cr_expect(is_settled(&job));
    cr_expect(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
}

static struct gemmd_job next_of(const struct gemmd_job *job)
{
    struct gemmd_job next = *job;

    next.d += 2 * TILE * TILE;
    return next;
}

/* Grids that leave room: each may begin as soon as the one before it has. */
Test(cuda_launch, makes_inputs_wait_for_all_launches_since_one_that_let_no_other_begin_at_once)
{
    struct gemmd_job job = square(0x10000, 0x20000, 0x30000), reader = job;

    load(early_kernel());
    reader.a = job.d;
    reader.d = 0x100000;
    cr_expect(is_settled(&job), "there is none before it");
    for (int i = 0; i < 3; i++) {
        job = next_of(&job);
        cr_expect(is_settled(&job), "it shares its inputs, and writes elsewhere");
        cr_expect(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
    }
    cr_expect_not(is_settled(&reader), "four launches ago");
}

/* So that there are never more of them to be compared with. */
Test(cuda_launch, lets_some_launches_begin_at_once_and_then_waits_for_the_first_of_them)
{
    struct gemmd_job job = square(0x10000, 0x20000, 0x30000), reader = job;

    load(early_kernel());
    reader.a = job.d;
    reader.d = 0x100000;
    for (int i = 0; i < CUDA_RUNNING_MAX; i++) {
        cr_expect(is_settled(&job));
        cr_expect(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
        job = next_of(&job);
    }
    cr_expect(is_settled(&job));
    cr_expect_not(launched.flags & GEMMD_JOB_NEXT_AT_ONCE, "the next begins after all of these");
    cr_expect(is_settled(&reader), "what it reads has been written");
    cr_expect(launched.flags & GEMMD_JOB_NEXT_AT_ONCE);
}

Test(cuda_launch, says_nothing_of_inputs_to_kernels_that_begin_after_the_last_has_ended)
{
    struct gemmd_job first = square(0x10000, 0x20000, 0x30000);

    load(kernel());
    cr_expect_not(is_settled(&first));
}
