/*
 * Workspaces of split jobs: counters that begin and must end as zeros, partial tiles that begin as
 * NaN. One for each job of a feed.
 */
#pragma once

#include "../../daemon/plan/config.h"
#include "../../kernels_src/abi/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACES 2

struct workspaces {
    size_t bytes; /* of one */
    char *data;
};

static inline void workspaces_init(struct workspaces *workspaces,
                                   const struct config *config,
                                   uint64_t units,
                                   uint32_t splits)
{
    uint64_t tiles = units * config->cluster_m * config->cluster_n;
    uint64_t tile = (uint64_t)config->tile_m * config->tile_n * sizeof(float);

    workspaces->bytes = GEMMD_SPLIT_COUNTERS * sizeof(gemmd_u32) + tiles * MAX(splits, 1u) * tile;
    workspaces->data = malloc(workspaces->bytes * WORKSPACES);
    memset(workspaces->data, 0xff, workspaces->bytes * WORKSPACES);
    for (int i = 0; i < WORKSPACES; i++)
        memset(workspaces->data + (size_t)i * workspaces->bytes, 0,
               GEMMD_SPLIT_COUNTERS * sizeof(gemmd_u32));
}

static inline void workspaces_deinit(struct workspaces *workspaces)
{
    free(workspaces->data);
}

static inline uint64_t workspaces_address(const struct workspaces *workspaces, int number)
{
    return (uintptr_t)workspaces->data + (size_t)number * workspaces->bytes;
}

static inline bool workspaces_check(const struct workspaces *workspaces)
{
    for (int i = 0; i < WORKSPACES; i++) {
        const gemmd_u32 *counters =
            (const void *)(workspaces->data + (size_t)i * workspaces->bytes);

        for (int c = 0; c < GEMMD_SPLIT_COUNTERS; c++)
            if (counters[c] != 0) {
                printf("  counter %d is left at %u\n", c, counters[c]);
                return false;
            }
    }
    return true;
}
