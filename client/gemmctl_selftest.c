/*
 * gemmctl selftest: every type, transposition and kind of shape, on the daemon's own device, held
 * against the reference.
 *
 * Before each product all memory is 0xff bytes, NaN in the floating types; only elements that the
 * BLAS rules let the product read are then filled. So an element that is not written, a read of
 * padding, of an unread operand or of D's old content, and a write outside of D all show.
 */
#include "gemmctl_selftest.h"
#include "gemmctl.h"
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of each operand. The largest shape below needs 4 MiB. */
#define ARENA_BYTES ((size_t)6 << 20)
/* Bytes behind the last element that must stay as they were. */
#define GUARD_BYTES 256
#define BUDGET      (REFERENCE_ONE_SECOND / 16)

/* --- one product ----------------------------------------------------------------------------- */

static void make_problem(const struct selftest_types *types,
                         const struct selftest_shape *shape,
                         struct problem *ret_problem)
{
    struct problem problem = {
        .input = types->input,
        .output = types->output,
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .batch = MAX(1, shape->batch),
        .trans_a = types->trans_a,
        .trans_b = types->trans_b,
        .alpha = types->input == DTYPE_INT8 ? rint(shape->alpha) : shape->alpha,
        .beta = types->input == DTYPE_INT8 ? rint(shape->beta) : shape->beta,
        .bias = shape->bias,
        .activation = shape->activation,
    };

    if (!activation_is_valid(problem.activation, problem.output))
        problem.activation = ACTIVATION_RELU;

    for (int i = 0; i < OPERAND_COUNT; i++) {
        enum operand_role role = (enum operand_role)i;
        int64_t ld = MAX(1, problem_columns(&problem, role)) + shape->padding;

        problem.operand[i].ld = ld;
        problem.operand[i].stride = problem_rows(&problem, role) * ld + shape->padding;
    }
    if (shape->is_a_shared)
        problem.operand[OPERAND_A].stride = 0;
    if (shape->is_b_shared)
        problem.operand[OPERAND_B].stride = 0;
    if (shape->is_bias_shared)
        problem.operand[OPERAND_BIAS].stride = 0;
    *ret_problem = problem;
}

static enum dtype dtype_of(const struct problem *problem, enum operand_role role)
{
    return role <= OPERAND_B ? problem->input : problem->output;
}

