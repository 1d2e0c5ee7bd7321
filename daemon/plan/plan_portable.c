/*
 * Cost model of the portable family: what a product costs with cp.async and mma.sync.
 *
 * The time is that of the busiest multiprocessor: the slowest of its tensor work, its share of the
 * L2 and of HBM, and its loads' latency, plus the epilogue (not overlapped with the main loop) and
 * what every launch costs. The terms rank tiles; they are not a promise to a scheduler.
 */
#include "plan_portable.h"

#include <math.h>

#define LAUNCH_SECONDS   4e-6
#define ELEMENT_SECONDS  2.5e-6 /* what element loads and stores wait for each other, once */
#define L2_BYTES_CLOCK   40.0   /* per multiprocessor, sustained by cp.async */
#define STORE_BYTES_CLK  16.0   /* per multiprocessor, through the epilogue's slab */
#define ELEMENTS_LOADED  2.1    /* a clock, per multiprocessor, each by its own address */
#define ELEMENTS_STORED  0.66   /* of D: both measured on an H200 in 16 bits, up to 8191^3 */
#define STEP_CLOCKS      120.0  /* barrier and first fragments of one K step, one CTA alone */
#define FILL_CLOCKS      900.0  /* first loads of a tile */
#define DEFAULT_CLOCK    1.4e9
#define DEFAULT_HBM_RATE 5e11

/* Operations per clock and multiprocessor through mma.sync (FMA for fp32), dense, fp32 sums. */
struct rate {
    uint32_t arch;
    double half, fp32, fp64, int8;
};

/* 9.0: mma.sync gets about 0.62 of what wgmma does. 10.x: the tensor cores' full rate is for
 * tcgen05 only. */
static const struct rate rates[] = {
    {80, 2048, 128, 128, 4096}, {86, 1024, 256, 4, 2048},   {87, 2048, 256, 4, 4096},
    {89, 1024, 256, 4, 2048},   {90, 2540, 256, 256, 5080}, {100, 2048, 256, 128, 4096},
    {103, 2048, 256, 4, 2048},  {120, 1024, 256, 4, 2048},
};

static double operations_per_clock(uint32_t arch, enum dtype input)
{
    const struct rate *rate = &rates[0];

    for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
        if (rates[i].arch == arch)
            rate = &rates[i];
    switch (input) {
    case DTYPE_FP32:
        return rate->fp32;
    case DTYPE_FP64:
        return rate->fp64;
    case DTYPE_INT8:
        return rate->int8;
    default:
        return rate->half;
    }
}

/* Share of that rate which the main loop reaches: larger warp tiles reread less shared memory, and
 * element loads spend most of their issue slots on addresses. */
static double loop_efficiency(const struct config *config)
{
    bool is_large = config->tile_m * config->tile_n > 64 * 64;

    if (config->copy == CONFIG_COPY_ELEMENT)
        return is_large ? 0.25 : 0.15;
    return is_large ? 0.70 : 0.45;
}

static double divide_up(int64_t value, uint32_t by)
{
    return ceil((double)value / by);
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

void plan_portable_predict(const struct problem *problem,
                           const struct config *config,
                           const struct plan_device *device,
                           struct plan *ret_plan)
{
    double clock = device->clock_hz > 0 ? device->clock_hz : DEFAULT_CLOCK;
    double hbm =
        device->memory_bytes_per_second > 0 ? device->memory_bytes_per_second : DEFAULT_HBM_RATE;
    double sms = MAX(device->multiprocessors, 1u);
    double steps = divide_up(problem->k, config->tile_k);
    double tiles = divide_up(problem->m, config->tile_m) * divide_up(problem->n, config->tile_n) *
                   (double)problem->batch;
    double rounds = ceil(tiles / sms); /* tiles of the busiest multiprocessor */
    double area = (double)config->tile_m * config->tile_n, depth = steps * config->tile_k;
    double rate = operations_per_clock(config->arch, config->input) * loop_efficiency(config);
    double input_size = (double)dtype_size(problem->input);
    bool by_elements = config->copy == CONFIG_COPY_ELEMENT;
    double load_clocks = (config->tile_m + config->tile_n) * depth *
                         fmax(input_size / L2_BYTES_CLOCK, by_elements ? 1 / ELEMENTS_LOADED : 0);
    double store_clocks = area * (problem->beta != 0 ? 2 : 1) *
                          fmax((double)dtype_size(problem->output) / STORE_BYTES_CLK,
                               by_elements ? 1 / ELEMENTS_STORED : 0);
    double latency, epilogue;
    struct config_resources resources;

    config_resources(config, &resources);
    ret_plan->config = *config;
    ret_plan->splits = 1;
    ret_plan->tiles = tiles < 0x1p63 ? (uint64_t)tiles : UINT64_MAX;
    ret_plan->wave_efficiency = tiles / (rounds * sms);
    ret_plan->tensor_seconds = rounds * 2 * area * depth / rate / clock;
    ret_plan->l2_seconds = rounds * load_clocks / clock;
    ret_plan->memory_seconds = memory_bytes(problem) / hbm;
    latency = ceil(rounds / resources.ctas_per_multiprocessor) *
              (FILL_CLOCKS + steps * STEP_CLOCKS) / clock;
    epilogue = rounds * store_clocks / clock;
    ret_plan->fixed_seconds =
        LAUNCH_SECONDS + latency + epilogue + (by_elements ? ELEMENT_SECONDS : 0);
    ret_plan->predicted_seconds =
        fmax(fmax(ret_plan->tensor_seconds, ret_plan->l2_seconds), ret_plan->memory_seconds) +
        ret_plan->fixed_seconds;
}
