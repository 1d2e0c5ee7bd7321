/*
 * Rows of the hopper family. Both 16-bit types have each of them; a K tile is 64 elements, the 128
 * bytes of TMA's swizzle. Shared memory of every row fits the 227 KiB of a 9.0.
 *
 * The list has a budget, so not every row has an output of 32 bits, nor an A that is transposed:
 * both are asked for less often. Every kind of product has some rows.
 */
#include "config_hopper.h"

#define TILE_K       64
#define SWIZZLE_SPAN 64 /* elements of 16 bits in a row of the swizzle */

#define HALF_RING (96u << 10) /* bytes; twice, with what else two CTAs have, they fit */

struct whole_row {
    uint32_t m, n, stages, warps_m, cluster_m, cluster_n;
    enum config_schedule schedule;
    bool has_trans_a, has_wide_output; /* of 32 bits */
    enum config_copy copy;
};

/* Tiles whose K is shared, by the CTAs of a cluster or by clusters, and narrow ones (is_swapped). A
 * is mostly as stored: what has few rows seldom comes transposed. Two CTAs
 * of those that realign find room: they wait longer for each K tile. */
struct split_row {
    uint32_t m, n, k, stages, warps_m, cluster_m, cluster_n, cluster_k;
    bool is_swapped, has_trans_a, has_wide_output;
    enum config_copy copy;
    enum config_schedule schedule;
};

/* Eight warps that load, each CTA by itself. */
struct direct_row {
    uint32_t m, n, k, stages, ctas_per_multiprocessor;
    enum config_schedule schedule;
    bool is_swapped, has_trans_a;
};

/* What the plan chooses from. A cluster keeps the large tiles off the roof of the L2: its two CTAs
 * copy half each of what both need. */
static const struct whole_row whole_rows[] = {
    {128, 256, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, true, CONFIG_COPY_TMA},
    {128, 224, 4, 8, 1, 2, CONFIG_SCHEDULE_COOP, true, false, CONFIG_COPY_TMA},
    {192, 128, 5, 12, 1, 2, CONFIG_SCHEDULE_COOP, false, false, CONFIG_COPY_TMA},
    {128, 192, 4, 8, 1, 1, CONFIG_SCHEDULE_COOP, false, false, CONFIG_COPY_TMA},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, true, CONFIG_COPY_TMA},
    {128, 176, 5, 8, 2, 1, CONFIG_SCHEDULE_PINGPONG, true, false, CONFIG_COPY_TMA},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_PINGPONG, false, false, CONFIG_COPY_TMA},
    {128, 112, 6, 8, 1, 2, CONFIG_SCHEDULE_PINGPONG, true, false, CONFIG_COPY_TMA},
    {128, 64, 8, 8, 2, 1, CONFIG_SCHEDULE_PINGPONG, false, false, CONFIG_COPY_TMA},
    {64, 128, 8, 4, 1, 1, CONFIG_SCHEDULE_COOP, false, false, CONFIG_COPY_TMA},
    {64, 64, 5, 4, 1, 1, CONFIG_SCHEDULE_COOP, true, true, CONFIG_COPY_TMA},
    /* rows that start anywhere */
    {128, 256, 4, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, false, CONFIG_COPY_REPACK},
    {128, 128, 6, 8, 2, 1, CONFIG_SCHEDULE_COOP, true, true, CONFIG_COPY_REPACK},
};

static const struct split_row split_rows[] = {
    {16, 64, 128, 10, 4, 1, 1, 1, true, false, true, CONFIG_COPY_TMA, CONFIG_SCHEDULE_SPLIT},
    {64, 64, 128, 6, 4, 1, 1, 1, true, false, true, CONFIG_COPY_TMA, CONFIG_SCHEDULE_SPLIT},
    {128, 112, 64, 6, 8, 1, 1, 1, false, false, false, CONFIG_COPY_TMA, CONFIG_SCHEDULE_SPLIT},
    {128, 128, 64, 5, 8, 1, 1, 2, false, false, false, CONFIG_COPY_TMA, CONFIG_SCHEDULE_SPLIT},
    {64, 128, 64, 9, 4, 2, 1, 1, false, true, false, CONFIG_COPY_TMA, CONFIG_SCHEDULE_PARTS},
    {128, 128, 64, 7, 8, 2, 1, 1, false, true, false, CONFIG_COPY_TMA, CONFIG_SCHEDULE_PARTS},
    /* rows that start anywhere, in two launches or in one */
    {16, 64, 128, 10, 4, 1, 1, 1, true, false, false, CONFIG_COPY_REPACK, CONFIG_SCHEDULE_SPLIT},
    {64, 64, 128, 6, 4, 1, 1, 1, true, false, false, CONFIG_COPY_REPACK, CONFIG_SCHEDULE_SPLIT},
    {16, 64, 128, 2, 4, 1, 1, 1, true, false, false, CONFIG_COPY_REALIGN, CONFIG_SCHEDULE_SPLIT},
    {64, 64, 64, 2, 4, 1, 1, 1, true, false, false, CONFIG_COPY_REALIGN, CONFIG_SCHEDULE_SPLIT},
};

