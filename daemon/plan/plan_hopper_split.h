/*
 * The part of the hopper family that shares tiles along K (plan_hopper.c uses it; tests do).
 */
#pragma once

#include "plan.h"

/* The room that splits have: equal to what kernels_src/abi/job.h says, which front/job.c asserts.
 */
#define PLAN_SPLIT_WORKSPACE (18u << 20)
#define PLAN_SPLIT_COUNTERS  4096
#define PLAN_SPLIT_WARPS     8

/* The most splits that the workspace has room for; 0 when it has none for the parts that the
 * configuration leaves (config_leaves_parts), else at least 1. */
uint32_t plan_splits_max(const struct problem *problem, const struct config *config);
/* The same for a number of splits, of configurations that realign. `ret_plan` has memory_seconds.
 */
void plan_hopper_realign_predict(const struct problem *problem,
                                 const struct config *config,
                                 const struct plan_device *device,
                                 double memory_bytes,
                                 uint32_t splits,
                                 struct plan *ret_plan);
/* Predicted times of `problem` with a split configuration and the best number of splits: fills
 * everything but the reason. `memory_bytes`: what the product moves at least. */
void plan_hopper_split_predict(const struct problem *problem,
                               const struct config *config,
                               const struct plan_device *device,
                               double memory_bytes,
                               struct plan *ret_plan);
