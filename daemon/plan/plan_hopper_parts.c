/*
 * Cost model of configurations that leave parts of sums, after measurements on an H200: 64 x 64 to
 * 512 x 512 with K from 8192 to 262144, in all but one layout, most of them within 10 %.
 *
 * Such a product is a stream of its operands: memory bounds it, or what each multiprocessor loads,
 * or the power for products beside such a stream. Parts go to the L2 and come back, and what is
 * written there does not all stay. Then come the sums, whose chunks of 16 x 8 elements take a turn
 * each, however few splits they have.
 */
#include "plan_hopper_parts.h"
#include "plan_hopper.h"
#include "plan_hopper_split.h"

#include <math.h>

#define FLOP_PER_CLOCK   4096.0 /* of a multiprocessor */
#define PRODUCT_SHARE    0.9    /* of that, which the loop reaches */
#define FILL_BYTES_CLOCK 70.0   /* of a multiprocessor's ring, whoever copies */
#define TURN_CLOCKS      250.0  /* of the loop over K tiles */
#define IDLE_COST        0.3    /* of memory's rate, without all multiprocessors: bytes under way */
#define PART_COST        1.5    /* bytes of memory that cost as much as one of parts */
#define FIXED_SECONDS    2.6e-6 /* of a short K both launches show */
#define SUM_SECONDS      0.45e-6 /* of a turn of the kernel that adds */
#define SUM_CHUNK        128     /* elements of D that a CTA of it adds in a turn, */
#define SUM_SPLITS       80      /* with so many splits */
#define K_TILES_MIN      4       /* of a split */
#define NORM             3.3     /* of two bounds of one time */

static double ceil_div(int64_t value, uint32_t by)
{
    return ceil((double)value / by);
}

/* Share of the tensor cores' rate which the device has power for beside the stream. Half as many
 * rows of a tile take half as much again of shared memory. */
static double power_share(const struct config *config)
{
    return config->tile_m >= 128 ? 0.65 : 0.56;
}

static void predict_with(const struct problem *problem,
                         const struct config *config,
                         const struct plan_device *device,
                         uint32_t splits,
                         double memory_bytes,
                         struct plan *ret_plan)
{
    double clock = plan_hopper_clock(device);
    double hbm = plan_hopper_memory_rate(device);
    double multiprocessors = MAX(device->multiprocessors, 1u);
    double places = fmax(floor(multiprocessors / config_cluster(config)), 1);
    double units = ceil_div(problem->m, config->tile_m * config->cluster_m) *
                   ceil_div(problem->n, config->tile_n * config->cluster_n) *
                   (double)problem->batch;
    double tiles = units * config->cluster_m * config->cluster_n;
    double area = (double)config->tile_m * config->tile_n;
    double k_tiles = ceil(ceil_div(problem->k, config->tile_k) / splits);
    double rounds = ceil(units * splits / places);
    double busy = fmin(units * splits / places, 1);
    double fill = ((double)config->tile_m + config->tile_n) * config->tile_k *
                  (double)dtype_size(problem->input);
    double product = 2 * area * config->tile_k / (FLOP_PER_CLOCK * PRODUCT_SHARE);
    double turn = fmax(TURN_CLOCKS, fmax(fill / FILL_BYTES_CLOCK, product));
    double flop =
        2.0 * (double)problem->m * (double)problem->n * (double)problem->k * (double)problem->batch;
    double sum_turns =
        ceil(tiles * area / SUM_CHUNK / multiprocessors) * ceil((double)splits / SUM_SPLITS);

    ret_plan->config = *config;
    ret_plan->splits = splits;
    ret_plan->tiles = tiles < 0x1p63 ? (uint64_t)tiles : UINT64_MAX;
    ret_plan->wave_efficiency = units * splits / (rounds * places);
    ret_plan->tensor_seconds =
        flop / (FLOP_PER_CLOCK * power_share(config) * multiprocessors) / clock;
    ret_plan->l2_seconds = rounds * k_tiles * turn / clock;
    ret_plan->memory_seconds = (memory_bytes + PART_COST * tiles * splits * area * sizeof(float)) /
                               hbm * (1 + IDLE_COST * (1 - busy));
    ret_plan->fixed_seconds = FIXED_SECONDS + sum_turns * SUM_SECONDS;
    ret_plan->predicted_seconds =
        plan_hopper_norm(plan_hopper_norm(ret_plan->l2_seconds, ret_plan->tensor_seconds, NORM),
                         ret_plan->memory_seconds, NORM) +
        ret_plan->fixed_seconds;
}

void plan_hopper_parts_best(const struct problem *problem,
                            const struct config *config,
                            const struct plan_device *device,
                            double memory_bytes,
                            double most_by_k,
                            plan_hopper_parts_with *predict,
                            struct plan *ret_plan)
{
    double by_device = MAX(device->multiprocessors, 1u);
    double most = fmin(plan_splits_max(problem, config), fmin(most_by_k, by_device));
    struct plan best = {0};

    for (uint32_t splits = 1; splits <= fmax(most, 1); splits++) {
        struct plan candidate = {0};

        predict(problem, config, device, splits, memory_bytes, &candidate);
        if (splits == 1 || candidate.predicted_seconds < best.predicted_seconds)
            best = candidate;
    }
    *ret_plan = best;
}

void plan_hopper_parts_predict(const struct problem *problem,
                               const struct config *config,
                               const struct plan_device *device,
                               double memory_bytes,
                               struct plan *ret_plan)
{
    double by_k = ceil_div(problem->k, config->tile_k) / K_TILES_MIN;

    plan_hopper_parts_best(problem, config, device, memory_bytes, by_k, predict_with, ret_plan);
}
