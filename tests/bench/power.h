/*
 * Clock and power at this moment, from NVML where it is installed: a large product is limited by
 * power, so a figure without them says little.
 */
#pragma once

#include "../../daemon/core/std.h"

struct power {
    unsigned clock_mhz, watts; /* 0: not known */
};

struct power power_now(const char *uuid); /* of the GPU, "GPU-..." */
