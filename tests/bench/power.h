/*
 * Clock, power and used memory at this moment, from NVML where it is installed: a large product is
 * limited by power, so a figure without them says little. NVML needs no context and takes none.
 */
#pragma once

#include "../../daemon/core/std.h"

struct power {
    unsigned clock_mhz, watts; /* 0: not known */
};

struct power power_now(const char *uuid); /* of the GPU, "GPU-..." */

/* Bytes in use on the GPU by everybody; `uuid` "" is the first one. 0: not known. */
uint64_t power_memory_used(const char *uuid);
/* The first GPU's name and the driver's version; "" where there is none. */
void power_describe(char ret_name[96], char ret_driver[96]);
