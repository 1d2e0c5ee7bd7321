/*
 * Counters of the daemon's life, and a histogram of latencies: plain numbers, written by whoever
 * does the thing, read by report.c.
 *
 * Owner: the server. Thread: loop.
 */
#pragma once

#include "../core/dtype.h"
#include "../core/status.h"

#define STATS_STATUSES 32 /* of status.def, with room */
/* Four buckets per power of two of nanoseconds: a quantile is right to 19 %. */
#define STATS_BUCKETS (4 * 48)

struct stats_histogram {
    uint64_t count;
    uint64_t buckets[STATS_BUCKETS];
};

struct stats {
    uint64_t requests, connections, refused_connections, violations;
    uint64_t unread; /* connections dropped because replies were not read */
    uint64_t products_by_status[STATS_STATUSES];
    uint64_t products_by_input[DTYPE_COUNT];
    uint64_t copies, copied_bytes;
    uint64_t replayed, suspects_guilty;
    uint64_t received_bytes, sent_bytes; /* of connections that ended */
    struct stats_histogram queued, device;
};

void stats_record(struct stats_histogram *histogram, uint64_t nanoseconds);
/* The value below which a part `quantile` (0 to 1) of the records lies; 0 when there are none. */
uint64_t stats_quantile(const struct stats_histogram *histogram, double quantile);
