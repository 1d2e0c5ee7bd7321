/*
 * Cost model of split configurations whose threads shift what they load, after measurements on an
 * H200: 103 products of two random draws.
 *
 * A CTA's time is that of its first K tile and of its way out, then of the others. Two CTAs of a
 * multiprocessor share what it can shift. A grid that leaves room runs beside those before and
 * behind it and takes a part of what one alone does; one whose K is cut does not, since it waits
 * for the workspace.
 */
#include "plan_hopper.h"
#include "plan_hopper_split.h"

#include <math.h>

#define TURN_CLOCKS      1300.0 /* of a K tile, of one CTA alone */
#define COUNT_SECONDS    0.3e-6 /* for the last split to know that the others are done */
#define BACK_BYTES_CLOCK 14.0   /* of the workspace, by who adds */
#define NORM             3.2
#define LEAST_SHARE      0.5 /* of the loop, however few CTAs: a product alone has all of it */
#define DEFAULT_CLOCK    1.7e9

/* By tile: narrow ones of M = 16, or 64 x 64. */
struct costs {
    double launch, beside, alone; /* seconds: beside other grids, or alone, a CTA's first K tile */
    double bytes;                 /* a clock, that a multiprocessor shifts */
};

static const struct costs narrow = {1.35e-6, 1.6e-6, 1.75e-6, 19};
static const struct costs square = {1.9e-6, 1.0e-6, 2.1e-6, 15};

void plan_hopper_realign_predict(const struct problem *problem,
                                 const struct config *config,
                                 const struct plan_device *device,
                                 uint32_t splits,
                                 struct plan *ret_plan)
{
    const struct costs *cost = config->tile_m < 64 ? &narrow : &square;
    double clock = device->clock_hz > 0 ? device->clock_hz : DEFAULT_CLOCK;
    double multiprocessors = MAX(device->multiprocessors, 1u);
    double tiles = ceil((double)problem->m / config->tile_m) *
                   ceil((double)problem->n / config->tile_n) * (double)problem->batch;
    double k_tiles = ceil(ceil((double)problem->k / config->tile_k) / splits);
    double bytes = ((double)config->tile_m + config->tile_n) * config->tile_k *
                   (double)dtype_size(problem->input);
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
    turn = fmax(TURN_CLOCKS, crowd * bytes / cost->bytes);
    ret_plan->config = *config;
    ret_plan->splits = splits;
    ret_plan->tiles = tiles < 0x1p63 ? (uint64_t)tiles : UINT64_MAX;
    ret_plan->wave_efficiency = tiles * splits / (rounds * places);
    ret_plan->l2_seconds = fmax(share, LEAST_SHARE) * rounds * (k_tiles - 1) * turn / clock;
    ret_plan->fixed_seconds =
        cost->launch + share * rounds * crowd * (leaves_room ? cost->beside : cost->alone);
    if (splits > 1)
        ret_plan->fixed_seconds +=
            COUNT_SECONDS + area * sizeof(float) * (splits - 1) / BACK_BYTES_CLOCK / clock;
    ret_plan->predicted_seconds =
        plan_hopper_norm(ret_plan->l2_seconds, ret_plan->memory_seconds, NORM) +
        ret_plan->fixed_seconds;
}
