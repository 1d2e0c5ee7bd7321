/*
 * What the front tells a worker with a cubin, for those who load kernels without a front.
 */
#pragma once

#include "../../daemon/link/link_message.h"
#include "../../daemon/plan/config.h"

#include <stdio.h>

_Static_assert((int)CONFIG_BOX_COUNT == LINK_BOXES, "a box for each operand");

static inline struct link_message
load_request(const struct config *config, uint64_t id, uint64_t cubin_size)
{
    struct link_message request = {
        .kind = LINK_LOAD,
        .id = id,
        .size = cubin_size,
        .tile_m = config->tile_m,
        .tile_n = config->tile_n,
        .cluster_m = config->cluster_m,
        .cluster_n = config->cluster_n,
        .cluster_k = config->cluster_k,
    };
    char text[CONFIG_TEXT_MAX];
    struct config_resources resources;

    config_resources(config, &resources);
    config_to_text(config, text);
    request.threads = resources.threads;
    request.shared_memory = resources.shared_memory;
    request.ctas_per_multiprocessor = resources.ctas_per_multiprocessor;
    request.has_cta_per_tile = !resources.is_persistent;
    request.begins_early = resources.begins_early;
    request.repacks = resources.repacks;
    request.leaves_parts = resources.leaves_parts;
    for (int i = 0; i < LINK_BOXES; i++)
        request.box[i] = (struct link_box){resources.box[i].columns, resources.box[i].rows};
    (void)snprintf(request.configuration, sizeof(request.configuration), "%s", text);
    (void)snprintf(request.entry, sizeof(request.entry), "%s", config_entry(config));
    return request;
}
