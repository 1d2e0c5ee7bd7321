/*
 * Shapes and layouts: defaults, checks, spans.
 *
 * A column-major problem is checked as the row-major one with the same memory; only the names in
 * the messages are the client's.
 */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A span must fit a signed 64-bit byte offset: kernels and clients add offsets to it. */
#define SPAN_MAX ((uint64_t)INT64_MAX)

const char *operand_name(enum operand_role role)
{
    static const char *const names[OPERAND_COUNT] = {"a", "b", "c", "bias", "d"};

    return (unsigned)role < OPERAND_COUNT ? names[role] : "?";
}

void problem_from_column_major(struct problem *problem)
{
    struct problem given = *problem;

    problem->m = given.n;
    problem->n = given.m;
    problem->trans_a = given.trans_b;
    problem->trans_b = given.trans_a;
    if (given.bias != BIAS_NONE)
        problem->bias = given.bias == BIAS_PER_ROW ? BIAS_PER_COLUMN : BIAS_PER_ROW;
    problem->operand[OPERAND_A] = given.operand[OPERAND_B];
    problem->operand[OPERAND_B] = given.operand[OPERAND_A];
}

int64_t problem_rows(const struct problem *problem, enum operand_role role)
{
    switch (role) {
    case OPERAND_A:
        return problem->trans_a ? problem->k : problem->m;
    case OPERAND_B:
        return problem->trans_b ? problem->n : problem->k;
    case OPERAND_BIAS:
        return 1;
    default:
        return problem->m;
    }
}

int64_t problem_columns(const struct problem *problem, enum operand_role role)
{
    switch (role) {
    case OPERAND_A:
        return problem->trans_a ? problem->m : problem->k;
    case OPERAND_B:
        return problem->trans_b ? problem->k : problem->n;
    case OPERAND_BIAS:
        return problem->bias == BIAS_PER_ROW ? problem->m : problem->n;
    default:
        return problem->n;
    }
}

void problem_leave_layouts(struct problem *problem)
{
    for (int i = 0; i < OPERAND_COUNT; i++)
        problem->operand[i] = (struct problem_operand){PROBLEM_DEFAULT, PROBLEM_DEFAULT};
}

void problem_fill_defaults(struct problem *problem)
{
    for (int i = 0; i < OPERAND_COUNT; i++) {
        struct problem_operand *operand = &problem->operand[i];
        enum operand_role role = (enum operand_role)i;

        if (operand->ld == PROBLEM_DEFAULT)
            operand->ld = MAX(1, problem_columns(problem, role));
        /* A product that does not fit saturates: problem_check() refuses its span. */
        if (operand->stride == PROBLEM_DEFAULT &&
            __builtin_mul_overflow(problem_rows(problem, role), operand->ld, &operand->stride))
            operand->stride = INT64_MAX;
    }
}

bool problem_is_empty(const struct problem *problem)
{
    return problem->m == 0 || problem->n == 0 || problem->batch == 0;
}

bool problem_reads(const struct problem *problem, enum operand_role role)
{
    if (problem_is_empty(problem))
        return false;
    switch (role) {
    case OPERAND_A:
    case OPERAND_B:
        return problem->k > 0 && problem->alpha != 0;
    case OPERAND_C:
        return problem->beta != 0;
    case OPERAND_BIAS:
        return problem->bias != BIAS_NONE;
    default:
        return false;
    }
}

static bool touches(const struct problem *problem, enum operand_role role)
{
    return role == OPERAND_D ? !problem_is_empty(problem) : problem_reads(problem, role);
}

static enum dtype operand_dtype(const struct problem *problem, enum operand_role role)
{
    return role == OPERAND_A || role == OPERAND_B ? problem->input : problem->output;
}

/* (rows - 1) ld + columns: elements from the first to one past the last of one batch item. */
static bool
item_overflows(const struct problem *problem, enum operand_role role, uint64_t *ret_elements)
{
    uint64_t rows = (uint64_t)problem_rows(problem, role);
    uint64_t columns = (uint64_t)problem_columns(problem, role);
    uint64_t elements;

    return mul_overflows(rows - 1, (uint64_t)problem->operand[role].ld, &elements) ||
           add_overflows(elements, columns, ret_elements);
}

