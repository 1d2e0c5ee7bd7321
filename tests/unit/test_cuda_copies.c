#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/cuda_copies.h"
#include "../../kernels_src/abi/ring.h"
#include "last_launch.h"

#include <criterion/criterion.h>
#include <string.h>

#define TILE 64

TestSuite(cuda_copies, .init = open_fake);

static char memory[2 * CUDA_SCRATCH_MIDDLE]; /* copies are made */

/* 40 x 48, K 33: rows of A are of 66 bytes, those of B start on 16. */
static struct gemmd_command unaligned_product(void)
{
    uint64_t base = ((uint64_t)(uintptr_t)memory + 255) / 256 * 256;

    return (struct gemmd_command){
        .kind = GEMMD_COMMAND_GEMM,
        .job = 5,
        .kernel = 1,
        .body.gemm =
            {
                .a = base,
                .b = base + 0x10000,
                .d = base + 0x20000,
                .m = 40,
                .n = 48,
                .k = 33,
                .batch = 1,
                .lda = 33,
                .ldb = 48,
                .ldd = 49,
                .alpha = 1,
                .input = DTYPE_BF16,
                .output = DTYPE_BF16,
            },
    };
}

static void load_repacking(void)
{
    struct link_message request = fake_gpu_kernel(1);

    request.tile_m = request.tile_n = TILE;
    request.begins_early = request.repacks = 1;
    request.box[0] = request.box[1] =
        (struct link_box){64, 64}; /* none of D, whose rows are of 98 bytes */
    fake_gpu_load(gpu, request);
}

static enum status submit(const struct gemmd_command *command)
{
    struct gemmd_completion completion;

    cr_assert_eq(gpu->operations->submit(gpu, command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    return (enum status)completion.status;
}

/* Their last units are those that D ends in, and short: a walker that has one of them less is done
 * sooner. */
Test(cuda_copies, starts_all_walkers_of_kernels_that_repack)
{
    struct gemmd_command command = unaligned_product();

    command.body.gemm.m = 6 * TILE;
    command.body.gemm.n = TILE;
    load_repacking();
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_last_launch().grid, 4);
}

Test(cuda_copies, repacks_for_jobs_with_splits_too)
{
    struct gemmd_command command = unaligned_product();

    command.body.gemm.splits = 2;
    load_repacking();
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_repacks(), 1);
    cr_expect_neq(maps.of[0][GEMMD_TENSOR_A].words[0], command.body.gemm.a);
    cr_expect_eq(fake_driver_live().scratch, 2, "copies, and a workspace");
}

Test(cuda_copies, repacks_unaligned_inputs_and_reads_the_copies)
{
    struct gemmd_command command = unaligned_product();

    load_repacking();
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_repacks(), 1);
    cr_expect_neq(maps.of[0][GEMMD_TENSOR_A].words[0], command.body.gemm.a);
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_B].words[0], command.body.gemm.b);
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_D].words[0], 0, "threads store D");
    cr_expect_not(launched.flags & GEMMD_JOB_INPUTS_SETTLED, "the copies are being made");
    command.body.gemm.lda = 40;
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_repacks(), 1, "nothing to copy");
    cr_expect(launched.flags & GEMMD_JOB_INPUTS_SETTLED);
    cr_expect_eq(maps.of[0][GEMMD_TENSOR_A].words[0], command.body.gemm.a);
    gpu->operations->close(gpu);
    cr_expect_eq(fake_driver_live().scratch, 0);
}

Test(cuda_copies, later_slices_of_a_job_find_the_copies_of_the_first)
{
    struct gemmd_command command = unaligned_product();

    load_repacking();
    command.body.gemm.tile_count = 1;
    cr_assert_eq(submit(&command), STATUS_OK);
    command.body.gemm.first_tile = 1;
    command.body.gemm.tile_count = 0;
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_repacks(), 1);
    command.job++;
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_repacks(), 2, "a slice of another job");
}

/* More of A than has two places, far from B and D. */
static struct gemmd_command large_product(void)
{
    struct gemmd_command command = unaligned_product();
    struct gemmd_job *job = &command.body.gemm;

    job->m = CUDA_SCRATCH_MIDDLE / (33 * 2) + 1;
    job->b = job->a + CUDA_SCRATCH_MIDDLE + (8 << 20);
    job->d = job->a + sizeof(memory);
    return command;
}

Test(cuda_copies, answer_that_there_is_no_memory_for_them)
{
    struct gemmd_command command = large_product();

    load_repacking();
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(submit(&command), STATUS_OUT_OF_MEMORY);
    cr_expect_eq(fake_driver_calls("cuLaunchKernelEx"), 0);
    cr_expect_eq(submit(&command), STATUS_OK);
}

Test(cuda_copies, make_do_with_one_place_where_there_is_no_memory_for_more)
{
    struct gemmd_command command = unaligned_product();

    load_repacking();
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(submit(&command), STATUS_OK);
    cr_expect_eq(fake_driver_repacks(), 1);
}

