#include "side.h"

#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define ROUNDS_MAX 101

int side_capture(struct gpu *gpu, struct side *side, size_t sets, size_t launches)
{
    side->trial = INFINITY;
    if (side->launch(side->context, gpu->stream, 0) ||
        cu(&gpu->driver)->StreamSynchronize(gpu->stream) != CUDA_SUCCESS)
        return -1;
    return gpu_graph_capture(gpu, side->launch, side->context, sets, launches, &side->graph) ? -1
                                                                                             : 0;
}

/* So many runs of the graph take about that long, when a product takes `one`. */
static size_t repeats_for(double seconds, const struct side *side, double one)
{
    return (size_t)MAX(1.0, floor(seconds / (one * (double)side->graph.launches) + 0.5));
}

void side_try(struct gpu *gpu, struct side *side, double seconds)
{
    double one = side->graph.executable ? gpu_graph_time(gpu, &side->graph, 1) : -1;

    if (one > 0)
        one = gpu_graph_time(gpu, &side->graph, repeats_for(seconds, side, one));
    side->trial = one > 0 ? one : INFINITY;
}

static double run(struct gpu *gpu, const struct side *side, double seconds, struct power *ret_power)
{
    size_t repeats = repeats_for(seconds, side, side->trial);

    if (gpu_graph_start(gpu, &side->graph, repeats) < 0)
        return -1;
    if (ret_power) { /* from the middle of the run: before, it is still the other side's */
        double half = (double)(repeats * side->graph.launches) * side->trial / 2;

        (void)usleep((useconds_t)(MIN(half, 1) * 1e6));
        *ret_power = power_now(gpu->facts.uuid);
    }
    return gpu_graph_finish(gpu, &side->graph, repeats);
}

/* At the power limit who ran before decides the clock for some ten milliseconds: a run counts after
 * half as much of the same. Nor is it the one whose power is read: the reading takes longer than
 * the run, so that the next one begins on a GPU that has rested. */
static double run_settled(struct gpu *gpu, const struct side *side, double seconds)
{
    if (run(gpu, side, seconds / 2, NULL) < 0)
        return -1;
    return run(gpu, side, seconds, NULL);
}

static double median(double *values, size_t count)
{
    struct samples samples = {values, count};
    return samples_median(&samples);
}

static int
warm_up(struct gpu *gpu, struct side *const *sides, size_t count, const struct side_rounds *rounds)
{
    double end = bench_now() + rounds->warmup;

    do {
        for (size_t i = 0; i < count; i++)
            if (run(gpu, sides[i], rounds->round / 4, NULL) < 0)
                return -1;
    } while (bench_now() < end);
    return 0;
}

int sides_alternate(struct gpu *gpu,
                    struct side *const *sides,
                    size_t count,
                    const struct side_rounds *rounds,
                    struct power *ret_power)
{
    size_t rounds_count = MIN(MAX(rounds->count, 1), ROUNDS_MAX);
    double *seconds = calloc(count * rounds_count, sizeof(*seconds));
    double clocks[ROUNDS_MAX], watts[ROUNDS_MAX];
    int r = seconds ? warm_up(gpu, sides, count, rounds) : -1;

    for (size_t round = 0; round < rounds_count && r == 0; round++) {
        struct power power = {0};

        for (size_t turn = 0; turn < count && r == 0; turn++) {
            size_t i = (turn + round) % count;
            double *value = &seconds[i * rounds_count + round];

            *value = run_settled(gpu, sides[i], rounds->round);
            r = *value > 0 ? 0 : -1;
        }
        if (r == 0 && run(gpu, sides[0], rounds->round, &power) < 0)
            r = -1;
        clocks[round] = power.clock_mhz;
        watts[round] = power.watts;
    }
    for (size_t i = 0; i < count && r == 0; i++)
        sides[i]->seconds = median(&seconds[i * rounds_count], rounds_count);
    if (r == 0)
        *ret_power = (struct power){.clock_mhz = (unsigned)median(clocks, rounds_count),
                                    .watts = (unsigned)median(watts, rounds_count)};
    free(seconds);
    return r;
}

void side_free(struct gpu *gpu, struct side *side)
{
    gpu_graph_free(gpu, &side->graph);
}
