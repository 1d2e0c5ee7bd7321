/*
 * The part of the hopper family that leaves parts of sums for a second launch (plan_hopper.c uses
 * it).
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
