/*
 * What `gemmd-bench ladder` prints: a row for each step, as CSV and for people.
 */
#pragma once

#include "ladder_steps.h"

#include <stdio.h>

struct ladder_row {
    const char *step;
    struct config config;
    double seconds, stamped_seconds; /* of the kernel, and of its instrumented build; 0: failed */
    double peer;                     /* of cuBLASLt's best, beside it; 0: there is none */
    unsigned clock_mhz, watts;       /* while it ran */
    double flop, error;              /* worst, over the bound */
    struct stamps_figures figures;
    bool has_figures;
    uint32_t registers;
    double compile_seconds;
};

void ladder_table_print(FILE *to, const struct ladder_row *rows, size_t count);
