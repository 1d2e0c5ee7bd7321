/*
 * The part of the hopper family whose threads load, and use no wgmma (plan.c and plan_hopper.c use
 * it).
 */
#pragma once

#include "plan.h"

/* Whether its kernels can count the product's elements and K, in 32 bits. */
bool plan_hopper_direct_can(const struct problem *problem);
/* Predicted times of `problem` with such a configuration: fills everything but the reason.
 * `memory_bytes`: what the product moves at least. */
void plan_hopper_direct_predict(const struct problem *problem,
                                const struct config *config,
                                const struct plan_device *device,
                                double memory_bytes,
                                struct plan *ret_plan);
