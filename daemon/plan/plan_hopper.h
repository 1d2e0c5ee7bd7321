/*
 * The hopper family's part of the plan (plan.c uses it, nobody else).
 */
#pragma once

#include "plan.h"

/* Whether tensor copies can move every operand of a problem whose rows start on 16 bytes: sizes
 * that a tensor map can hold, and a number of tiles that the kernels count in 32 bits. */
bool plan_hopper_can(const struct problem *problem);
/* No C, bias or activation, and rows of D end with whole chunks of 16 bytes: what every kernel does
 * after the sums. */
bool plan_hopper_is_plain(const struct problem *problem);
/* Whether a hopper kernel can do what comes after the sums. Of kernels with tensor
 * copies (TMA) split ones have C and rows that end anywhere, too; those whose threads load or store
 * (REPACK, REALIGN) do all. */
bool plan_hopper_finishes(const struct problem *problem, const struct config *config);
/* Whether the workspace has room for what this configuration leaves of the sums. */
bool plan_hopper_fits(const struct problem *problem, const struct config *config);
/* Predicted times of `problem` with a hopper configuration: fills everything but the reason. */
void plan_hopper_predict(const struct problem *problem,
                         const struct config *config,
                         const struct plan_device *device,
                         struct plan *ret_plan);
/* What a launch that copies so many bytes of inputs first takes, of a configuration that has one.
 */
double plan_hopper_repack(const struct config *config, double bytes, double hbm_rate);
/* What `rounds` of tiles take, each `tile` by itself and `powered` where power slows all down that
 * multiply: rounds in which every walker has a tile are so slow, a last one with few of them is as
 * fast as the tile. */
double plan_hopper_rounds(double rounds, double tile, double powered);
/* What the device says, or an H200 under load: of its clock, Hz, and of its memory, bytes a second.
 */
double plan_hopper_clock(const struct plan_device *device);
double plan_hopper_memory_rate(const struct plan_device *device);
/* Two bounds of one time that are near each other both cost something: their norm of this order. */
double plan_hopper_norm(double a, double b, double order);
/* Of the wait for first copies, the part of a launch in a row whose grids run beside each other, as
 * many as find places. One that begins with a launch that repacks is alone. */
double plan_hopper_wait_share(const struct config *config, double units, double places);
/* Of a launch in a row: its wait runs beside the work of those before it, the more the less of both
 * there is. */
double plan_hopper_in_a_row(double work, double wait);
