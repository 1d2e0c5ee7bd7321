/*
 * The portable family's part of the plan (plan.c uses it, nobody else).
 */
#pragma once

#include "plan.h"

/* Predicted times of `problem` with a portable configuration: fills everything but the reason. */
void plan_portable_predict(const struct problem *problem,
                           const struct config *config,
                           const struct plan_device *device,
                           struct plan *ret_plan);
