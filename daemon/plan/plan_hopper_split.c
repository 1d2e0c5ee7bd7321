/*
 * Cost model of split configurations, after measurements on an H200.
 *
 * A CTA's time is that of its K tiles, then of its epilogues: the exchange in the cluster, and what
 * the last of a tile's splits reads back. A K tile takes what one multiprocessor can read, or what
 * its products take, and at least the latency of a turn of the loop. HBM and the L2 bound the
 * whole. As with other tiles, what a launch waits for runs beside the work of those before it, and
 * grids that find places at once each have a part of the wait; not those that share a workspace.
 *
 * For a given number of splits every term grows with M, N and K, so the prediction does.
 */
#include "plan_hopper_split.h"
#include "plan_hopper.h"

#include <math.h>

#define FLOP_PER_CLOCK   4096.0 /* of a multiprocessor */
#define READ_BYTES_CLOCK 54.0   /* of a multiprocessor, when few of them load */
#define L2_BYTES_CLOCK   43.3   /* and when all do */
#define TURN_CLOCKS      350.0  /* of the loop over K tiles */
#define NARROW_CLOCKS    600.0  /* of the same in the narrowest tiles that repack, as measured */
#define NORM             3.0    /* of two bounds of one time */
#define LAUNCH_SECONDS   0.7e-6
#define FILL_CLOCKS      2200.0 /* the first K tile, the last store */
#define PAIR_CLOCKS      352.0  /* of the epilogue, for 16 x 16 elements of each warp */
#define MEET_CLOCKS      1800.0 /* in the cluster: to start it, to offer, to wait, to read */
#define PEER_CLOCKS      600.0  /* of that for each CTA along K */
#define MEET_BYTES_CLOCK 85.0   /* of others' shared memory */
#define COUNT_CLOCKS     2000.0 /* between clusters: to wait, to read */
#define BACK_BYTES_CLOCK 25.0   /* of the workspace, by who adds */
#define HBM_EFFICIENCY   0.97
#define SPLITS_TRIED     64

/* What a cluster computes. */
static double units_of(const struct problem *problem, const struct config *config)
{
    return ceil((double)problem->m / (config->tile_m * config->cluster_m)) *
           ceil((double)problem->n / (config->tile_n * config->cluster_n)) * (double)problem->batch;
}

uint32_t plan_splits_max(const struct problem *problem, const struct config *config)
{
    double tiles = units_of(problem, config) * config->cluster_m * config->cluster_n;
    double counters = tiles * config->cluster_k * PLAN_SPLIT_WARPS;
    double tile = (double)config->tile_m * config->tile_n * sizeof(float);
    double room = PLAN_SPLIT_WORKSPACE - PLAN_SPLIT_COUNTERS * sizeof(uint32_t);

    if (config_leaves_parts(config))
        return (uint32_t)fmin(room / (tiles * tile), UINT32_MAX);
    if (!config_is_split(config) || counters > PLAN_SPLIT_COUNTERS)
        return 1;
    return (uint32_t)fmax(floor(room / (tiles * tile)), 1);
}

/* Clusters that run at once. More than two CTAs find a place only within a part of the device (a
 * GPC), and leave some multiprocessors out. */
static double clusters_at_once(const struct config *config,
                               const struct config_resources *resources,
                               const struct plan_device *device)
{
    double ctas = MAX(device->multiprocessors, 1u) * resources->ctas_per_multiprocessor;

    if (config_cluster(config) > 2)
        ctas *= 0.86;
    return fmax(floor(ctas / config_cluster(config)), 1);
}

/* Along M and N: what a CTA reads of the operands, its part of what the cluster shares, and nothing
 * that is not there. */
static double span_of(const struct problem *problem, const struct config *config)
{
    double rows = fmin(config->tile_m, (double)problem->m);
    double columns = fmin(config->tile_n, (double)problem->n);

    return rows / config->cluster_n + columns / config->cluster_m;
}

/* Of warps that multiply. */
static int groups_of(const struct config *config)
{
    return (config->is_swapped ? config->tile_n : config->tile_m) >= 128 ? 2 : 1;
}

/* Share of the tensor cores' rate that the loop reaches. One group of warps leaves gaps between its
 * products, two fill each other's; a larger tile reads less shared memory for a product. */
static double product_share(const struct config *config)
{
    if (config->tile_m * config->tile_n >= 128 * 192)
        return 0.94;
    return groups_of(config) == 2 ? 0.94 : 0.62;
}

/* Share of that rate which the device has power for, all of it busy. */
static double power_share(const struct config *config)
{
    return config->tile_m * config->tile_n >= 128 * 192 ? 0.60 : 0.57;
}

