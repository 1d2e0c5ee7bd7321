#include "../../daemon/worker/repack.h"

#include <criterion/criterion.h>

#define BASE 0x7f0000000000

static struct gemmd_job product(int64_t m, int64_t n, int64_t k)
{
    return (struct gemmd_job){.a = 0x100000,
                              .b = 0x200000,
                              .m = m,
                              .n = n,
                              .k = k,
                              .batch = 1,
                              .lda = k,
                              .ldb = n,
                              .alpha = 1};
}

Test(repack, copies_only_inputs_whose_rows_do_not_start_on_16_bytes)
{
    struct gemmd_job job = product(8, 16, 17);
    struct gemmd_repack repack;

    cr_assert_gt(repack_plan(&job, &repack), 0);
    cr_expect_eq(repack.operand[0].rows, 8);
    cr_expect_eq(repack.operand[0].columns, 17);
    cr_expect_eq(repack.operand[1].rows, 0, "B has rows of 32 bytes");
    repack_place(&repack, BASE, &job);
    cr_expect_eq(job.a, BASE);
    cr_expect_eq(job.lda, 24);
    cr_expect_eq(job.b, 0x200000);
    cr_expect_eq(job.ldb, 16);
    job = product(8, 16, 16);
    cr_expect_eq(repack_plan(&job, &repack), 0);
}

/* One row has no second one to be off, one item no second one. */
Test(repack, looks_at_the_address_and_at_the_steps_that_are_taken)
{
    struct gemmd_repack repack;
    struct gemmd_job job = product(1, 16, 17);

    cr_expect_eq(repack_plan(&job, &repack), 0);
    job.a += 2;
    cr_expect_gt(repack_plan(&job, &repack), 0);
    job = product(8, 16, 16);
    job.stride_a = 129;
    cr_expect_eq(repack_plan(&job, &repack), 0);
    job.batch = 2;
    cr_expect_gt(repack_plan(&job, &repack), 0);
    cr_expect_eq(repack.operand[0].items, 2);
}

Test(repack, copies_an_input_that_all_items_share_once)
{
    struct gemmd_repack repack;
    struct gemmd_job job = product(8, 17, 17);
    uint64_t one;

    job.batch = 5;
    job.stride_a = 8 * 17;
    one = repack_plan(&job, &repack);
    cr_expect_eq(repack.operand[0].items, 5);
    cr_expect_eq(repack.operand[1].items, 1);
    repack_place(&repack, BASE, &job);
    cr_expect_eq(job.stride_a, 8 * 24);
    cr_expect_eq(job.stride_b, 0);
    job = product(8, 17, 17);
    job.batch = 6;
    job.stride_a = 8 * 17;
    cr_expect_gt(repack_plan(&job, &repack), one);
}

Test(repack, takes_rows_as_they_are_stored)
{
    struct gemmd_repack repack;
    struct gemmd_job job = product(9, 11, 17);

    job.flags = GEMMD_JOB_TRANS_A | GEMMD_JOB_TRANS_B;
    job.lda = 9;
    job.ldb = 17;
    cr_assert_gt(repack_plan(&job, &repack), 0);
    cr_expect_eq(repack.operand[0].rows, 17);
    cr_expect_eq(repack.operand[0].columns, 9);
    cr_expect_eq(repack.operand[1].rows, 11);
    cr_expect_eq(repack.operand[1].columns, 17);
}

Test(repack, copies_do_not_overlap_and_have_the_alignment_of_a_tensor_map)
{
    for (int64_t k = 3; k < 200; k += 14) {
        struct gemmd_job job = product(31, 33, k);
        struct gemmd_repack repack;
        uint64_t size = repack_plan(&job, &repack);
        const struct gemmd_repack_operand *a = &repack.operand[0], *b = &repack.operand[1];
        uint64_t end_a = a->destination + (uint64_t)(a->to_stride * a->items) * 2;

        cr_expect_eq(b->to_ld % 8, 0);
        cr_expect_geq(b->to_ld, 33);
        cr_expect_eq(b->destination % 256, 0);
        cr_expect_leq(end_a, b->destination);
        cr_expect_leq(b->destination + (uint64_t)(b->to_stride * b->items) * 2, size);
    }
}

Test(repack, copies_nothing_that_the_product_does_not_read)
{
    struct gemmd_repack repack;
    struct gemmd_job job = product(8, 17, 17);

    job.alpha = 0;
    cr_expect_eq(repack_plan(&job, &repack), 0);
    job = product(8, 17, 0);
    job.lda = 17;
    cr_expect_eq(repack_plan(&job, &repack), 0);
}

/* A CTA's turn is of one input: what is left of A's last one is not B's. */
Test(repack, takes_turns_for_each_input)
{
    struct gemmd_repack repack;
    struct gemmd_job job = product(9, 17, 17);

    cr_assert_gt(repack_plan(&job, &repack), 0);
    cr_expect_eq(repack_turns(&repack), 2);
    job = product(500, 17, 17); /* three chunks a row */
    cr_assert_gt(repack_plan(&job, &repack), 0);
    cr_expect_eq(repack_turns(&repack),
                 (500 * 3 + GEMMD_REPACK_CHUNKS - 1) / GEMMD_REPACK_CHUNKS + 1);
}
