#include "../../daemon/worker/tensor_shape.h"

#include <criterion/criterion.h>

static const struct link_box box = {64, 128};

static struct gemmd_job job(void)
{
    return (struct gemmd_job){
        .a = 0x1000,
        .b = 0x2000,
        .c = 0x3000,
        .d = 0x4000,
        .m = 100,
        .n = 200,
        .k = 50,
        .batch = 3,
        .lda = 56,
        .ldb = 208,
        .ldc = 216,
        .ldd = 224,
        .stride_a = 5600,
        .stride_b = 10400,
        .stride_c = 21600,
        .stride_d = 22400,
        .alpha = 1,
        .beta = 1,
        .input = DTYPE_BF16,
        .output = DTYPE_FP32,
    };
}

static struct tensor_shape shape_of(const struct gemmd_job *from, int operand)
{
    struct tensor_shape shape = {0};

    cr_assert(tensor_shape_of(from, operand, &box, &shape));
    return shape;
}

Test(tensor_shape, describes_the_matrix_as_stored)
{
    struct gemmd_job plain = job(), transposed = job();
    struct tensor_shape shape = shape_of(&plain, GEMMD_TENSOR_A);

    cr_expect_eq(shape.address, 0x1000);
    cr_expect_eq(shape.dtype, DTYPE_BF16);
    cr_expect_eq(shape.size[0], 50);
    cr_expect_eq(shape.size[1], 100);
    cr_expect_eq(shape.size[2], 3);
    cr_expect_eq(shape.stride[0], 56 * 2);
    cr_expect_eq(shape.stride[1], 5600 * 2);
    cr_expect_eq(shape.box[0], 64);
    cr_expect_eq(shape.box[1], 128);
    cr_expect_eq(shape.box[2], 1);

    transposed.flags = GEMMD_JOB_TRANS_A | GEMMD_JOB_TRANS_B;
    shape = shape_of(&transposed, GEMMD_TENSOR_A);
    cr_expect_eq(shape.size[0], 100);
    cr_expect_eq(shape.size[1], 50);
    shape = shape_of(&transposed, GEMMD_TENSOR_B);
    cr_expect_eq(shape.size[0], 50);
    cr_expect_eq(shape.size[1], 200);
    shape = shape_of(&plain, GEMMD_TENSOR_B);
    cr_expect_eq(shape.size[0], 200);
    cr_expect_eq(shape.size[1], 50);
}

Test(tensor_shape, gives_c_and_d_the_output_type)
{
    struct gemmd_job plain = job();
    struct tensor_shape c = shape_of(&plain, GEMMD_TENSOR_C);
    struct tensor_shape d = shape_of(&plain, GEMMD_TENSOR_D);

    cr_expect_eq(c.dtype, DTYPE_FP32);
    cr_expect_eq(c.address, 0x3000);
    cr_expect_eq(c.stride[0], 216 * 4);
    cr_expect_eq(d.address, 0x4000);
    cr_expect_eq(d.stride[1], 22400 * 4);
}

Test(tensor_shape, has_nothing_for_what_the_job_does_not_read)
{
    struct gemmd_job no_k = job(), no_alpha = job(), no_beta = job();
    struct tensor_shape shape;

    no_k.k = 0;
    no_alpha.alpha = 0;
    no_beta.beta = 0;
    for (int operand = GEMMD_TENSOR_A; operand <= GEMMD_TENSOR_B; operand++) {
        cr_expect_not(tensor_shape_of(&no_k, operand, &box, &shape));
        cr_expect_not(tensor_shape_of(&no_alpha, operand, &box, &shape));
        cr_expect(tensor_shape_of(&no_beta, operand, &box, &shape));
    }
    cr_expect_not(tensor_shape_of(&no_beta, GEMMD_TENSOR_C, &box, &shape));
    cr_expect(tensor_shape_of(&no_k, GEMMD_TENSOR_C, &box, &shape));
    cr_expect(tensor_shape_of(&no_k, GEMMD_TENSOR_D, &box, &shape));
}

/* The driver refuses strides that are no multiple of 16 bytes, also where they lead nowhere. */
Test(tensor_shape, replaces_strides_that_lead_nowhere)
{
    struct gemmd_job one_row = job(), one_item = job(), shared = job();

    one_row.m = 1;
    one_row.lda = 51;
    cr_expect_eq(shape_of(&one_row, GEMMD_TENSOR_A).stride[0] % 16, 0);
    one_item.batch = 1;
    one_item.stride_a = 1;
    cr_expect_eq(shape_of(&one_item, GEMMD_TENSOR_A).stride[1] % 16, 0);
    shared.stride_b = 0;
    cr_expect_eq(shape_of(&shared, GEMMD_TENSOR_B).size[2], 1);
    cr_expect_neq(shape_of(&shared, GEMMD_TENSOR_B).stride[1], 0);
}

/* What a tensor copy writes to the right of D's edge is not D's. */
Test(tensor_shape, ends_d_with_its_last_whole_chunk)
{
    struct gemmd_job ragged = job(), narrow = job();
    struct tensor_shape shape;

    ragged.n = 199;
    cr_expect_eq(shape_of(&ragged, GEMMD_TENSOR_D).size[0], 196);
    cr_expect_eq(shape_of(&ragged, GEMMD_TENSOR_C).size[0], 199);
    cr_expect_eq(shape_of(&ragged, GEMMD_TENSOR_B).size[0], 199);
    narrow.n = 3;
    cr_expect_not(tensor_shape_of(&narrow, GEMMD_TENSOR_D, &box, &shape));
}

/* A copy fills what lies outside, and takes longer for it than for what lies inside. */
Test(tensor_shape, gives_the_last_rows_of_an_input_a_box_of_their_height)
{
    struct gemmd_job plain = job(), whole = job(), transposed = job();
    struct tensor_shape edge;

    plain.flags = GEMMD_JOB_TRANS_B;
    plain.n = 300;
    cr_assert(tensor_shape_of_edge(&plain, GEMMD_TENSOR_A, &box, &edge));
    cr_expect_eq(edge.box[1], 100, "all of a matrix that is lower than a box");
    cr_expect_eq(edge.size[1], 100);
    cr_assert(tensor_shape_of_edge(&plain, GEMMD_TENSOR_B, &box, &edge));
    cr_expect_eq(edge.box[1], 300 - 2 * 128);
    cr_expect_eq(edge.box[0], box.columns);

    whole.m = 256;
    cr_expect_not(tensor_shape_of_edge(&whole, GEMMD_TENSOR_A, &box, &edge), "there is no edge");
    whole.alpha = 0;
    whole.m = 100;
    cr_expect_not(tensor_shape_of_edge(&whole, GEMMD_TENSOR_A, &box, &edge), "nothing is read");

    transposed.flags = GEMMD_JOB_TRANS_A;
    cr_expect_not(tensor_shape_of_edge(&transposed, GEMMD_TENSOR_A, &box, &edge),
                  "behind the last row of K products need zeros");
    cr_expect_not(tensor_shape_of_edge(&transposed, GEMMD_TENSOR_B, &box, &edge));
}
