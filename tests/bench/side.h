/*
 * What is timed against each other: a side launches one product on a set of buffers; sides take
 * turns.
 */
#pragma once

#include "gpu.h"
#include "power.h"

struct side {
    gpu_launch_fn launch;
    void *context;
    struct gpu_graph graph; /* owned */
    double trial;           /* seconds of one product in a short trial; INFINITY: it failed */
    double seconds;         /* median of the rounds */
};

struct side_rounds {
    double warmup; /* seconds that the sides run in turns before the first round */
    double round;  /* seconds of one side in one round */
    size_t count;
};

/* Launches once, so that what is loaded late is loaded, then captures. 0, or -1. */
int side_capture(struct gpu *gpu, struct side *side, size_t sets, size_t launches);
/* Fills `trial`. */
void side_try(struct gpu *gpu, struct side *side, double seconds);
/* Fills `seconds`, each round begun by another side; clock and power are those of the first side in
 * a run beside its rounds, the median of them. 0, or -1. */
int sides_alternate(struct gpu *gpu,
                    struct side *const *sides,
                    size_t count,
                    const struct side_rounds *rounds,
                    struct power *ret_power);
void side_free(struct gpu *gpu, struct side *side);