/* Where rows start anywhere, and D has few columns or few rows, K is short, or D small. One CTA
 * that streams has all of a multiprocessor: what is on its way to it keeps memory busy. */
static const struct direct_row direct_rows[] = {
    {512, 64, 32, 4, 1, CONFIG_SCHEDULE_STREAM, false, false},
    {64, 512, 32, 4, 1, CONFIG_SCHEDULE_STREAM, true, false},
    {128, 112, 64, 1, 2, CONFIG_SCHEDULE_STRIP, false, true},
    {64, 248, 8, 1, 2, CONFIG_SCHEDULE_OUTER, false, false},
    {512, 24, 8, 1, 2, CONFIG_SCHEDULE_OUTER, false, false},
    {1, 1, 16, 1, 4, CONFIG_SCHEDULE_DOT, false, true},
};

/* The lower steps of the ladder, for bf16 as A[M,K] and B[N,K]: to be measured, never planned. */
static const struct whole_row ladder[] = {
    {128, 256, 1, 8, 1, 1, CONFIG_SCHEDULE_TILED, true, false, CONFIG_COPY_TMA},
    {128, 256, 1, 8, 1, 1, CONFIG_SCHEDULE_TMA, true, false, CONFIG_COPY_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_PIPELINED, true, false, CONFIG_COPY_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_PERSISTENT, true, false, CONFIG_COPY_TMA},
    {128, 256, 4, 8, 1, 1, CONFIG_SCHEDULE_COOP, true, false, CONFIG_COPY_TMA},
};

/* A row of one of the tables, or of the ladder. */
struct row {
    struct config_tile tile;
    bool has_wide_output, has_trans_a;
};

#define DIRECT_FIRST  (ARRAY_SIZE(whole_rows) + ARRAY_SIZE(split_rows))
#define PLANNED_COUNT (DIRECT_FIRST + ARRAY_SIZE(direct_rows))

/* Of one group, two fit into a multiprocessor when the ring is short. */
static uint32_t ctas_of(const struct whole_row *row)
{
    uint32_t ring = row->stages * (row->m + row->n) * TILE_K * 2;

    return row->warps_m == 4 && ring <= HALF_RING ? 2 : 1;
}

static struct row row_of_whole(const struct whole_row *from, enum dtype input)
{
    return (struct row){
        .tile =
            {
                .input = input,
                .copy = from->copy,
                .m = from->m,
                .n = from->n,
                .k = TILE_K,
                .stages = from->stages,
                .warps_m = from->warps_m,
                .warps_n = 1,
                .ctas_per_multiprocessor = ctas_of(from),
                .cluster_m = from->cluster_m,
                .cluster_n = from->cluster_n,
                .cluster_k = 1,
                .schedule = from->schedule,
            },
        .has_wide_output = from->has_wide_output,
        .has_trans_a = from->has_trans_a,
    };
}

static struct row row_of_split(const struct split_row *from, enum dtype input)
{
    return (struct row){
        .tile =
            {
                .input = input,
                .copy = from->copy,
                .m = from->m,
                .n = from->n,
                .k = from->k,
                .stages = from->stages,
                .warps_m = from->warps_m,
                .warps_n = 1,
                .ctas_per_multiprocessor = from->copy == CONFIG_COPY_REALIGN ? 2 : 1,
                .cluster_m = from->cluster_m,
                .cluster_n = from->cluster_n,
                .cluster_k = from->cluster_k,
                .schedule = from->schedule,
                .is_swapped = from->is_swapped,
            },
        .has_wide_output = from->has_wide_output,
        .has_trans_a = from->has_trans_a,
    };
}

