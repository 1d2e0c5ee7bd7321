/*
 * What all rows of a run share, and one row: the plan's candidates and the peer's algorithms
 * against each other.
 *
 * Owner: the command. Thread: one, beside the heater's.
 */
#pragma once

#include "heat.h"
#include "kernels_product.h"
#include "kernels_table.h"
#include "side.h"

#define KERNELS_SETTLE_TRIALS 5 /* trials of the first choice, before those that count */

struct kernels_setting {
    struct gpu gpu;
    struct kernels_place place;
    struct kernel_set kernels;
    struct peer peer;
    bool has_peer;
    struct heat heat;
    bool has_heat;
    struct product product, heat_product;
    struct kernels_place heat_place;
    double heat_since; /* 0: not yet */
    struct goals goals;
    FILE *trials; /* every candidate's time and terms; NULL: nobody asked */

    double warmup;
    struct side_rounds rounds;
    double trial; /* seconds of one side */
    size_t candidates;
    bool is_unchecked;  /* but the first choice: for a sweep whose figures back nothing */
    const char *filter; /* part of a configuration's name; NULL: the plan chooses */
};

/* The GPU is busy from here on, but while a row is timed. 0, or -1 with the fault filled. */
int kernels_warm_up(struct kernels_setting *setting, struct fault *fault);
/* The GPU has been busy for the whole warm-up when this returns, and has nothing to do. */
void kernels_heat_end(struct kernels_setting *setting);
/* Measures and prints. 0; -1: there is no row, a line says what failed; 1: there is one, but
 * another candidate of the plan failed, of which a line tells. */
int kernels_measure(struct kernels_setting *setting,
                    const struct shape *shape,
                    const struct plan_ranking *ranking,
                    struct kernels_row *ret_row);
