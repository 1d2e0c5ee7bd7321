/*
 * The part of the hopper family that leaves parts of sums for a second launch (plan_hopper.c uses
 * it; plan_hopper_stream.c the choice of splits).
 */
#pragma once

#include "plan.h"

/* Predicted times of `problem` with such a configuration and the best number of splits: fills
 * everything but the reason. `memory_bytes`: what the product moves at least. */
void plan_hopper_parts_predict(const struct problem *problem,
                               const struct config *config,
                               const struct plan_device *device,
                               double memory_bytes,
                               struct plan *ret_plan);

/* Predicted times with so many splits. */
typedef void plan_hopper_parts_with(const struct problem *problem,
                                    const struct config *config,
                                    const struct plan_device *device,
                                    uint32_t splits,
                                    double memory_bytes,
                                    struct plan *ret_plan);
/* The splits that `predict` has take the shortest, of those that the workspace and the device have
 * room for, and `most_by_k`. */
void plan_hopper_parts_best(const struct problem *problem,
                            const struct config *config,
                            const struct plan_device *device,
                            double memory_bytes,
                            double most_by_k,
                            plan_hopper_parts_with *predict,
                            struct plan *ret_plan);
