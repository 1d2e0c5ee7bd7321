/*
 * The products of kernel_cases.c: sizes around tiles, rings and splits, the BLAS rules, layouts.
 */
#pragma once

#include <stdint.h>

enum trait {
    PADDED = 1 << 0,     /* 5 elements between rows, 3 between items */
    ALIGNED = 1 << 1,    /* rows of a multiple of 16 elements */
    OFF_BY_ONE = 1 << 2, /* operands start one element late */
    SHARED_A = 1 << 3,
    SHARED_B = 1 << 4,
    IN_PLACE = 1 << 5,
    NAN_IN_A = 1 << 6, /* one element */
    INF_IN_B = 1 << 7,
    SHARED_BIAS = 1 << 8,
    BIAS_ROWS = 1 << 9, /* one value per row */
    BIAS_COLUMNS = 1 << 10,
    RELU = 1 << 11,
    GELU = 1 << 12, /* these three: relu where results are integers */
    GELU_TANH = 1 << 13,
    SILU = 1 << 14,
};

/* Beside the traits: elements by which all operands start late. */
#define LATE(elements) ((unsigned)(elements) << 8)

struct shape {
    int64_t m, n, k, batch;
    unsigned traits;
    double alpha, beta;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1, 0, 1, 0},
    {1, 1, 1, 1, ALIGNED, 2, -3},
    {8, 8, 8, 1, ALIGNED, 1, 0},
    {7, 9, 3, 1, 0, 1, 0},
    {16, 16, 16, 1, ALIGNED, 1, 1},
    {63, 65, 33, 1, 0, 2, -3},
    {64, 64, 64, 1, ALIGNED, 1, 0},
    {63, 65, 33, 1, ALIGNED, 2, -3},
    {128, 256, 128, 1, ALIGNED, 1, 2},
    {129, 257, 65, 1, 0, 1, 0},
    {129, 257, 65, 1, ALIGNED, 1, 1},
    {300, 208, 112, 1, ALIGNED, 1, 0},
    {1, 500, 70, 1, ALIGNED, 1, 0},
    {500, 1, 70, 1, ALIGNED, 1, 0},
    {1, 501, 71, 1, 0, 1, 1},
    {501, 1, 71, 1, 0, 1, 1},
    /* K against the depth of the ring */
    {40, 48, 20, 1, ALIGNED, 1, 0},
    {40, 48, 24, 1, ALIGNED, 1, 0},
    {40, 48, 63, 1, ALIGNED, 1, 0},
    {40, 48, 96, 1, ALIGNED, 1, 0},
    {40, 48, 128, 1, ALIGNED, 1, 0},
    {40, 48, 160, 1, ALIGNED, 1, 0},
    {40, 48, 576, 1, ALIGNED, 1, 0},
    {33, 47, 577, 1, 0, 1, 0},
    /* the BLAS rules */
    {33, 47, 0, 1, 0, 1, 0},
    {33, 47, 0, 1, ALIGNED, 1, 1},
    {33, 47, 0, 3, ALIGNED | PADDED, 1, 2},
    {33, 47, 20, 1, ALIGNED, 0, 2},
    {33, 47, 20, 1, 0, 0, 0},
    {33, 48, 20, 1, ALIGNED | IN_PLACE, 1, 2},
    {133, 147, 40, 2, PADDED | IN_PLACE, 2, 1},
    {65, 70, 40, 1, ALIGNED | NAN_IN_A, 1, 0},
    {65, 70, 40, 1, ALIGNED | INF_IN_B, 1, 1},
    {65, 70, 40, 1, NAN_IN_A, 1, 0},
    /* layout */
    {65, 70, 40, 1, PADDED, 1, 1},
    {65, 70, 40, 1, OFF_BY_ONE, 1, 1},
    {64, 64, 64, 1, OFF_BY_ONE, 1, 0},
    {65, 70, 40, 3, PADDED | OFF_BY_ONE, 2, -3},
    {65, 70, 40, 5, ALIGNED, 1, 1},
    {17, 18, 19, 7, 0, 1, 0},
    {65, 70, 40, 3, ALIGNED | SHARED_A, 1, 0},
    {65, 70, 40, 3, ALIGNED | SHARED_B, 1, 1},
    {17, 18, 19, 4, SHARED_A | SHARED_B, 1, 0},
    /* narrow: M about the tiles that compute the transpose, K about what splits leave */
    {2, 136, 584, 1, ALIGNED, 1, 0},
    {3, 136, 64, 1, ALIGNED, 1, 1},
    {4, 64, 1, 1, ALIGNED, 1, 0},
    {5, 200, 130, 1, ALIGNED, 1, 0},
    {6, 131, 712, 2, ALIGNED, 2, -3},
    {7, 72, 320, 1, ALIGNED | PADDED, 1, 1},
    {8, 1096, 2056, 1, ALIGNED, 1, 0},
    {9, 1031, 1992, 1, ALIGNED, 1, 2},
    {15, 136, 584, 3, ALIGNED | SHARED_B, 1, 0},
    {16, 2112, 1160, 1, ALIGNED, 1, 0},
    {17, 136, 520, 1, ALIGNED | IN_PLACE, 1, 2},
    {64, 712, 1352, 1, ALIGNED, 1, 1},
    {65, 136, 584, 1, ALIGNED, 1, 0},
    {127, 136, 584, 1, ALIGNED, 2, -3},
    {128, 392, 4160, 1, ALIGNED, 1, 0},
    {129, 136, 1000, 1, ALIGNED, 1, 0},
    /* few columns, and no gaps between rows of D */
    {1100, 11, 9, 1, 0, 1, 0},
    {530, 3, 20, 2, 0, -2, 0},
    {515, 1, 7, 1, 0, 1, 0},
    {600, 24, 5, 2, 0, 1, 0},
    {200, 246, 6, 1, 0, 1, 0},
    /* several tiles for each CTA */
    {3000, 3000, 40, 1, ALIGNED, 1, 0},
    {2050, 2600, 330, 1, ALIGNED, 1, 0},
    {200, 330, 1100, 40, ALIGNED, 1, 1},
    {1501, 1403, 37, 1, 0, 1, 0},
    {70, 130, 33, 150, 0, 1, 0},
    /* bias and activation */
    {65, 70, 40, 1, BIAS_COLUMNS, 1, 0},
    {200, 264, 64, 1, ALIGNED | BIAS_COLUMNS | GELU, 1, 0},
    {129, 257, 65, 3, ALIGNED | BIAS_ROWS | SHARED_BIAS | RELU, 2, 0},
    {133, 147, 40, 2, PADDED | IN_PLACE | BIAS_ROWS | SILU, 2, 1},
    {133, 147, 40, 2, ALIGNED | IN_PLACE | BIAS_COLUMNS | SILU, 2, 1},
    {300, 208, 112, 1, ALIGNED | GELU_TANH, 1, -1},
    {300, 208, 112, 1, ALIGNED | GELU, 20, 0},
    {33, 47, 0, 2, ALIGNED | BIAS_ROWS | GELU, 1, 0},
    {65, 70, 40, 1, ALIGNED | NAN_IN_A | INF_IN_B | RELU, 1, 0},
    {2050, 2600, 72, 1, ALIGNED | BIAS_COLUMNS | RELU, 1, 0},
};
