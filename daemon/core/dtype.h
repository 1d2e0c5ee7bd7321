/*
 * Element types: names, sizes, conversions and the one error bound of the project.
 *
 * Numbers are wire and ABI format (kernels_src/abi/job.h, proto/protocol.md).
 */
#pragma once

#include "std.h"

enum dtype {
    DTYPE_NONE = 0,
    DTYPE_BF16 = 1,
    DTYPE_FP16 = 2,
    DTYPE_FP32 = 3,
    DTYPE_FP64 = 4,
    DTYPE_INT8 = 5,
    DTYPE_INT32 = 6,
    DTYPE_COUNT,
};

const char *dtype_name(enum dtype dtype); /* "bf16", ...; "none" */
bool dtype_from_name(const char *name, size_t length, enum dtype *ret_dtype);
size_t dtype_size(enum dtype dtype); /* bytes per element; 0 for DTYPE_NONE */

/* The output type used when a request names none: the input's own, int32 for int8. */
enum dtype dtype_default_output(enum dtype input);
/* The (input, output) pairs that exist: bf16 and fp16 to themselves or fp32, fp32, fp64, int8 to
 * int32. */
bool dtype_pair_is_valid(enum dtype input, enum dtype output);

/* Element `index` of an array as a double (exact for every type), and the rounded way back:
 * nearest even for floating types; int8 and int32 take the value modulo their width. */
double dtype_load(enum dtype dtype, const void *base, size_t index);
void dtype_store(enum dtype dtype, void *base, size_t index, double value);

uint16_t bf16_from_float(float value); /* nearest even, NaN stays NaN */
float float_from_bf16(uint16_t bits);
uint16_t fp16_from_float(float value); /* nearest even, overflow to Inf */
float float_from_fp16(uint16_t bits);

/*
 * How far a right answer may be from the fp64 reference:
 *   u_out |D64| + c K u_acc |alpha| (|A| |B|) + c u_acc |beta C| + tiny
 * after Higham, Accuracy and Stability of Numerical Algorithms, section 3.5, with the constant c
 * for the blocked order and u the unit roundoff of the output and accumulator types. `tiny` is the
 * output's smallest subnormal. Integer results are exact: the bound is 0. A bias counts as part of
 * beta C; problem_error_bound() has activation functions too.
 */
double dtype_error_bound(enum dtype input,
                         enum dtype output,
                         int64_t k,
                         double reference,
                         double abs_alpha_ab,
                         double abs_beta_c);
/* Its two parts: what accumulators hold on their way out, and the rounding to the output type. And
 * the unit roundoff of the type that accumulates; 0 for integers. */
double dtype_accumulated_error(enum dtype input, int64_t k, double abs_alpha_ab, double abs_beta_c);
double dtype_rounding_error(enum dtype output, double value);
double dtype_accumulator_roundoff(enum dtype input);
