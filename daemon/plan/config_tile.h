/*
 * The tables of tiles this version knows (config.c uses them, nobody else): the rows from which
 * configurations are made.
 */
#pragma once

#include "config.h"

struct config_tile {
    enum dtype input;
    enum config_copy copy;
    uint32_t m, n, k, stages;
    uint32_t warps_m, warps_n; /* that multiply */
    uint32_t ctas_per_multiprocessor;
    uint32_t cluster_m, cluster_n, cluster_k;
    enum config_schedule schedule;
    bool is_swapped;
};

struct config_pair {
    enum dtype input, output;
};

#define CONFIG_PAIRS_COUNT 7

extern const struct config_pair config_pairs[CONFIG_PAIRS_COUNT];

/* Whether `config` has this row's tile; the layout and the output type are not the row's. */
bool config_tile_matches(const struct config_tile *tile, const struct config *config);
/* The configuration of a row for `kind`'s architecture, output and transpositions. */
struct config config_of_tile(const struct config *kind, const struct config_tile *tile);
/* The row of a configuration that has a kernel; false when no row is its. */
bool config_tile_find(const struct config *config, struct config_tile *ret_tile);
/* config_list() and config_list_planned() for an architecture that is known. */
size_t config_tiles_list(uint32_t arch, struct config ret_configs[CONFIG_LIST_MAX]);
size_t config_tiles_planned(const struct config *kind,
                            struct config ret_configs[CONFIG_PLANNED_MAX]);
