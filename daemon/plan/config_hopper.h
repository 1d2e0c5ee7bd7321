/*
 * The hopper family's rows (config_tile.c uses them, nobody else).
 */
#pragma once

#include "config_tile.h"

#define HOPPER_ARCH 90

/* The row of a hopper configuration; false when no row is its. */
bool config_hopper_find(const struct config *config, struct config_tile *ret_tile);
/* All of the family, for config_list(). Returns the count. */
size_t config_hopper_list(struct config *ret_configs);
/* What computes `kind` and is not of the ladder. Returns the count. */
size_t config_hopper_planned(const struct config *kind, struct config *ret_configs);
