/*
 * Cost model of configurations that multiply rows as they lie in memory, after measurements on an
 * H200: 25 products, 1 to 64 columns, K from 257 to 16383.
 *
 * Such a product is a stream of the rows: memory bounds it, or what a multiprocessor has under way
 * beside the columns that it shifts and multiplies, in whole blocks of them. Parts go to the L2 and
 * come back, in a second launch.
 */
#include "plan_hopper_stream.h"
#include "plan_hopper.h"
#include "plan_hopper_parts.h"

#include <math.h>

#define COLUMNS_BLOCK    16     /* of a product: kernels_src/mma/stream.cuh */
#define FLOP_PER_CLOCK   2000.0 /* of a multiprocessor, by mma.sync; to be shown, no bound */
#define READ_BYTES_CLOCK 18.0   /* of a multiprocessor, */
#define BLOCK_CLOCKS     400.0  /* beside which a step's columns come, and are multiplied */
#define STEP_CLOCKS_MIN  1000.0
#define ROW_BEGINS       7 /* elements behind an aligned chunk, at most */
#define STEPS_MIN        4 /* of a split: a turn of the ring */
#define HBM_EFFICIENCY   0.9
#define PART_COST        1.5    /* bytes of memory that cost as much as one of parts */
#define FIXED_SECONDS    3.6e-6 /* of both launches */
#define SUM_SECONDS      0.5e-6 /* of a turn of the kernel that adds, in which */
#define SUM_ELEMENTS     2048   /* a multiprocessor adds so many, */
#define SUM_SPLITS       8      /* of so many splits, or fewer of more */
#define NORM             3.3    /* of two bounds of one time */

/* Of a product, in the kernel's order: many rows, few columns. */
struct extent {
    double rows, columns; /* of D */
    double tile_rows, tile_columns;
};

static struct extent extent_of(const struct problem *problem, const struct config *config)
{
    struct extent as_stored = {.rows = (double)problem->m,
                               .columns = (double)problem->n,
                               .tile_rows = config->tile_m,
                               .tile_columns = config->tile_n};
    struct extent swapped = {.rows = (double)problem->n,
                             .columns = (double)problem->m,
                             .tile_rows = config->tile_n,
                             .tile_columns = config->tile_m};

    return config->is_swapped ? swapped : as_stored;
}

bool plan_hopper_stream_can(const struct problem *problem, const struct config *config)
{
    struct extent extent = extent_of(problem, config);

    return plan_hopper_can(problem) && extent.columns <= extent.tile_columns;
}

/* Of a step of K, of the CTA that has the most rows. */
static double step_clocks(const struct extent *extent, double step, double element)
{
    double rows = fmin(extent->rows, extent->tile_rows);
    double clocks = rows * step * element / READ_BYTES_CLOCK +
                    ceil(extent->columns / COLUMNS_BLOCK) * BLOCK_CLOCKS;

    return fmax(clocks, STEP_CLOCKS_MIN);
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
    struct extent extent = extent_of(problem, config);
    double batch = (double)problem->batch;
    double units = ceil(extent.rows / extent.tile_rows) * batch;
    double columns = ceil(extent.columns / COLUMNS_BLOCK) * COLUMNS_BLOCK;
    double sums = extent.rows * columns * batch;
    double steps = ceil(((double)problem->k + ROW_BEGINS) / config->tile_k);
    double rounds = ceil(units * splits / multiprocessors);
    double step = step_clocks(&extent, config->tile_k, (double)dtype_size(problem->input));
    double sum_turns =
        ceil(sums / SUM_ELEMENTS / multiprocessors * ceil((double)splits / SUM_SPLITS));

    ret_plan->config = *config;
    ret_plan->splits = splits;
    ret_plan->tiles = units < 0x1p63 ? (uint64_t)units : UINT64_MAX;
    ret_plan->wave_efficiency = units * splits / (rounds * multiprocessors);
    ret_plan->tensor_seconds = 2 * units * extent.tile_rows * columns * steps * config->tile_k /
                               (FLOP_PER_CLOCK * multiprocessors) / clock;
    ret_plan->l2_seconds = rounds * ceil(steps / splits) * step / clock;
    ret_plan->memory_seconds =
        (memory_bytes + PART_COST * sums * splits * sizeof(float)) / (hbm * HBM_EFFICIENCY);
    ret_plan->fixed_seconds = FIXED_SECONDS + sum_turns * SUM_SECONDS;
    ret_plan->predicted_seconds =
        plan_hopper_norm(ret_plan->l2_seconds, ret_plan->memory_seconds, NORM) +
        ret_plan->fixed_seconds;
}

void plan_hopper_stream_predict(const struct problem *problem,
                                const struct config *config,
                                const struct plan_device *device,
                                double memory_bytes,
                                struct plan *ret_plan)
{
    double by_k = ((double)problem->k + ROW_BEGINS) / config->tile_k / STEPS_MIN;

    plan_hopper_parts_best(problem, config, device, memory_bytes, by_k, predict_with, ret_plan);
}
