/*
 * Stamps as a trace that Chrome (chrome://tracing) and Perfetto open: an array of events in JSON.
 * Each CTA is a process, with a thread for each slot of the ring (a copy from its issue to its
 * landing), and one each for the products and the epilogue of each group.
 */
#pragma once

#include "stamps.h"

#include <stdio.h>

struct trace {
    FILE *file; /* borrowed */
    bool has_events;
    uint32_t processes;
};

void trace_begin(struct trace *trace, FILE *file);
/* A launch's first CTAs under a name. Times are microseconds since the launch's first CTA began.
 * False when the stamps cannot be read, or there is no memory. */
bool trace_add(struct trace *trace,
               const char *name,
               const struct gemmd_stamps *stamps,
               const struct stamps_launch *launch,
               uint32_t ctas);
void trace_end(struct trace *trace);
