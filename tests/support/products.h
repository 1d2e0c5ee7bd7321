/*
 * A product as a test sees it: random operands, run through the daemon from a kind of memory,
 * judged by client/reference.h.
 */
#pragma once

#include "../../client/gemmd.h"
#include "../../daemon/core/problem.h"

enum place {
    PLACE_PLAIN, /* memory of the test: inline or staged by the library */
    PLACE_HOST,  /* a host buffer of the daemon */
    PLACE_DEVICE,
    PLACE_COUNT,
};

struct product_case {
    enum dtype input, output; /* NONE: the default */
    bool trans_a, trans_b, column_major;
    int64_t m, n, k, batch;
    int64_t gap;   /* elements that each leading dimension exceeds its row by */
    int64_t shift; /* elements that each operand starts into its buffer */
    double alpha, beta;
    bool has_a_once; /* stride 0 for A */
    bool has_bias_once;
    enum bias bias;
    enum activation activation;
    enum place place;
};

/* Runs and judges it; asserts. */
void product_check(gemmd *connection, const struct product_case *product);
const char *place_name(enum place place);
