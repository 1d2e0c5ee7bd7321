/*
 * A configuration is valid when its tile stands in the tables below for its family and input type.
 *
 * Shared memory of every portable row fits the smallest opt-in maximum of the known architectures,
 * 99 KiB (8.6, 8.9, 12.0), and rows that promise two CTAs fit twice into the 100 KiB of such a
 * multiprocessor (1 KiB of each CTA is the system's). Hopper rows fit the 227 KiB of a 9.0.
 */
#include "config_tile.h"

#define HOPPER_ARCH 90

/* The large tile of each pair first: config_list() keeps this order. ELEMENT rings have two slots
 * because their loads wait in registers, not in the ring. */
static const struct config_tile tiles[] = {
    {DTYPE_BF16, CONFIG_COPY_V16, 128, 256, 32, 4, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_BF16, CONFIG_COPY_V16, 64, 64, 64, 3, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_BF16, CONFIG_COPY_ELEMENT, 128, 128, 32, 2, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_BF16, CONFIG_COPY_ELEMENT, 64, 64, 32, 2, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_V16, 128, 256, 32, 4, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_V16, 64, 64, 64, 3, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_ELEMENT, 128, 128, 32, 2, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_ELEMENT, 64, 64, 32, 2, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP32, CONFIG_COPY_V16, 128, 128, 16, 3, 4, 2, 1, 1, 1, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP32, CONFIG_COPY_V16, 64, 64, 32, 3, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP32, CONFIG_COPY_ELEMENT, 128, 128, 16, 2, 4, 2, 1, 1, 1, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP32, CONFIG_COPY_ELEMENT, 64, 64, 16, 2, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP64, CONFIG_COPY_V16, 128, 128, 16, 3, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP64, CONFIG_COPY_V16, 64, 64, 16, 3, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP64, CONFIG_COPY_ELEMENT, 128, 64, 16, 2, 2, 2, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP64, CONFIG_COPY_ELEMENT, 64, 64, 16, 2, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_V16, 128, 128, 64, 4, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_V16, 64, 64, 128, 3, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_ELEMENT, 128, 128, 64, 2, 2, 4, 1, 1, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_ELEMENT, 64, 64, 64, 2, 2, 2, 2, 1, 1, CONFIG_SCHEDULE_MMA},
};

/* Both 16-bit types have these rows; a K tile is 64 elements, the 128 bytes of TMA's swizzle. */
struct hopper_row {
    uint32_t m, n, stages, warps_m, cluster_m, cluster_n;
    enum config_schedule schedule;
};

/* What the plan chooses from. A cluster keeps the large tiles off the roof of the L2: its two CTAs
 * copy half each of what both need. */
static const struct hopper_row hopper_rows[] = {
    {128, 256, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP},     {256, 128, 4, 8, 1, 2, CONFIG_SCHEDULE_COOP},
    {128, 192, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP},     {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_COOP},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_PINGPONG}, {64, 128, 8, 4, 1, 1, CONFIG_SCHEDULE_COOP},
    {64, 64, 8, 4, 1, 1, CONFIG_SCHEDULE_COOP},
};

/* The lower steps of the ladder, for bf16: to be measured, never planned. */
static const struct hopper_row ladder_rows[] = {
    {128, 256, 1, 8, 1, 1, CONFIG_SCHEDULE_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_PIPELINED},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_PERSISTENT},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_COOP},
};

const struct config_pair config_pairs[CONFIG_PAIRS_COUNT] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

static bool tile_matches(const struct config_tile *tile, const struct config *config)
{
    return tile->input == config->input && tile->copy == config->copy &&
           tile->m == config->tile_m && tile->n == config->tile_n && tile->k == config->tile_k &&
           tile->stages == config->stages && tile->cluster_m == config->cluster_m &&
           tile->cluster_n == config->cluster_n && tile->schedule == config->schedule;
}

static struct config_tile hopper_tile(const struct hopper_row *row, enum dtype input)
{
    return (struct config_tile){
        .input = input,
        .copy = CONFIG_COPY_TMA,
        .m = row->m,
        .n = row->n,
        .k = 64,
        .stages = row->stages,
        .warps_m = row->warps_m,
        .warps_n = 1,
        .ctas_per_multiprocessor = 1,
        .cluster_m = row->cluster_m,
        .cluster_n = row->cluster_n,
        .schedule = row->schedule,
    };
}

static bool hopper_tile_find(const struct hopper_row *rows,
                             size_t count,
                             const struct config *config,
                             struct config_tile *ret_tile)
{
    for (size_t i = 0; i < count; i++) {
        *ret_tile = hopper_tile(&rows[i], config->input);
        if (tile_matches(ret_tile, config))
            return true;
    }
    return false;
}