Test(cuda_copies, copies_give_way_when_the_device_has_no_memory_for_a_buffer)
{
    struct gemmd_command command = unaligned_product();
    struct link_message request = {
        .kind = LINK_MAP, .memory_kind = LINK_MEMORY_DEVICE_CREATE, .id = 9, .size = 4096};
    struct fault fault = FAULT_NONE;
    uint64_t address;
    int fd = -1;

    load_repacking();
    cr_assert_eq(submit(&command), STATUS_OK);
    cr_assert_eq(fake_driver_live().scratch, 1);
    /* The first call's refusal is answered by emptying the pool, so it is the map's that must fail.
     */
    fake_driver_fail("cuMemAddressReserve", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(gpu->operations->map(gpu, &request, &fd, &address, &fault), 0, "%s",
                 fault.message);
    cr_expect_eq(fake_driver_live().scratch, 0);
    cr_expect_geq(fd, 0);
}

/* --- copies beside the launches before ------------------------------------------------------- */

static bool are_made_at_once(struct gemmd_command *command)
{
    command->job++;
    cr_assert_eq(submit(command), STATUS_OK);
    return fake_driver_last_repack().flags & GEMMD_REPACK_AT_ONCE;
}

/* The first product, before which there is none. */
static struct gemmd_command first_product(void)
{
    struct gemmd_command command = unaligned_product();

    load_repacking();
    cr_expect(are_made_at_once(&command));
    return command;
}

Test(cuda_copies, are_made_beside_launches_that_write_no_input_of_theirs)
{
    struct gemmd_command command = first_product();
    uint64_t copy = maps.of[0][GEMMD_TENSOR_A].words[0];

    command.body.gemm.d += 0x8000;
    cr_expect(are_made_at_once(&command));
    cr_expect_neq(maps.of[0][GEMMD_TENSOR_A].words[0], copy, "which is being read");
    cr_expect_not(launched.flags & GEMMD_JOB_INPUTS_SETTLED, "the copies are being made");
}

Test(cuda_copies, wait_for_the_launch_that_writes_an_input)
{
    struct gemmd_command command = first_product();

    command.body.gemm.a = command.body.gemm.d;
    command.body.gemm.d += 0x8000;
    cr_expect_not(are_made_at_once(&command));
}

/* Of launches that let the next begin at once no more than eight are compared with. */
Test(cuda_copies, wait_when_as_many_launches_run_as_are_counted)
{
    struct gemmd_command command = first_product();
    int made = 0;

    do
        command.body.gemm.d += 0x2000;
    while (++made < 100 && are_made_at_once(&command));
    cr_expect_eq(made, CUDA_RUNNING_MAX / 2);
    command.body.gemm.d += 0x2000;
    cr_expect(are_made_at_once(&command), "all that began before have ended");
}

/* 4.2 MB of A: two places, and three products that let the next begin at once. */
Test(cuda_copies, wait_until_nobody_reads_the_place_that_they_are_made_in)
{
    struct gemmd_command command = unaligned_product();
    struct gemmd_job *job = &command.body.gemm;

    job->m = 256;
    job->k = job->lda = 8201;
    job->b = job->a + (16 << 20);
    job->d = job->a + (32 << 20);
    load_repacking();
    cr_expect(are_made_at_once(&command));
    job->d += 1 << 20;
    cr_expect(are_made_at_once(&command));
    job->d += 1 << 20;
    cr_expect_not(are_made_at_once(&command), "two launches ago");
    job->d += 1 << 20;
    cr_expect(are_made_at_once(&command), "the copies before waited for all");
}

Test(cuda_copies, of_a_product_that_begins_when_the_one_before_has_ended_do_so_too)
{
    struct gemmd_command command = first_product();

    command.body.gemm.b += 1 << 20;
    command.body.gemm.d += 4 << 20;
    command.body.gemm.n = 1 << 12;
    command.body.gemm.ldb = command.body.gemm.ldd = 1 << 12;
    command.body.gemm.batch = 1 << 16;
    cr_expect_not(are_made_at_once(&command));
}

Test(cuda_copies, that_are_large_wait_for_the_reader_of_their_only_place)
{
    struct gemmd_command command = large_product();

    load_repacking();
    cr_expect(are_made_at_once(&command), "there is none before");
    command.body.gemm.d += 128 << 20;
    cr_expect_not(are_made_at_once(&command), "the product before, of many units, reads it");
}

Test(cuda_copies, wait_when_places_are_divided_anew)
{
    struct gemmd_command small = first_product(), large = large_product();

    large.job = small.job;
    cr_expect_not(are_made_at_once(&large));
}

/* A product whose inputs need no copies reads no place. */
Test(cuda_copies, do_not_wait_for_products_that_read_none)
{
    struct gemmd_command command = large_product(), aligned = large_product();

    load_repacking();
    cr_expect(are_made_at_once(&command), "there is none before");
    aligned.job = ++command.job;
    aligned.body.gemm.lda = 40;
    aligned.body.gemm.d += 128 << 20;
    cr_assert_eq(submit(&aligned), STATUS_OK);
    cr_assert_eq(fake_driver_repacks(), 1);
    command.body.gemm.d += 256 << 20;
    cr_expect(are_made_at_once(&command), "their reader has ended");
}
