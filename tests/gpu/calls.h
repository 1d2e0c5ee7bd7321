/*
 * The driver calls that are made beside a grid that does not leave, one function each, and what is
 * expected of them: driver.h's two lists, and what the design says of calls the daemon may use
 * later.
 */
#pragma once

#include "spin.h"

enum outcome {
    WORKS,
    HANGS,
    EITHER, /* stands in the second list unmeasured, or of no consequence: only reported */
};

struct call {
    const char *names; /* every driver call it stands for */
    enum outcome expected;
    CUresult (*make)(struct spin *spin);
};

extern const struct call calls[];
extern const size_t calls_count;
