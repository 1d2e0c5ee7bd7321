#include "ladder_steps.h"

#define FLOP_PER_CLOCK 4096 /* of a multiprocessor's tensor cores, 16-bit inputs, sm_90 */

struct wanted {
    const char *name;
    enum config_schedule schedule;
    uint32_t cluster;
};

static const struct wanted wanted[LADDER_STEPS] = {
    {"tiled", CONFIG_SCHEDULE_TILED, 1},
    {"tma", CONFIG_SCHEDULE_TMA, 1},
    {"pipelined", CONFIG_SCHEDULE_PIPELINED, 1},
    {"persistent", CONFIG_SCHEDULE_PERSISTENT, 1},
    {"specialized, coop", CONFIG_SCHEDULE_COOP, 1},
    {"specialized, ping-pong", CONFIG_SCHEDULE_PINGPONG, 2}, /* only with a cluster */
    {"clustered", CONFIG_SCHEDULE_COOP, 2},
};

static bool is_step(const struct wanted *step, const struct config *config)
{
    return config->family == CONFIG_HOPPER && config->input == DTYPE_BF16 &&
           config->output == DTYPE_BF16 && !config->trans_a && config->trans_b &&
           config->copy == CONFIG_COPY_TMA && config->schedule == step->schedule &&
           config_cluster(config) == step->cluster && !config_is_split(config);
}

/* The largest tile; of equal ones the first, which the list has for most products. */
static bool
find(const struct wanted *step, const struct config *list, size_t count, struct config *ret_config)
{
    uint32_t best = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t area = list[i].tile_m * list[i].tile_n;

        if (!is_step(step, &list[i]) || area <= best)
            continue;
        best = area;
        *ret_config = list[i];
    }
    return best > 0;
}

bool ladder_steps(struct ladder_step ret_steps[LADDER_STEPS])
{
    static struct config list[CONFIG_LIST_MAX];
    size_t count = config_list(90, list);

    for (size_t i = 0; i < LADDER_STEPS; i++) {
        ret_steps[i].name = wanted[i].name;
        if (!find(&wanted[i], list, count, &ret_steps[i].config))
            return false;
    }
    return true;
}

struct stamps_launch
ladder_launch(const struct config *config, int64_t k, uint32_t ctas, uint32_t multiprocessors)
{
    bool is_pingpong = config->schedule == CONFIG_SCHEDULE_PINGPONG;

    return (struct stamps_launch){
        .ctas = ctas,
        .multiprocessors = multiprocessors,
        .groups = 2,
        .is_pingpong = is_pingpong,
        .loads_in_passing = config->schedule < CONFIG_SCHEDULE_COOP,
        .products_behind = config->schedule >= CONFIG_SCHEDULE_COOP && config->stages > 1,
        .stages = config->stages,
        .slot_bytes = (config->tile_m + config->tile_n) * config->tile_k * 2,
        .k_tiles = (uint32_t)((k + config->tile_k - 1) / config->tile_k),
        .k_tile_clocks = 2 * config->tile_m * config->tile_n * config->tile_k / FLOP_PER_CLOCK,
    };
}
