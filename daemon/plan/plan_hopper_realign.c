/*
 * Cost model of split configurations whose threads shift what they load, after measurements on an
 * H200: 103 products of two random draws, with a standard deviation of the logarithm of 0.17
 * (narrow tiles) and 0.13.
 *
 * A CTA's time is that of its first K tile and of its way out, then of the others, which take
 * longer on a busy device. A grid that leaves room runs beside those before and behind it and takes
 * a part of what one alone does, but for the loop, all of which a product by itself has to wait
 * for; one whose K is cut does not, since it waits for the workspace.
 */
#include "plan_hopper.h"
#include "plan_hopper_split.h"

#include <math.h>

#define NORM           3.2
#define HBM_EFFICIENCY 0.6

struct costs {
    double launch;
    double beside, alone;     /* a CTA's first K tile and way out: beside other grids, or alone */
    double turn, busy, crowd; /* of a K tile; more on a busy device, and for two CTAs together */
    double count;             /* for the last split to know that the others are done */
    double back;              /* bytes a clock, of the workspace, by who adds */
};

/* Seconds. Tiles of 16 along M or N, and of 64 x 64. */
static const struct costs narrow = {1.2e-6,  0.87e-6, 1.65e-6, 0.21e-6,
                                    0.82e-6, 0.13e-6, 0.24e-6, 19.6};
static const struct costs square = {1.95e-6, 1.23e-6, 1.74e-6, 0.12e-6,
                                    0.83e-6, 0.11e-6, 0.53e-6, 13.8};

void plan_hopper_realign_predict(const struct problem *problem,
                                 const struct config *config,
                                 const struct plan_device *device,
                                 double memory_bytes,
                                 uint32_t splits,
                                 struct plan *ret_plan)
{
    const struct costs *cost = MIN(config->tile_m, config->tile_n) < 64 ? &narrow : &square;
    double clock = plan_hopper_clock(device);
    double hbm = plan_hopper_memory_rate(device);
    double multiprocessors = MAX(device->multiprocessors, 1u);
    double tiles = ceil((double)problem->m / config->tile_m) *
                   ceil((double)problem->n / config->tile_n) * (double)problem->batch;
    double k_tiles = ceil(ceil((double)problem->k / config->tile_k) / splits);
    double area = (double)config->tile_m * config->tile_n;
    struct config_resources resources;
    double places, crowd, share, turn, rounds;
    bool leaves_room;

    config_resources(config, &resources);
    places = multiprocessors * resources.ctas_per_multiprocessor;
    crowd = fmin(fmax(tiles * splits / multiprocessors, 1), resources.ctas_per_multiprocessor);
    rounds = ceil(tiles * splits / places);
    leaves_room = splits == 1 && 2 * tiles <= places;
    share = leaves_room ? 2 * tiles / places : 1;
    turn = cost->turn + cost->busy * fmin(tiles * splits / multiprocessors, 1) +
           cost->crowd * (crowd - 1);
    ret_plan->config = *config;
    ret_plan->splits = splits;
    ret_plan->tiles = tiles < 0x1p63 ? (uint64_t)tiles : UINT64_MAX;
    ret_plan->wave_efficiency = tiles * splits / (rounds * places);
    ret_plan->memory_seconds = memory_bytes / (hbm * HBM_EFFICIENCY);
    ret_plan->l2_seconds = rounds * (k_tiles - 1) * turn;
    ret_plan->fixed_seconds =
        cost->launch + share * rounds * crowd * (leaves_room ? cost->beside : cost->alone);
    if (splits > 1)
        ret_plan->fixed_seconds +=
            cost->count + area * sizeof(float) * (splits - 1) / cost->back / clock;
    ret_plan->predicted_seconds =
        plan_hopper_norm(ret_plan->l2_seconds, ret_plan->memory_seconds, NORM) +
        ret_plan->fixed_seconds;
}
