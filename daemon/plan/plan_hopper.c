/*
 * Cost model of the hopper family: what a product costs with tensor copies and wgmma.
 *
 * CTAs walk, so the time is that of the one with the most tiles: for each the slower of the tensor
 * cores and of its share of the L2, then the epilogue where nothing overlaps it; HBM bounds the
 * whole; the first K tile of a launch and the last store are latency that every launch has. The
 * terms rank tiles; they are not a promise to a scheduler.
 */
#include "plan_hopper.h"

#include <math.h>

#define FLOP_PER_CLOCK   4096.0 /* of a multiprocessor, 16-bit operands, fp32 sums */
#define L2_BYTES_CLOCK   46.0   /* of a multiprocessor when all of them load */
#define STORE_BYTES_CLK  32.0   /* of a multiprocessor, through the epilogue's buffers */
#define LAUNCH_SECONDS   2.5e-6
#define REPACK_SECONDS   1.5e-6 /* a launch more, beside the end of the one before */
#define FILL_CLOCKS      1500.0 /* barriers, first copies, last store */
#define TILE_CLOCKS      300.0  /* between two tiles of a CTA, besides the store */
#define DEFAULT_CLOCK    1.7e9
#define DEFAULT_HBM_RATE 4.0e12
#define HBM_EFFICIENCY   0.9
#define EXTENT_MAX       (INT64_C(1) << 31) /* coordinates of tensor copies are 32 bits, signed */
#define UNITS_MAX        0x1p31
#define STRIDE_MAX       (INT64_C(1) << 40) /* bytes, of a tensor map */

static double divide_up(int64_t value, uint32_t by)
{
    return ceil((double)value / by);
}

static bool strides_fit(const struct problem *problem)
{
    for (int role = 0; role < OPERAND_COUNT; role++) {
        const struct problem_operand *operand = &problem->operand[role];
        bool is_input = role == OPERAND_A || role == OPERAND_B;
        int64_t size = (int64_t)dtype_size(is_input ? problem->input : problem->output);

        if (operand->ld >= STRIDE_MAX / size)
            return false;
        if (problem->batch > 1 && operand->stride >= STRIDE_MAX / size)
            return false;
    }
    return true;
}

/* A tile may begin within the extent and end beyond it: a margin of one largest tile. */
bool plan_hopper_can(const struct problem *problem)
{
    int64_t most = EXTENT_MAX - 1024;
    double smallest_tiles = divide_up(problem->m, 64) * divide_up(problem->n, 64);

    return problem->m < most && problem->n < most && problem->k < most && problem->batch < most &&
           smallest_tiles * (double)problem->batch < UNITS_MAX && strides_fit(problem);
}

/* Share of the tensor cores' rate that the main loop reaches, relative to each other as measured at
 * 4096^3 on an H200. A warpgroup alone leaves gaps between its products; two of them fill each
 * other's; a larger tile reads less shared memory for a product. */
static double loop_efficiency(const struct config *config)
{
    if (config->tile_m == 64)
        return config->tile_n == 64 ? 0.33 : 0.55;
    if (config->tile_m * config->tile_n >= 128 * 256)
        return 0.80;
    if (config->tile_n == 192)
        return 0.775;
    return config->schedule == CONFIG_SCHEDULE_PINGPONG ? 0.78 : 0.74;
}

/* Compulsory traffic: every operand once. */
static double memory_bytes(const struct problem *problem)
{
    double batch = (double)problem->batch, m = (double)problem->m, n = (double)problem->n;
    double k = (double)problem->k;
    double a = problem->operand[OPERAND_A].stride == 0 ? 1 : batch;
    double b = problem->operand[OPERAND_B].stride == 0 ? 1 : batch;
    double input = (double)dtype_size(problem->input), output = (double)dtype_size(problem->output);

    return input * k * (a * m + b * n) + output * m * n * batch * (problem->beta != 0 ? 2 : 1);
}

/* The launch before the product's reads what it copies once, and writes it once. */
static double repack_seconds(const struct config *config, double bytes, double hbm)
{
    if (config->copy != CONFIG_COPY_REPACK || bytes == 0)
        return 0;
    return REPACK_SECONDS + 2 * bytes / (hbm * HBM_EFFICIENCY);
}

void plan_hopper_predict(const struct problem *problem,
                         const struct config *config,
                         const struct plan_device *device,
                         struct plan *ret_plan)
{
    double clock = device->clock_hz > 0 ? device->clock_hz : DEFAULT_CLOCK;
    double hbm =
        device->memory_bytes_per_second > 0 ? device->memory_bytes_per_second : DEFAULT_HBM_RATE;
    double cluster = config->cluster_m * config->cluster_n;
    double walkers = fmax(floor(MAX(device->multiprocessors, 1u) / cluster), 1);
    double units = divide_up(problem->m, config->tile_m * config->cluster_m) *
                   divide_up(problem->n, config->tile_n * config->cluster_n) *
                   (double)problem->batch;
    double rounds = ceil(units / walkers); /* tiles of the busiest multiprocessor */
    double busy = fmin(units, walkers) / walkers;
    double area = (double)config->tile_m * config->tile_n;
    double depth = divide_up(problem->k, config->tile_k) * config->tile_k;
    double input_size = (double)dtype_size(problem->input);
    /* A multicast loads once for the cluster: what its CTAs share counts a part of it. */
    double load =
        depth * input_size *
        ((double)config->tile_m / config->cluster_n + (double)config->tile_n / config->cluster_m);
    double store = area * (double)dtype_size(problem->output) * (problem->beta != 0 ? 2 : 1);
    bool is_overlapped = config->schedule == CONFIG_SCHEDULE_PINGPONG;
    double store_rounds = is_overlapped ? fmin(rounds, 1) : rounds;
    double tensor = rounds * 2 * area * depth / (FLOP_PER_CLOCK * loop_efficiency(config));
    double tail = FILL_CLOCKS + store_rounds * (TILE_CLOCKS + store / STORE_BYTES_CLK);

    ret_plan->config = *config;
    ret_plan->tiles = units * cluster < 0x1p63 ? (uint64_t)(units * cluster) : UINT64_MAX;
    ret_plan->wave_efficiency = units / (rounds * walkers);
    ret_plan->tensor_seconds = tensor / clock;
    ret_plan->l2_seconds = rounds * load / (L2_BYTES_CLOCK / fmax(busy, 0.5)) / clock;
    ret_plan->memory_seconds = memory_bytes(problem) / (hbm * HBM_EFFICIENCY);
    ret_plan->fixed_seconds =
        LAUNCH_SECONDS + tail / clock + repack_seconds(config, ret_plan->repack_bytes, hbm);
    ret_plan->predicted_seconds =
        fmax(fmax(ret_plan->tensor_seconds, ret_plan->l2_seconds), ret_plan->memory_seconds) +
        ret_plan->fixed_seconds;
}
