/*
 * One connected product: what `latency` asks the daemon for. client/gemmd.h and the
 * kernels' ABI share names, so these files see only the client's side.
 */
#pragma once

#include "../../client/gemmd.h"
#include "bench.h"

/* Prints the last failure and returns 1. */
static inline int bench_client_failed(const gemmd *connection, const char *what)
{
    const gemmd_error *error = gemmd_last_error(connection);
    fprintf(stderr, "gemmd-bench: %s: %s %s %s\n", what, gemmd_strerror(error->status),
            error->argument, error->message);
    return 1;
}

static inline gemmd_product bench_product(int64_t size)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    product.input = GEMMD_BF16;
    product.trans_b = true;
    product.m = product.n = product.k = size;
    return product;
}