static bool
span_overflows(const struct problem *problem, enum operand_role role, uint64_t *ret_bytes)
{
    uint64_t item, steps, elements;

    if (!touches(problem, role)) {
        *ret_bytes = 0;
        return false;
    }
    return item_overflows(problem, role, &item) ||
           mul_overflows((uint64_t)problem->batch - 1, (uint64_t)problem->operand[role].stride,
                         &steps) ||
           add_overflows(steps, item, &elements) ||
           mul_overflows(elements, dtype_size(operand_dtype(problem, role)), ret_bytes) ||
           *ret_bytes > SPAN_MAX;
}

uint64_t problem_span(const struct problem *problem, enum operand_role role)
{
    uint64_t bytes;

    return span_overflows(problem, role, &bytes) ? UINT64_MAX : bytes;
}

double problem_flop(const struct problem *problem)
{
    return 2.0 * (double)problem->m * (double)problem->n * (double)problem->k *
           (double)problem->batch;
}

double problem_error_bound(const struct problem *problem,
                           double before,
                           double abs_alpha_ab,
                           double abs_rest)
{
    double error = dtype_accumulated_error(problem->input, problem->k, abs_alpha_ab, abs_rest);

    if (isinf(before))
        return 0;
    return dtype_rounding_error(problem->output, activation_apply(problem->activation, before)) +
           activation_error(problem->activation, before, error,
                            dtype_accumulator_roundoff(problem->input));
}

static enum status check_types(const struct problem *problem, struct fault *ret_fault)
{
    if (problem->input == DTYPE_INT32 || dtype_size(problem->input) == 0)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "dtype",
                         "input type %s is not one of bf16, fp16, fp32, fp64, int8",
                         dtype_name(problem->input));
    if (!dtype_pair_is_valid(problem->input, problem->output))
        return fault_set(ret_fault, STATUS_UNSUPPORTED, "dtype_out",
                         "output type %s does not exist for input type %s; allowed: %s%s",
                         dtype_name(problem->output), dtype_name(problem->input),
                         dtype_name(dtype_default_output(problem->input)),
                         dtype_size(problem->input) == 2 ? ", fp32" : "");
    return STATUS_OK;
}

static enum status check_epilogue(const struct problem *problem, struct fault *ret_fault)
{
    if ((unsigned)problem->bias >= BIAS_COUNT)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "bias",
                         "the kind of bias is %d; allowed: 0 for none, 1 per row, 2 per column",
                         (int)problem->bias);
    if ((unsigned)problem->activation >= ACTIVATION_COUNT)
        return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "activation",
                         "activation is %d; allowed are those of none, relu, gelu, gelu_tanh, silu",
                         (int)problem->activation);
    if (!activation_is_valid(problem->activation, problem->output))
        return fault_set(ret_fault, STATUS_UNSUPPORTED, "activation",
                         "activation %s does not exist for %s results; allowed: none, relu",
                         activation_name(problem->activation), dtype_name(problem->output));
    return STATUS_OK;
}

static enum status check_sizes(const struct problem *problem, struct fault *ret_fault)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"m", problem->m},
        {"n", problem->n},
        {"k", problem->k},
        {"batch", problem->batch},
    };

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        if (sizes[i].value < 0)
            return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, sizes[i].name,
                             "%s is %" PRId64 "; it must not be negative", sizes[i].name,
                             sizes[i].value);
    }
    return STATUS_OK;
}

static enum status
check_scalar(const struct problem *problem, const char *name, double value, struct fault *ret_fault)
{
    if (problem->input != DTYPE_INT8)
        return STATUS_OK;
    if (value >= INT32_MIN && value <= INT32_MAX && value == rint(value))
        return STATUS_OK;
    return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, name,
                     "%s is %g; with int8 inputs it must be an integer from -2147483648 to "
                     "2147483647",
                     name, value);
}

/* One operand of the row-major problem, and how the client calls it. */
struct view {
    const struct problem *problem;
    enum operand_role role;
    const char *name;
    bool column_major;
};

static enum status
view_fault(const struct view *view, const char *field, struct fault *ret_fault, const char *message)
{
    char argument[FAULT_ARGUMENT_MAX];

    (void)snprintf(argument, sizeof(argument), "%s.%s", view->name, field);
    return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, argument, "%s %s", argument, message);
}

