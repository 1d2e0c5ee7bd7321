/*
 * The part of the hopper family that multiplies rows as they lie in memory by few columns
 * (plan_hopper.c and plan.c use it).
 */
#pragma once

#include "plan.h"

/* Whether D is as narrow as the configuration's tile: all of the long operand is read once. */
bool plan_hopper_stream_can(const struct problem *problem, const struct config *config);
/* Predicted times of `problem` with such a configuration and the best number of splits: fills
 * everything but the reason. `memory_bytes`: what the product moves at least. */
void plan_hopper_stream_predict(const struct problem *problem,
                                const struct config *config,
                                const struct plan_device *device,
                                double memory_bytes,
                                struct plan *ret_plan);
