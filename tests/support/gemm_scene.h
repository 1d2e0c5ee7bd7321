/*
 * One product with operands in memory of its own, for tests: random elements, poison everywhere
 * else, and a double loop as the reference.
 *
 * Whatever is no element of A, B or C is NaN in the floating types, and all of C is when beta is 0;
 * what lies beside D's elements has a pattern that must survive.
 */
#pragma once

#include "../../daemon/core/problem.h"
#include "../../kernels_src/abi/job.h"

struct setting {
    enum dtype input, output;
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    int pad;      /* elements beyond the row */
    size_t shift; /* bytes before the first element */
    double alpha, beta;
    bool in_place; /* D is C */
    enum bias bias;
    enum activation activation;
};

struct operand {
    enum dtype dtype;
    int64_t rows, columns, ld, stride, batch; /* as stored */
    size_t shift, size;                       /* first element's offset; bytes in all */
    unsigned char *bytes, *before;
};

struct scene {
    struct operand a, b, c, bias, d;
    struct gemmd_job job;
};

struct reference {
    double before;          /* the activation */
    double magnitude, rest; /* |alpha| (|A| |B|); |beta C| + |bias| */
    uint32_t integer;       /* of int8 inputs, modulo 2^32 */
};

struct scene scene_make(const struct setting *s);
void scene_free(struct scene *scene);

double operand_get(const struct operand *o, int64_t item, int64_t row, int64_t column);
void operand_set(struct operand *o, int64_t item, int64_t row, int64_t column, double value);

/* `where`: batch item, row, column. With in_place the old C is still in scene->c. */
struct reference
scene_reference(const struct scene *scene, const struct setting *s, const int64_t where[3]);
/* `got` against the reference, by the project's error bound. */
bool scene_is_right(const struct setting *s, const struct reference *expected, double got);
/* Nothing beside D's elements changed. */
bool scene_kept_surroundings(struct scene *scene);
