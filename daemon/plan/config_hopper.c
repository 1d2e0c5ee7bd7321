/*
 * Rows of the hopper family. Both 16-bit types have each of them; a K tile is 64 elements, the 128
 * bytes of TMA's swizzle. Shared memory of every row fits the 227 KiB of a 9.0.
 *
 * Every row has all four layouts, but not every row an output of 32 bits: that is asked for less
 * often, and the list has a budget. Every kind of product has some rows.
 */
#include "config_hopper.h"

#define TILE_K 64

struct hopper_row {
    uint32_t m, n, stages, warps_m, cluster_m, cluster_n;
    enum config_schedule schedule;
    bool has_wide_output; /* of 32 bits */
    enum config_copy copy;
};

/* What the plan chooses from. A cluster keeps the large tiles off the roof of the L2: its two CTAs
 * copy half each of what both need. */
static const struct hopper_row rows[] = {
    {128, 256, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, CONFIG_COPY_TMA},
    {256, 128, 4, 8, 1, 2, CONFIG_SCHEDULE_COOP, false, CONFIG_COPY_TMA},
    {128, 192, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP, false, CONFIG_COPY_TMA},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, CONFIG_COPY_TMA},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_PINGPONG, false, CONFIG_COPY_TMA},
    {64, 128, 8, 4, 1, 1, CONFIG_SCHEDULE_COOP, false, CONFIG_COPY_TMA},
    {64, 64, 8, 4, 1, 1, CONFIG_SCHEDULE_COOP, true, CONFIG_COPY_TMA},
    /* rows that start anywhere; those that realign for few uses of each input */
    {128, 256, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP, false, CONFIG_COPY_REPACK},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, CONFIG_COPY_REPACK},
    {64, 64, 8, 4, 1, 1, CONFIG_SCHEDULE_COOP, false, CONFIG_COPY_REALIGN},
};

/* The lower steps of the ladder, for bf16 as A[M,K] and B[N,K]: to be measured, never planned. */
static const struct hopper_row ladder[] = {
    {128, 256, 1, 8, 1, 1, CONFIG_SCHEDULE_TILED, false, CONFIG_COPY_TMA},
    {128, 256, 1, 8, 1, 1, CONFIG_SCHEDULE_TMA, false, CONFIG_COPY_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_PIPELINED, false, CONFIG_COPY_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_PERSISTENT, false, CONFIG_COPY_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_COOP, false, CONFIG_COPY_TMA},
};

static struct config_tile tile_of(const struct hopper_row *row, enum dtype input)
{
    return (struct config_tile){
        .input = input,
        .copy = row->copy,
        .m = row->m,
        .n = row->n,
        .k = TILE_K,
        .stages = row->stages,
        .warps_m = row->warps_m,
        .warps_n = 1,
        .ctas_per_multiprocessor = 1,
        .cluster_m = row->cluster_m,
        .cluster_n = row->cluster_n,
        .cluster_k = 1,
        .schedule = row->schedule,
    };
}

static bool row_has(const struct hopper_row *row, const struct config *kind)
{
    bool is_16_bits = kind->input == DTYPE_BF16 || kind->input == DTYPE_FP16;

    return is_16_bits && (kind->output == kind->input || row->has_wide_output);
}

static bool find_in(const struct hopper_row *table,
                    size_t count,
                    const struct config *config,
                    struct config_tile *ret_tile)
{
    for (size_t i = 0; i < count; i++) {
        *ret_tile = tile_of(&table[i], config->input);
        if (config_tile_matches(ret_tile, config))
            return true;
    }
    return false;
}

bool config_hopper_find(const struct config *config, struct config_tile *ret_tile)
{
    return find_in(rows, ARRAY_SIZE(rows), config, ret_tile) ||
           find_in(ladder, ARRAY_SIZE(ladder), config, ret_tile);
}

static size_t list_row(const struct hopper_row *row, enum dtype input, struct config *ret_configs)
{
    struct config_tile tile = tile_of(row, input);
    size_t count = 0;

    for (size_t i = 0; i < CONFIG_PAIRS_COUNT * 4; i++) {
        struct config kind = {
            .arch = HOPPER_ARCH,
            .input = config_pairs[i / 4].input,
            .output = config_pairs[i / 4].output,
            .trans_a = i & 2,
            .trans_b = i & 1,
        };

        if (kind.input == input && row_has(row, &kind))
            ret_configs[count++] = config_of_tile(&kind, &tile);
    }
    return count;
}

size_t config_hopper_list(struct config *ret_configs)
{
    static const struct config stepped = {
        .arch = HOPPER_ARCH, .input = DTYPE_BF16, .output = DTYPE_BF16, .trans_b = true};
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        count += list_row(&rows[i], DTYPE_BF16, ret_configs + count);
        count += list_row(&rows[i], DTYPE_FP16, ret_configs + count);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ladder); i++) {
        struct config_tile tile = tile_of(&ladder[i], stepped.input);

        ret_configs[count++] = config_of_tile(&stepped, &tile);
    }
    return count;
}

size_t config_hopper_planned(const struct config *kind, struct config *ret_configs)
{
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct config_tile tile = tile_of(&rows[i], kind->input);

        if (row_has(&rows[i], kind))
            ret_configs[count++] = config_of_tile(kind, &tile);
    }
    return count;
}