static double random_value(enum dtype dtype, uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    if (dtype == DTYPE_INT8)
        return (double)(*state >> 56) - 128;
    if (dtype == DTYPE_INT32)
        return (double)(*state >> 40) - 0x1p23;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

/* Elements only; the padding between them stays poison. */
static void
fill_operand(const struct problem *problem, enum operand_role role, void *base, uint64_t *state)
{
    const struct problem_operand *operand = &problem->operand[role];
    enum dtype dtype = dtype_of(problem, role);
    int64_t batch = operand->stride ? problem->batch : 1;

    for (int64_t l = 0; l < batch; l++) {
        for (int64_t i = 0; i < problem_rows(problem, role); i++) {
            for (int64_t j = 0; j < problem_columns(problem, role); j++)
                dtype_store(dtype, base, (size_t)(l * operand->stride + i * operand->ld + j),
                            random_value(dtype, state));
        }
    }
}

static size_t operand_offset(const struct selftest_run *run, enum operand_role role)
{
    return (size_t)run->shape->offset * dtype_size(dtype_of(&run->problem, role));
}

static size_t operand_bytes(const struct selftest_run *run, enum operand_role role)
{
    size_t bytes = (size_t)problem_span(&run->problem, role) + operand_offset(run, role);

    assert(bytes + GUARD_BYTES <= ARENA_BYTES);
    return bytes + GUARD_BYTES;
}

/* Fills the local copies and sends them. */
static gemmd_status prepare(struct selftest *test, const struct selftest_run *run)
{
    uint64_t state = 0x5eed + (uint64_t)(run->problem.m * 31 + run->problem.k);

    for (int i = 0; i < OPERAND_COUNT; i++) {
        enum operand_role role = (enum operand_role)i;
        size_t bytes = operand_bytes(run, role);
        gemmd_status status;

        reference_poison(test->local[i], bytes);
        if (problem_reads(&run->problem, role))
            fill_operand(&run->problem, role, test->local[i] + operand_offset(run, role), &state);
        if (role == OPERAND_D && run->shape->is_in_place)
            memcpy(test->local[OPERAND_D], test->local[OPERAND_C], bytes);
        status = gemmd_buffer_write(test->buffer[i], 0, test->local[i], bytes);
        if (status != GEMMD_OK)
            return status;
    }
    return GEMMD_OK;
}

static gemmd_status multiply(struct selftest *test, const struct selftest_run *run)
{
    gemmd_product product;
    gemmd_operand *operands[OPERAND_COUNT] = {
        [OPERAND_A] = &product.a,       [OPERAND_B] = &product.b, [OPERAND_C] = &product.c,
        [OPERAND_BIAS] = &product.bias, [OPERAND_D] = &product.d,
    };
    gemmd_status status;

    ctl_product(&run->problem, &product);
    for (int i = 0; i < OPERAND_COUNT; i++) {
        bool is_d = i == OPERAND_C && run->shape->is_in_place;

        if (i == OPERAND_BIAS && run->problem.bias == BIAS_NONE)
            continue;
        operands[i]->buffer = test->buffer[is_d ? OPERAND_D : i];
        operands[i]->offset = operand_offset(run, (enum operand_role)i);
    }
    status = gemmd_gemm(test->ctl->connection, &product, NULL);
    if (status == GEMMD_OK)
        status = gemmd_buffer_read(test->buffer[OPERAND_D], 0, test->local[OPERAND_D],
                                   operand_bytes(run, OPERAND_D));
    return status;
}

/* What is in front of the first element, between the rows and behind the last. */
static int64_t find_spill(struct selftest *test, const struct selftest_run *run)
{
    const unsigned char *d = test->local[OPERAND_D];
    size_t offset = operand_offset(run, OPERAND_D);

    for (size_t i = 0; i < offset; i++) {
        if (d[i] != 0xff)
            return (int64_t)i;
    }
    return reference_find_spill(&run->problem, d + offset, operand_bytes(run, OPERAND_D) - offset);
}

/* The worst error over its bound; `ret_detail` says what is wrong when it is above 1. */
static double judge(struct selftest *test, const struct selftest_run *run, char *ret_detail)
{
    struct reference_operands operands = {
        .a = test->local[OPERAND_A] + operand_offset(run, OPERAND_A),
        .b = test->local[OPERAND_B] + operand_offset(run, OPERAND_B),
        .c = test->local[OPERAND_C] + operand_offset(run, OPERAND_C),
        .bias = test->local[OPERAND_BIAS] + operand_offset(run, OPERAND_BIAS),
        .d = test->local[OPERAND_D] + operand_offset(run, OPERAND_D),
    };
    struct reference_report report;
    int64_t spill = find_spill(test, run);

    if (spill >= 0) {
        (void)snprintf(ret_detail, SELFTEST_DETAIL_MAX, "byte %" PRId64 " outside of D was written",
                       spill);
        return INFINITY;
    }
    if (spill < -1 || reference_check(&run->problem, &operands, BUDGET, &report) < 0) {
        (void)snprintf(ret_detail, SELFTEST_DETAIL_MAX, "no memory for the reference");
        return INFINITY;
    }
    if (!reference_is_right(&report))
        reference_describe(&report, ret_detail, SELFTEST_DETAIL_MAX);
    return report.worst_ratio;
}

double selftest_run(struct selftest *test,
                    const struct selftest_types *types,
                    const struct selftest_shape *shape,
                    char ret_detail[SELFTEST_DETAIL_MAX])
{
    struct selftest_run run = {.shape = shape};
    gemmd_status status;

    make_problem(types, shape, &run.problem);
    status = prepare(test, &run);
    if (status == GEMMD_OK)
        status = multiply(test, &run);
    if (status == GEMMD_OK)
        return judge(test, &run, ret_detail);
    (void)snprintf(ret_detail, SELFTEST_DETAIL_MAX, "%s: %.280s", gemmd_strerror(status),
                   gemmd_last_error(test->ctl->connection)->message);
    test->is_lost = status == GEMMD_DISCONNECTED;
    return INFINITY;
}

/* --- memory ---------------------------------------------------------------------------------- */

void selftest_deinit(struct selftest *test)
{
    for (int i = 0; i < OPERAND_COUNT; i++) {
        gemmd_buffer_free(test->buffer[i]);
        free(test->local[i]);
    }
}

int selftest_init(struct selftest *test)
{
    for (int i = 0; i < OPERAND_COUNT; i++) {
        test->local[i] = malloc(ARENA_BYTES);
        if (!test->local[i])
            return ctl_fail(test->ctl, "no memory for the operands");
        if (gemmd_buffer_create(test->ctl->connection, test->memory, ARENA_BYTES, NULL, 0,
                                &test->buffer[i]) != GEMMD_OK)
            return ctl_daemon_error(test->ctl);
    }
    return CTL_OK;
}
