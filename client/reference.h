/*
 * The right answer, slowly: a product in double precision (80-bit extended for fp64, exact for
 * int8), and a result held against it within the project's error bound (core/dtype.h). Used by
 * gemmctl, tests and benchmarks. Plain C, no threads, no BLAS: it shares nothing with what it
 * judges.
 *
 * Sums of magnitude beyond the accumulator's range (fp32 for bf16, fp16, fp32 inputs) may overflow
 * in a right implementation and not here; keep test data below that.
 */
#pragma once

#include "../daemon/core/problem.h"
#include "../daemon/core/std.h"

/* Row-major memory of a filled and checked problem. What the BLAS rules do not read may be NULL. */
struct reference_operands {
    const void *a, *b;
    const void *c; /* as it was before the product, also when D replaced it */
    const void *bias;
    const void *d; /* the result to be judged */
};

/* Multiplications of about one second, and "every element". */
#define REFERENCE_ONE_SECOND ((uint64_t)1 << 30)
#define REFERENCE_ALL        UINT64_MAX

struct reference_report {
    uint64_t elements, checked; /* of D, in all of the batch */
    double worst_ratio;         /* error over bound, at most 1 when right; Inf: NaN or Inf wrong */
    /* where it is, and what was there */
    int64_t batch, row, column;
    double expected, got, bound;
};

/*
 * Compares D with the reference. Beyond `max_multiplications` a sample of rows and columns is
 * checked, spread over all of D, the first and last always among them; the same problem gives the
 * same sample. -ENOMEM only.
 */
int reference_check(const struct problem *problem,
                    const struct reference_operands *operands,
                    uint64_t max_multiplications,
                    struct reference_report *ret_report);
bool reference_is_right(const struct reference_report *report);
/* One sentence: "all 12 elements within the bound, worst 0.03 of it" or what is wrong and where. */
void reference_describe(const struct reference_report *report, char *ret_text, size_t size);

/*
 * D's memory before a run: every byte 0xff, which is NaN in every floating type, so that an element
 * never written shows. Afterwards every byte that belongs to no element must be as it was; the
 * second call gives the offset of the first that is not, -1 when all are, -2 without memory.
 */
void reference_poison(void *d, size_t size);
int64_t reference_find_spill(const struct problem *problem, const void *d, size_t size);
