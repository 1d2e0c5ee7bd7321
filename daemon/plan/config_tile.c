/*
 * A configuration is valid when its tile stands in the table below, or in config_hopper.c, for its
 * family and input type.
 *
 * Shared memory of every portable row fits the smallest opt-in maximum of the known architectures,
 * 99 KiB (8.6, 8.9, 12.0), and rows that promise two CTAs fit twice into the 100 KiB of such a
 * multiprocessor (1 KiB of each CTA is the system's).
 */
#include "config_tile.h"
#include "config_hopper.h"

struct portable_row {
    enum dtype input;
    enum config_copy copy;
    uint32_t m, n, k, stages, warps_m, warps_n, ctas_per_multiprocessor;
    enum config_schedule schedule;
};

/* The large tile of each pair first: config_list() keeps this order. ELEMENT rings have two slots
 * because their loads wait in registers, not in the ring. */
static const struct portable_row rows[] = {
    {DTYPE_BF16, CONFIG_COPY_V16, 128, 256, 32, 4, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_BF16, CONFIG_COPY_V16, 64, 64, 64, 3, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_BF16, CONFIG_COPY_ELEMENT, 128, 128, 32, 2, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_BF16, CONFIG_COPY_ELEMENT, 64, 64, 32, 2, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_V16, 128, 256, 32, 4, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_V16, 64, 64, 64, 3, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_ELEMENT, 128, 128, 32, 2, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP16, CONFIG_COPY_ELEMENT, 64, 64, 32, 2, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP32, CONFIG_COPY_V16, 128, 128, 16, 3, 4, 2, 1, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP32, CONFIG_COPY_V16, 64, 64, 32, 3, 2, 2, 2, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP32, CONFIG_COPY_ELEMENT, 128, 128, 16, 2, 4, 2, 1, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP32, CONFIG_COPY_ELEMENT, 64, 64, 16, 2, 2, 2, 2, CONFIG_SCHEDULE_SIMT},
    {DTYPE_FP64, CONFIG_COPY_V16, 128, 128, 16, 3, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP64, CONFIG_COPY_V16, 64, 64, 16, 3, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP64, CONFIG_COPY_ELEMENT, 128, 64, 16, 2, 2, 2, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_FP64, CONFIG_COPY_ELEMENT, 64, 64, 16, 2, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_V16, 128, 128, 64, 4, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_V16, 64, 64, 128, 3, 2, 2, 2, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_ELEMENT, 128, 128, 64, 2, 2, 4, 1, CONFIG_SCHEDULE_MMA},
    {DTYPE_INT8, CONFIG_COPY_ELEMENT, 64, 64, 64, 2, 2, 2, 2, CONFIG_SCHEDULE_MMA},
};

const struct config_pair config_pairs[CONFIG_PAIRS_COUNT] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

static struct config_tile tile_of(const struct portable_row *row)
{
    return (struct config_tile){
        .input = row->input,
        .copy = row->copy,
        .m = row->m,
        .n = row->n,
        .k = row->k,
        .stages = row->stages,
        .warps_m = row->warps_m,
        .warps_n = row->warps_n,
        .ctas_per_multiprocessor = row->ctas_per_multiprocessor,
        .cluster_m = 1,
        .cluster_n = 1,
        .cluster_k = 1,
        .schedule = row->schedule,
    };
}

bool config_tile_matches(const struct config_tile *tile, const struct config *config)
{
    return tile->input == config->input && tile->copy == config->copy &&
           tile->m == config->tile_m && tile->n == config->tile_n && tile->k == config->tile_k &&
           tile->stages == config->stages && tile->cluster_m == config->cluster_m &&
           tile->cluster_n == config->cluster_n && tile->cluster_k == config->cluster_k &&
           tile->is_swapped == config->is_swapped && tile->schedule == config->schedule;
}

/* What tensor copies and wgmma can compute, they compute: no mma.sync for aligned rows there, and
 * for others one tile, for sizes that neither they nor the kernels beside them can count. */
static bool is_listed(const struct portable_row *row, uint32_t arch)
{
    bool is_16_bits = row->input == DTYPE_BF16 || row->input == DTYPE_FP16;

    return arch != HOPPER_ARCH || !is_16_bits ||
           (row->copy == CONFIG_COPY_ELEMENT && row->m == 128);
}

bool config_tile_find(const struct config *config, struct config_tile *ret_tile)
{
    if (config->family == CONFIG_HOPPER)
        return config_hopper_find(config, ret_tile);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        *ret_tile = tile_of(&rows[i]);
        if (config_tile_matches(ret_tile, config))
            return true;
    }
    return false;
}

struct config config_of_tile(const struct config *kind, const struct config_tile *tile)
{
    return (struct config){
        .family = tile->schedule >= CONFIG_SCHEDULE_TILED ? CONFIG_HOPPER : CONFIG_PORTABLE,
        .arch = kind->arch,
        .input = tile->input,
        .output = kind->output,
        .trans_a = kind->trans_a,
        .trans_b = kind->trans_b,
        .tile_m = tile->m,
        .tile_n = tile->n,
        .tile_k = tile->k,
        .stages = tile->stages,
        .cluster_m = tile->cluster_m,
        .cluster_n = tile->cluster_n,
        .cluster_k = tile->cluster_k,
        .is_swapped = tile->is_swapped,
        .schedule = tile->schedule,
        .copy = tile->copy,
    };
}

/* All pairs and layouts of one row. */
static size_t list_row(uint32_t arch, const struct portable_row *row, struct config *ret_configs)
{
    struct config_tile tile = tile_of(row);
    size_t count = 0;

    for (size_t i = 0; i < CONFIG_PAIRS_COUNT * 4; i++) {
        struct config kind = {
            .arch = arch,
            .output = config_pairs[i / 4].output,
            .trans_a = i & 2,
            .trans_b = i & 1,
        };

        if (config_pairs[i / 4].input == row->input)
            ret_configs[count++] = config_of_tile(&kind, &tile);
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

size_t config_tiles_planned(const struct config *kind,
                            struct config ret_configs[CONFIG_PLANNED_MAX])
{
    size_t count = 0;

    if (!pair_exists(kind->input, kind->output))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct config_tile tile = tile_of(&rows[i]);

        if (rows[i].input == kind->input && is_listed(&rows[i], kind->arch))
            ret_configs[count++] = config_of_tile(kind, &tile);
    }
    if (kind->arch == HOPPER_ARCH)
        count += config_hopper_planned(kind, ret_configs + count);
    assert(count <= CONFIG_PLANNED_MAX);
    return count;
}

size_t config_tiles_list(uint32_t arch, struct config ret_configs[CONFIG_LIST_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (is_listed(&rows[i], arch))
            count += list_row(arch, &rows[i], ret_configs + count);
    if (arch == HOPPER_ARCH)
        count += config_hopper_list(ret_configs + count);
    assert(count <= CONFIG_LIST_MAX);
    return count;
}