bool config_tile_find(const struct config *config, struct config_tile *ret_tile)
{
    if (config->family == CONFIG_HOPPER)
        return hopper_tile_find(hopper_rows, ARRAY_SIZE(hopper_rows), config, ret_tile) ||
               hopper_tile_find(ladder_rows, ARRAY_SIZE(ladder_rows), config, ret_tile);
    for (size_t i = 0; i < ARRAY_SIZE(tiles); i++) {
        *ret_tile = tiles[i];
        if (tile_matches(ret_tile, config))
            return true;
    }
    return false;
}

static struct config
config_of_tile(uint32_t arch, const struct config_tile *tile, enum dtype output)
{
    return (struct config){
        .family = tile->copy == CONFIG_COPY_TMA ? CONFIG_HOPPER : CONFIG_PORTABLE,
        .arch = arch,
        .input = tile->input,
        .output = output,
        .tile_m = tile->m,
        .tile_n = tile->n,
        .tile_k = tile->k,
        .stages = tile->stages,
        .cluster_m = tile->cluster_m,
        .cluster_n = tile->cluster_n,
        .schedule = tile->schedule,
        .copy = tile->copy,
    };
}

static size_t list_layouts(struct config base, struct config *ret_configs)
{
    for (size_t i = 0; i < 4; i++) {
        ret_configs[i] = base;
        ret_configs[i].trans_a = i & 2;
        ret_configs[i].trans_b = i & 1;
    }
    return 4;
}

/* All pairs and layouts of one row. */
static size_t list_tile(uint32_t arch, const struct config_tile *tile, struct config *ret_configs)
{
    size_t count = 0;

    for (size_t p = 0; p < CONFIG_PAIRS_COUNT; p++)
        if (config_pairs[p].input == tile->input)
            count += list_layouts(config_of_tile(arch, tile, config_pairs[p].output),
                                  ret_configs + count);
    return count;
}

static size_t list_hopper(struct config *ret_configs)
{
    static const enum dtype inputs[] = {DTYPE_BF16, DTYPE_FP16};

    size_t count = 0;

    for (size_t t = 0; t < ARRAY_SIZE(hopper_rows) * ARRAY_SIZE(inputs); t++) {
        struct config_tile tile = hopper_tile(&hopper_rows[t / 2], inputs[t % 2]);

        count += list_tile(HOPPER_ARCH, &tile, ret_configs + count);
    }
    for (size_t t = 0; t < ARRAY_SIZE(ladder_rows); t++) {
        struct config_tile tile = hopper_tile(&ladder_rows[t], DTYPE_BF16);

        count += list_layouts(config_of_tile(HOPPER_ARCH, &tile, DTYPE_BF16), ret_configs + count);
    }
    return count;
}

static bool pair_exists(enum dtype input, enum dtype output)
{
    for (size_t p = 0; p < CONFIG_PAIRS_COUNT; p++)
        if (config_pairs[p].input == input && config_pairs[p].output == output)
            return true;
    return false;
}

static struct config planned(const struct config *kind, const struct config_tile *tile)
{
    struct config config = config_of_tile(kind->arch, tile, kind->output);

    config.trans_a = kind->trans_a;
    config.trans_b = kind->trans_b;
    return config;
}

size_t config_tiles_planned(const struct config *kind,
                            struct config ret_configs[CONFIG_PLANNED_MAX])
{
    bool is_16_bits = kind->input == DTYPE_BF16 || kind->input == DTYPE_FP16;
    size_t count = 0;

    if (!pair_exists(kind->input, kind->output))
        return 0;
    for (size_t t = 0; t < ARRAY_SIZE(tiles); t++)
        if (tiles[t].input == kind->input)
            ret_configs[count++] = planned(kind, &tiles[t]);
    for (size_t t = 0; t < ARRAY_SIZE(hopper_rows) && kind->arch == HOPPER_ARCH && is_16_bits;
         t++) {
        struct config_tile tile = hopper_tile(&hopper_rows[t], kind->input);

        ret_configs[count++] = planned(kind, &tile);
    }
    assert(count <= CONFIG_PLANNED_MAX);
    return count;
}

size_t config_tiles_list(uint32_t arch, struct config ret_configs[CONFIG_LIST_MAX])
{
    size_t count = 0;

    for (size_t t = 0; t < ARRAY_SIZE(tiles); t++)
        count += list_tile(arch, &tiles[t], ret_configs + count);
    if (arch == HOPPER_ARCH)
        count += list_hopper(ret_configs + count);
    assert(count <= CONFIG_LIST_MAX);
    return count;
}
