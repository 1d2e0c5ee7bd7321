/*
 * A file of products to time: group,dtype,layout,m,n,k with one header line. layout: A then B, n as
 * stored row-major, t transposed.
 */
#pragma once

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
