/*
 * The steps of the hopper ladder: which configuration of the list each is, for bf16 as A[M,K] and
 * B[N,K], and what a reader of its stamps must know of it.
 */
#pragma once

#include "../../daemon/plan/config.h"
#include "stamps.h"

struct ladder_step {
    const char *name;
    struct config config;
};

#define LADDER_STEPS 7

/* From the lowest on. False when the list lacks one. */
bool ladder_steps(struct ladder_step ret_steps[LADDER_STEPS]);
/* Of a product with this K, on a grid of `ctas`. */
struct stamps_launch
ladder_launch(const struct config *config, int64_t k, uint32_t ctas, uint32_t multiprocessors);
