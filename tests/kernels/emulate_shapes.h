/*
 * The products that every configuration computes: sizes in tiles of the configuration and a rest.
 */
#pragma once

#include "../../daemon/core/problem.h"
#include "../../daemon/plan/config.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct shape {
    const char *name;
    int tiles_m, rest_m, tiles_n, rest_n, tiles_k, rest_k;
    int batch;
    double alpha, beta;
    uint32_t ctas;
    int pad; /* of leading dimensions, in 16 bytes (V16) or elements */
    bool in_place, one_a, one_b, one_bias, specials, slices, blocks;
    bool is_d_aligned; /* begins on 16 bytes */
    enum bias bias;
    enum activation activation; /* of integers: relu, if any */
    uint32_t splits;            /* of configurations that have them */
};

static const struct shape shapes[] = {
    {"one element", 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, .pad = 0},
    {"one tile", 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, .pad = 0},
    {"just over", 1, 1, 1, 3, 1, 1, 1, 2, 3, 3, .pad = 1},
    {"just under, long K", 1, -1, 1, -1, 5, 3, 1, -1, 1, 1, .pad = 2, .in_place = true},
    {"k = 0", 0, 7, 0, 9, 0, 0, 2, 2, 2, 1, .pad = 1},
    {"k = 0, beta = 0", 0, 17, 0, 33, 0, 0, 1, INFINITY, 0, 1, .pad = 1},
    {"alpha = 0", 0, 17, 0, 33, 0, 5, 1, 0, 2, 1, .pad = 0},
    {"batch", 0, 5, 0, 20, 0, 24, 3, 1, -2, 2, .pad = 1, .one_a = true},
    {"batch, one B", 0, 18, 0, 6, 1, -1, 2, 1, 0, 3, .pad = 2, .one_b = true},
    {"slices", 2, 1, 1, 1, 0, 3, 2, 1, 0, 2, .pad = 0, .slices = true},
    {"bands", 17, 1, 2, 0, 0, 1, 1, 1, 2, 1, .pad = 0, .in_place = true, .slices = true},
    {"NaN and Inf", 1, 2, 1, 2, 2, 7, 1, 1, 0, 2, .pad = 1, .specials = true},
    {"bias per column", 1, 3, 1, 5, 0, 9, 2, 1, 0, 2, .pad = 1, .bias = BIAS_PER_COLUMN},
    {"bias per row, gelu, C", 1, 1, 1, -1, 0, 40, 2, 2, 1, 1, .pad = 1, .in_place = true,
     .one_bias = true, .bias = BIAS_PER_ROW, .activation = ACTIVATION_GELU},
    {"relu", 1, 2, 1, 2, 0, 7, 1, 1, 0, 2, .specials = true, .activation = ACTIVATION_RELU},
    {"silu", 0, 33, 0, 40, 1, 0, 1, 8, 0, 1, .pad = 1, .activation = ACTIVATION_SILU},
    {"k = 0, bias, gelu_tanh", 0, 17, 0, 33, 0, 0, 2, 1, 0, 1, .bias = BIAS_PER_COLUMN,
     .activation = ACTIVATION_GELU_TANH},
    {"few elements, long K", 0, 2, 0, 3, 0, 700, 2, 1, 0, 1, .pad = 1},
    {"few columns", 1, 3, 0, 11, 1, 1, 1, -2, 0, 2, .pad = 0, .is_d_aligned = true},
    {"all columns of a tile", 1, 3, 1, 0, 0, 1, 1, 1, 0, 1, .pad = 0, .is_d_aligned = true},
    {"few columns, gaps", 0, 37, 0, 11, 0, 3, 1, 1, 0, 1, .pad = 1, .is_d_aligned = true},
    {"few columns, batch", 0, 21, 0, 3, 0, 4, 3, 1, 0, 2, .pad = 0, .is_d_aligned = true},
    {"few columns, C", 0, 9, 0, 5, 0, 2, 1, 1, 3, 1, .pad = 0, .is_d_aligned = true},
    {"C in place, tiles beside each other", 0, 19, 1, 9, 0, 3, 1, 1, 2, 1, .pad = 1,
     .in_place = true},
    {"blocks of D", 0, 97, 0, 20, 0, 300, 1, 1, 0, 2, .pad = 1, .blocks = true},
    {"splits", 1, 1, 1, -1, 7, 5, 2, 1, 2, 3, .pad = 1, .splits = 3},
    {"fewer K tiles than splits", 0, 9, 0, 17, 2, 0, 1, 2, 0, 2, .pad = 0, .splits = 5},
    {"few columns, many splits", 0, 150, 0, 11, 5, 301, 1, 1, 1, 3, .pad = 2, .splits = 21},
    {"few rows, many splits", 0, 11, 0, 150, 5, 301, 1, 1, 1, 3, .pad = 2, .splits = 9},
    {"splits in slices", 2, 1, 1, 1, 4, 3, 1, 1, 0, 2, .pad = 0, .slices = true, .splits = 2},
};

/* Its kernels need rows that start on 16 bytes. */
static bool is_aligned(const struct config *config)
{
    return config->copy == CONFIG_COPY_V16 || config->copy == CONFIG_COPY_TMA;
}

static int64_t padded(const struct config *config, int64_t cols, enum dtype dtype, int pad)
{
    int64_t unit = is_aligned(config) ? 16 / (int64_t)dtype_size(dtype) : 1;

    return (MAX(cols, 1) + unit - 1) / unit * unit + pad * unit;
}