static enum status check_leading_dimension(const struct view *view, struct fault *ret_fault)
{
    int64_t length = problem_columns(view->problem, view->role);
    int64_t ld = view->problem->operand[view->role].ld;
    char message[160];

    if (ld >= MAX(1, length))
        return STATUS_OK;
    (void)snprintf(message, sizeof(message),
                   "is %" PRId64 "; it must be at least %" PRId64 " (a stored %s has %" PRId64
                   " elements)",
                   ld, MAX(1, length), view->column_major ? "column" : "row", length);
    return view_fault(view, "ld", ret_fault, message);
}

/* Sequential items, or items side by side inside one row (heads of an attention layer). */
static bool items_are_disjoint(const struct problem *problem, uint64_t item)
{
    const struct problem_operand *d = &problem->operand[OPERAND_D];
    uint64_t stride = (uint64_t)d->stride, columns = (uint64_t)problem->n, steps, width;

    if (stride >= item)
        return true;
    return stride >= columns && !mul_overflows((uint64_t)problem->batch - 1, stride, &steps) &&
           !add_overflows(steps, columns, &width) && width <= (uint64_t)d->ld;
}

static enum status check_stride(const struct view *view, struct fault *ret_fault)
{
    const struct problem *problem = view->problem;
    int64_t stride = problem->operand[view->role].stride;
    char message[200];
    uint64_t item;

    if (stride < 0) {
        (void)snprintf(message, sizeof(message), "is %" PRId64 "; it must not be negative", stride);
        return view_fault(view, "stride", ret_fault, message);
    }
    if (view->role != OPERAND_D || problem_is_empty(problem) || problem->batch == 1)
        return STATUS_OK;
    if (item_overflows(problem, OPERAND_D, &item) || items_are_disjoint(problem, item))
        return STATUS_OK;
    (void)snprintf(message, sizeof(message),
                   "is %" PRId64 "; the %" PRId64 " results of the batch must not overlap: at "
                   "least %" PRIu64 ", or at least %" PRId64 " with all of them inside one %s",
                   stride, problem->batch, item, problem->n,
                   view->column_major ? "leading dimension" : "row");
    return view_fault(view, "stride", ret_fault, message);
}

static enum status check_span(const struct view *view, struct fault *ret_fault)
{
    uint64_t bytes;

    if (!span_overflows(view->problem, view->role, &bytes))
        return STATUS_OK;
    return fault_set(ret_fault, STATUS_INVALID_ARGUMENT, view->name,
                     "%s covers more bytes than 64-bit offsets reach; at most %" PRIu64
                     " are allowed",
                     view->name, SPAN_MAX);
}

static enum status
check_operand(const struct problem *row_major, bool column_major, int i, struct fault *ret_fault)
{
    static const enum operand_role swapped[OPERAND_COUNT] = {OPERAND_B, OPERAND_A, OPERAND_C,
                                                             OPERAND_BIAS, OPERAND_D};
    struct view view = {
        .problem = row_major,
        .role = column_major ? swapped[i] : (enum operand_role)i,
        .name = operand_name((enum operand_role)i),
        .column_major = column_major,
    };
    enum status status;

    if (view.role == OPERAND_BIAS && row_major->bias == BIAS_NONE)
        return STATUS_OK;
    status = check_leading_dimension(&view, ret_fault);
    if (status == STATUS_OK)
        status = check_stride(&view, ret_fault);
    if (status == STATUS_OK)
        status = check_span(&view, ret_fault);
    return status;
}

enum status problem_check(const struct problem *problem, bool column_major, struct fault *ret_fault)
{
    struct problem row_major = *problem;
    enum status status;

    status = check_types(problem, ret_fault);
    if (status == STATUS_OK)
        status = check_epilogue(problem, ret_fault);
    if (status == STATUS_OK)
        status = check_sizes(problem, ret_fault);
    if (status == STATUS_OK)
        status = check_scalar(problem, "alpha", problem->alpha, ret_fault);
    if (status == STATUS_OK)
        status = check_scalar(problem, "beta", problem->beta, ret_fault);
    if (status != STATUS_OK)
        return status;

    if (column_major)
        problem_from_column_major(&row_major);
    problem_fill_defaults(&row_major);
    for (int i = 0; i < OPERAND_COUNT && status == STATUS_OK; i++)
        status = check_operand(&row_major, column_major, i, ret_fault);
    return status;
}