static struct row row_of_direct(const struct direct_row *from, enum dtype input)
{
    return (struct row){
        .tile =
            {
                .input = input,
                .copy = CONFIG_COPY_ELEMENT,
                .m = from->m,
                .n = from->n,
                .k = from->k,
                .stages = from->stages,
                .warps_m = 8,
                .warps_n = 1,
                .ctas_per_multiprocessor = from->ctas_per_multiprocessor,
                .cluster_m = 1,
                .cluster_n = 1,
                .cluster_k = 1,
                .schedule = from->schedule,
                .is_swapped = from->is_swapped,
            },
        .has_trans_a = from->has_trans_a,
    };
}

static struct row planned_row(size_t index, enum dtype input)
{
    if (index < ARRAY_SIZE(whole_rows))
        return row_of_whole(&whole_rows[index], input);
    if (index < DIRECT_FIRST)
        return row_of_split(&split_rows[index - ARRAY_SIZE(whole_rows)], input);

    return row_of_direct(&direct_rows[index - DIRECT_FIRST], input);
}

static bool has_layout(const struct row *row, const struct config *kind)
{
    if (row->tile.schedule == CONFIG_SCHEDULE_STREAM && !kind->trans_b)
        return false;
    return !kind->trans_a || row->has_trans_a;
}

static bool row_has(const struct row *row, const struct config *kind)
{
    bool is_16_bits = kind->input == DTYPE_BF16 || kind->input == DTYPE_FP16;
    /* A tile whose rows run along N has whole blocks of them; other widths are for the layout of
     * layers alone. */
    bool fits_n = row->tile.n % SWIZZLE_SPAN == 0 || (kind->trans_b && !kind->trans_a) ||
                  row->tile.copy == CONFIG_COPY_ELEMENT;

    return is_16_bits && fits_n && (kind->output == kind->input || row->has_wide_output) &&
           has_layout(row, kind);
}

bool config_hopper_find(const struct config *config, struct config_tile *ret_tile)
{
    for (size_t i = 0; i < PLANNED_COUNT + ARRAY_SIZE(ladder); i++) {
        *ret_tile = i < PLANNED_COUNT
                        ? planned_row(i, config->input).tile
                        : row_of_whole(&ladder[i - PLANNED_COUNT], config->input).tile;
        if (config_tile_matches(ret_tile, config))
            return true;
    }
    return false;
}

static size_t list_row(const struct row *row, struct config *ret_configs)
{
    size_t count = 0;

    for (size_t i = 0; i < CONFIG_PAIRS_COUNT * 4; i++) {
        struct config kind = {
            .arch = HOPPER_ARCH,
            .input = config_pairs[i / 4].input,
            .output = config_pairs[i / 4].output,
            .trans_a = i & 2,
            .trans_b = i & 1,
        };

        if (kind.input == row->tile.input && row_has(row, &kind))
            ret_configs[count++] = config_of_tile(&kind, &row->tile);
    }
    return count;
}

size_t config_hopper_list(struct config *ret_configs)
{
    static const enum dtype inputs[] = {DTYPE_BF16, DTYPE_FP16};
    static const struct config stepped = {
        .arch = HOPPER_ARCH, .input = DTYPE_BF16, .output = DTYPE_BF16, .trans_b = true};
    size_t count = 0;

    for (size_t i = 0; i < PLANNED_COUNT * 2; i++) {
        struct row row = planned_row(i / 2, inputs[i % 2]);

        count += list_row(&row, ret_configs + count);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ladder); i++) {
        struct row row = row_of_whole(&ladder[i], stepped.input);

        ret_configs[count++] = config_of_tile(&stepped, &row.tile);
    }
    return count;
}

size_t config_hopper_planned(const struct config *kind, struct config *ret_configs)
{
    size_t count = 0;

    for (size_t i = 0; i < PLANNED_COUNT; i++) {
        struct row row = planned_row(i, kind->input);

        if (row_has(&row, kind))
            ret_configs[count++] = config_of_tile(kind, &row.tile);
    }
    return count;
}
