/*
 * Products one after the other, a fixed number of them under way: the loop that a client of the
 * daemon and its cuBLAS peer have in common, so that both are timed alike.
 */
#pragma once

#include "bench.h"

#define FLOW_IN_FLIGHT_MAX 256
#define FLOW_LATENCIES_MAX ((size_t)1 << 20) /* of one run; later ones replace the first */

/* Slots are taken in turn: a slot is finished before it starts again. 0, or the run ends. */
struct flow_engine {
    void *context;
    int (*start)(void *context, size_t slot);
    int (*finish)(void *context, size_t slot, double *ret_device_seconds);
    double (*now)(void); /* seconds */
};

struct flow_figures {
    uint64_t products; /* finished in time */
    double seconds;    /* to the last of them */
    double device_seconds;
    struct samples latencies; /* seconds, from start to finish; owned */
};

int flow_figures_init(struct flow_figures *figures); /* -ENOMEM */
void flow_figures_deinit(struct flow_figures *figures);

/* At least one product, also when it takes longer than `seconds`. Nothing is under way after
 * success. */
int flow_run(const struct flow_engine *engine,
             size_t in_flight,
             double seconds,
             struct flow_figures *figures);
