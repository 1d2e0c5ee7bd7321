/*
 * A file of products to time: group,dtype,layout,m,n,k with one header line. layout: A then B, n as
 * stored row-major, t transposed.
 */
#pragma once

#include "../../daemon/core/problem.h"
#include "bench.h"

struct shape {
    char group[24];
    enum dtype dtype;
    bool trans_a, trans_b;
    int64_t m, n, k;
};

#define SHAPES_MAX 1024

/* Lines of dtypes that this version lacks are told and left out. 0, or -1 with a line on stderr. */
int shapes_read(const char *path, const char *group, struct shape *ret_shapes, size_t *ret_count);

/* `count` products, the same for the same seed: M, N and K log-uniform in 1 to 16384, half of the
 * products rounded to multiples of 16; bf16 and nt, or any 16-bit type and layout. Their group says
 * whether every row is a multiple of 16 bytes: "random-aligned", "random-unaligned". */
void shapes_random(size_t count, uint64_t seed, bool is_mixed, struct shape *ret_shapes);

/* "4096x4096x1024", "bf16", "nt"; false when one of them is none. The group is left empty. */
bool shape_from_text(const char *size, const char *dtype, const char *layout, struct shape *ret);
/* The options --shape, --dtype (bf16) and --layout (nt); ends the program when they are wrong. */
struct shape shape_from_options(int argc, char **argv, const char *fallback);

/* D = op(A) op(B), packed, of the default output type. */
struct problem shape_problem(const struct shape *shape);
double shape_flop(const struct shape *shape);
/* Bytes of A, B and D, each rounded up to 256, so that several lie aligned behind each other. */
void shape_bytes(const struct shape *shape, size_t ret_bytes[3]);