static double k_tile_clocks(const struct problem *problem, const struct config *config)
{
    double bytes = span_of(problem, config) * config->tile_k * (double)dtype_size(problem->input);
    double product = 2.0 * config->tile_m * config->tile_n * config->tile_k;
    double turn = config->copy == CONFIG_COPY_REPACK && MIN(config->tile_m, config->tile_n) < 64
                      ? NARROW_CLOCKS
                      : TURN_CLOCKS;

    return fmax(turn,
                fmax(bytes / READ_BYTES_CLOCK, product / (FLOP_PER_CLOCK * product_share(config))));
}

/* Of a tile's way out, with what its warps have of it. */
static double way_out_clocks(const struct problem *problem, const struct config *config)
{
    double share = (double)config->tile_m * config->tile_n / config->cluster_k;
    double pairs = fmax(share / (16 * 16) / (groups_of(config) * 4), 1);

    return pairs * PAIR_CLOCKS * (problem->beta != 0 ? 1.5 : 1);
}

/* Of a tile's sums, until its parts are together. */
static double exchange_clocks(const struct config *config, uint32_t splits)
{
    double area = (double)config->tile_m * config->tile_n, share = area / config->cluster_k;
    double clocks = 0;

    if (config->cluster_k > 1)
        clocks += MEET_CLOCKS + PEER_CLOCKS * config->cluster_k +
                  (area - share) * sizeof(float) / MEET_BYTES_CLOCK;
    if (splits > 1)
        clocks += COUNT_CLOCKS + share * sizeof(float) * (splits - 1) / BACK_BYTES_CLOCK;
    return clocks;
}

static void predict_with(const struct problem *problem,
                         const struct config *config,
                         const struct plan_device *device,
                         uint32_t splits,
                         struct plan *ret_plan)
{
    double clock = plan_hopper_clock(device);
    double input_size = (double)dtype_size(problem->input), units = units_of(problem, config);
    double tiles = units * config->cluster_m * config->cluster_n;
    double all_k_tiles = ceil((double)problem->k / config->tile_k);
    double k_tiles = ceil(all_k_tiles / ((double)splits * config->cluster_k));
    double reads = tiles * all_k_tiles * config->tile_k * span_of(problem, config) * input_size;
    double product = 2.0 * config->tile_m * config->tile_n * config->tile_k;
    struct config_resources resources;
    double multiprocessors = MAX(device->multiprocessors, 1u);
    double at_once, rounds, ctas_time, l2_time, wait, exchange, work;

    config_resources(config, &resources);
    at_once = clusters_at_once(config, &resources, device);
    rounds = ceil(units * splits / at_once);
    ctas_time =
        plan_hopper_rounds(units * splits / at_once, k_tiles * k_tile_clocks(problem, config),
                           k_tiles * product / FLOP_PER_CLOCK / power_share(config)) /
        clock;
    l2_time = reads / (L2_BYTES_CLOCK * multiprocessors) / clock;
    ret_plan->config = *config;
    ret_plan->splits = splits;
    ret_plan->tiles = tiles < 0x1p63 ? (uint64_t)tiles : UINT64_MAX;
    ret_plan->wave_efficiency = units * splits / (rounds * at_once);
    ret_plan->tensor_seconds = rounds * k_tiles * product / FLOP_PER_CLOCK / clock;
    ret_plan->l2_seconds = fmax(ctas_time, l2_time);
    wait = (FILL_CLOCKS + rounds * way_out_clocks(problem, config)) / clock;
    if (splits == 1)
        wait *= plan_hopper_wait_share(config, units, at_once);
    exchange = rounds * exchange_clocks(config, splits) / clock;
    work = plan_hopper_norm(ret_plan->l2_seconds, ret_plan->memory_seconds, NORM);
    ret_plan->fixed_seconds = LAUNCH_SECONDS + wait;
    ret_plan->predicted_seconds =
        exchange + (splits > 1 ? work + ret_plan->fixed_seconds
                               : plan_hopper_in_a_row(work, ret_plan->fixed_seconds));
    ret_plan->fixed_seconds += exchange;
}

void plan_hopper_split_predict(const struct problem *problem,
                               const struct config *config,
                               const struct plan_device *device,
                               double memory_bytes,
                               struct plan *ret_plan)
{
    double hbm = plan_hopper_memory_rate(device);
    uint32_t most = MIN(plan_splits_max(problem, config), SPLITS_TRIED);
    double memory = memory_bytes / (hbm * HBM_EFFICIENCY);
    double repack = plan_hopper_repack(config, ret_plan->repack_bytes, hbm);
    struct plan best = {0};

    for (uint32_t splits = 1; splits <= most; splits++) {
        struct plan candidate = {.memory_seconds = memory, .repack_bytes = ret_plan->repack_bytes};

        if (config->copy == CONFIG_COPY_REALIGN)
            plan_hopper_realign_predict(problem, config, device, memory_bytes, splits, &candidate);
        else
            predict_with(problem, config, device, splits, &candidate);
        candidate.fixed_seconds += repack;
        candidate.predicted_seconds += repack;
        if (splits == 1 || candidate.predicted_seconds < best.predicted_seconds)
            best = candidate;
    }
    *ret_plan = best;
}
