/*
 * The one clock of deadlines, completions and recoveries: CLOCK_MONOTONIC, which all processes of
 * the machine share, so that the worker's stamps and the front's may be compared.
 */
#pragma once

#include "std.h"

uint64_t clock_now_ns(void);
