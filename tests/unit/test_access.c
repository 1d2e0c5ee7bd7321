/*
 * What commands touch, against a map of bytes: every byte of every operand, one by one.
 */
#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/access.h"

#include <criterion/criterion.h>

static struct gemmd_command product(uint64_t number)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .job = number};
    command.body.gemm = (struct gemmd_job){.a = 1000,
                                           .b = 5000,
                                           .c = 9000,
                                           .d = 12000,
                                           .m = 3,
                                           .n = 4,
                                           .k = 5,
                                           .batch = 2,
                                           .lda = 7,
                                           .ldb = 8,
                                           .ldc = 9,
                                           .ldd = 10,
                                           .stride_a = 40,
                                           .stride_b = 0,
                                           .stride_c = 50,
                                           .stride_d = 60,
                                           .input = DTYPE_BF16,
                                           .output = DTYPE_FP32};
    return command;
}

static struct gemmd_command copy(uint64_t number, uint64_t to, uint64_t from, uint64_t size)
{
    return (struct gemmd_command){
        .kind = from ? GEMMD_COMMAND_COPY : GEMMD_COMMAND_ZERO,
        .job = number,
        .body.copy = {.destination = to, .source = from, .size = size},
    };
}

static bool conflict(const struct gemmd_command *a, const struct gemmd_command *b)
{
    struct accesses of_a, of_b;

    accesses_of(a, &of_a);
    accesses_of(b, &of_b);
    cr_expect_eq(accesses_conflict(&of_a, &of_b), accesses_conflict(&of_b, &of_a));
    return accesses_conflict(&of_a, &of_b);
}

/* First and last byte of an operand, and what lies on either side, seen by a one-byte command. */
static void expect_interval(const struct gemmd_command *command, uint64_t begin, uint64_t end)
{
    struct gemmd_command writes[] = {copy(2, begin - 1, 0, 1), copy(2, begin, 0, 1),
                                     copy(2, end - 1, 0, 1), copy(2, end, 0, 1)};

    cr_expect_not(conflict(command, &writes[0]), "before %lu", begin);
    cr_expect(conflict(command, &writes[1]), "at %lu", begin);
    cr_expect(conflict(command, &writes[2]), "at the end of %lu", begin);
    cr_expect_not(conflict(command, &writes[3]), "behind the end of %lu", begin);
}

Test(access, an_operand_reaches_from_its_first_to_its_last_byte)
{
    struct gemmd_command command = product(1);

    expect_interval(&command, 1000, 1000 + (40 + 2 * 7 + 5) * 2);
    expect_interval(&command, 5000, 5000 + (4 * 8 + 4) * 2);
    expect_interval(&command, 9000, 9000 + (50 + 2 * 9 + 4) * 4);
    expect_interval(&command, 12000, 12000 + (60 + 2 * 10 + 4) * 4);
}

Test(access, a_bias_is_a_row_for_each_product_or_for_all)
{
    struct gemmd_command command = product(1);
    struct gemmd_job *job = &command.body.gemm;

    job->bias = 15000;
    job->flags = GEMMD_JOB_BIAS_PER_COLUMN;
    job->stride_bias = 6;
    expect_interval(&command, 15000, 15000 + (6 + 4) * 4);
    job->flags = GEMMD_JOB_BIAS_PER_ROW;
    job->stride_bias = 0;
    expect_interval(&command, 15000, 15000 + 3 * 4);
}

Test(access, transposed_operands_have_their_stored_shape)
{
    struct gemmd_command command = product(1);

    command.body.gemm.flags = GEMMD_JOB_TRANS_A | GEMMD_JOB_TRANS_B;
    expect_interval(&command, 1000, 1000 + (40 + 4 * 7 + 3) * 2);
    expect_interval(&command, 5000, 5000 + (3 * 8 + 5) * 2);
}

Test(access, only_a_write_makes_a_conflict)
{
    struct gemmd_command reads = copy(2, 100, 1000, 10), writes = copy(2, 1000, 100, 10),
                         fills = copy(2, 1000, 0, 10), one = product(1);

    cr_expect_not(conflict(&one, &reads));
    cr_expect(conflict(&one, &writes));
    cr_expect(conflict(&one, &fills));
}

Test(access, slices_of_one_job_do_not_conflict)
{
    struct gemmd_command first = product(1), second = product(1), other = product(2);

    second.body.gemm.first_tile = 1;
    cr_expect_not(conflict(&first, &second));
    cr_expect(conflict(&first, &other), "two jobs with one D");
}

Test(access, what_is_not_read_is_not_touched)
{
    struct gemmd_command command = product(1), write = copy(2, 0, 0, 20000), nothing = product(1);

    command.body.gemm.a = command.body.gemm.b = command.body.gemm.c = 0;
    command.body.gemm.k = 0;
    write.body.copy.size = 12000;
    cr_expect_not(conflict(&command, &write), "D begins there");
    nothing.body.gemm.batch = 0;
    write.body.copy.size = 20000;
    cr_expect_not(conflict(&nothing, &write));
    write.body.copy.size = 0;
    cr_expect_not(conflict(&command, &write));
}

Test(access, an_output_touches_inputs_that_share_a_byte_with_it)
{
    struct gemmd_job writer = product(1).body.gemm, reader = product(2).body.gemm;
    struct access written = access_of_output(&writer);

    cr_expect_eq(written.begin, writer.d);
    cr_expect_eq(written.end, writer.d + (60 + 2 * 10 + 4) * 4, "two items of three rows");
    cr_expect_not(access_touches_inputs(&written, &reader));
    reader.c = reader.bias = reader.d;
    cr_expect_not(access_touches_inputs(&written, &reader), "of A and B alone");
    reader.a = written.end;
    cr_expect_not(access_touches_inputs(&written, &reader));
    reader.a = written.end - 1;
    cr_expect(access_touches_inputs(&written, &reader));
    reader.a = 1000;
    reader.b = written.begin;
    cr_expect(access_touches_inputs(&written, &reader));
    reader.batch = 0;
    cr_expect_not(access_touches_inputs(&written, &reader), "nothing is read");
}

Test(access, an_empty_product_has_no_output)
{
    struct gemmd_job job = product(1).body.gemm;
    struct access written;

    job.batch = 0;
    written = access_of_output(&job);
    cr_expect_eq(written.begin, written.end);
}
