/*
 * What a cold client writes to descriptor 3: when each stage was over, of which the first is the
 * start of main(), and of the product's what the daemon reports.
 */
#pragma once

#define COLD_FD 3

enum cold_stage {
    COLD_START,
    COLD_MEMORY,
    COLD_CONNECT,
    COLD_REGISTER,
    COLD_PRODUCT,
    COLD_STAGES,
};

struct cold_stamps {
    double over[COLD_STAGES]; /* seconds, CLOCK_MONOTONIC */
    double queued, device;    /* seconds */
};
