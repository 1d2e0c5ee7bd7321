/*
 * The product a request asks for, by value and without memory: shapes, types, layout and scalars.
 *
 *   D = act(alpha * op(A) @ op(B) + beta * C + bias)        for each of `batch` problems
 *
 * op(A) is m x k, op(B) is k x n, C and D are m x n. Matrices are row-major: without transposition
 * A is stored m x k with leading dimension lda (elements from one row to the next); with trans_a
 * it is stored k x m. Operand i of a batch starts `stride` elements after operand i - 1; stride 0
 * reuses one input for all. BLAS rules: beta = 0 never reads C, alpha = 0 or k = 0 never reads A
 * and B, m = 0 or n = 0 or batch = 0 is success and touches nothing.
 *
 * The bias is one value for each row of D (m of them) or for each column (n), side by side, in D's
 * type: that of a layer whose result is D, and what adding it to D afterwards would take. It counts
 * as an operand of one row. Bias and activation apply whatever alpha, beta and k are.
 *
 * int8 inputs give int32 results modulo 2^32; alpha and beta are then integers, and the activation
 * is none or relu.
 */
#pragma once

#include "activation.h"
#include "dtype.h"
#include "status.h"
#include "std.h"

enum operand_role {
    OPERAND_A,
    OPERAND_B,
    OPERAND_C,
    OPERAND_BIAS,
    OPERAND_D, /* the last: those before it are read */
    OPERAND_COUNT,
};

enum bias {
    BIAS_NONE = 0,
    BIAS_PER_ROW = 1,
    BIAS_PER_COLUMN = 2,
    BIAS_COUNT,
};

/* "not given": the leading dimension is the row length, the batch stride is one whole operand. */
#define PROBLEM_DEFAULT INT64_MIN

struct problem_operand {
    int64_t ld;     /* elements; at least max(1, row length) */
    int64_t stride; /* elements between batch items; 0 only for inputs; never negative */
};

struct problem {
    enum dtype input;  /* of A and B */
    enum dtype output; /* of C, the bias and D */
    enum bias bias;
    enum activation activation;
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    double alpha, beta;
    struct problem_operand operand[OPERAND_COUNT];
};

const char *operand_name(enum operand_role role); /* "a", "b", "c", "bias", "d": wire names */

/* The row-major problem with the same memory as a column-major one: D^T = op(B)^T op(A)^T, so A
 * and B, m and n, trans_a and trans_b, rows and columns of the bias swap. The caller swaps what it
 * keeps beside (buffers). */
void problem_from_column_major(struct problem *problem);

/* Makes all leading dimensions and strides PROBLEM_DEFAULT. */
void problem_leave_layouts(struct problem *problem);

/* Replaces PROBLEM_DEFAULT in leading dimensions and strides, by row-major rules: a column-major
 * problem is converted first. */
void problem_fill_defaults(struct problem *problem);

/*
 * Checks shapes, types, leading dimensions, strides and scalars, with checked 64-bit arithmetic.
 * The leading dimension rule holds also when k = 0; results of a batch may lie one after the other
 * or side by side within the rows, but not overlap. Returns STATUS_OK, STATUS_INVALID_ARGUMENT or
 * STATUS_UNSUPPORTED with the fault filled, arguments by their wire names. Defaults need not be
 * filled yet. The order for a request is: problem_check() with its `column_major`, so that the
 * message speaks of what the client gave, then problem_from_column_major() if it is one, then
 * problem_fill_defaults().
 */
enum status
problem_check(const struct problem *problem, bool column_major, struct fault *ret_fault);

bool problem_is_empty(const struct problem *problem);                      /* nothing to write */
bool problem_reads(const struct problem *problem, enum operand_role role); /* by the BLAS rules */

/* Rows, columns as stored, and the bytes from the first element to one past the last, over all of
 * the batch. 0 bytes when nothing is read or written. Valid after problem_check(). */
int64_t problem_rows(const struct problem *problem, enum operand_role role);
int64_t problem_columns(const struct problem *problem, enum operand_role role);
uint64_t problem_span(const struct problem *problem, enum operand_role role);

/* How far an element of D may be from act(before): dtype_error_bound(), through the activation.
 * `abs_rest`: |beta C| + |bias|. 0 of what is infinite: its function has one value. */
double problem_error_bound(const struct problem *problem,
                           double before,
                           double abs_alpha_ab,
                           double abs_rest);

/* Operations, 2 m n k batch, as a double: it may exceed 2^64. */
double problem_flop(const struct problem *problem);
