/*
 * How much longer than predicted jobs of one class take, learned from those that ran: a ratio of
 * two moving averages, so that long jobs count for more than short ones whose measured time is
 * mostly the granularity of looking. The averages reach back over some milliseconds of work: short
 * jobs end in bursts, the first with the time of all and the others with none. A class's first job
 * is not learnt from, since it may be the kernel's first launch.
 *
 * Used for fairness, horizon and slices only. The plan never sees it: the same problem gets the
 * same configuration and the same bits whatever was measured.
 *
 * Owner: the queue. Thread: loop.
 */
#pragma once

#include "../core/std.h"

#define ESTIMATE_CLASSES 1024 /* a few times the configurations that a device is asked for */

struct estimates {
    /* By class modulo the size; a collision forgets the older. */
    struct {
        uint64_t class;
        double predicted, measured; /* moving averages, seconds */
        uint32_t count;             /* of jobs that are in them, as far as it matters */
    } classes[ESTIMATE_CLASSES];
};

double estimate_correct(const struct estimates *estimates, uint64_t class, double predicted);
void estimate_learn(struct estimates *estimates, uint64_t class, double predicted, double measured);
