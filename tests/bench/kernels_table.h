/*
 * The kernels' table: its rows as CSV, written and read back, and what they say about the goals.
 */
#pragma once

#include "../../daemon/plan/config.h"
#include "goals.h"

#include <stdio.h>

struct kernels_row {
    struct shape shape;
    char config[CONFIG_TEXT_MAX];
    double ours, first, best; /* seconds; peer's 0: there is none */
    double tuned;             /* seconds of the best configuration that was tried; 0: not tried */
    double error;             /* worst, over the bound */
    unsigned clock_mhz, watts;
};

double kernels_row_ratio(const struct kernels_row *row); /* 0: no peer */

void kernels_table_header(FILE *to);
void kernels_table_row(FILE *to, const struct kernels_row *row, const struct goals *goals);
/* Rows of an earlier run; other lines are skipped. 0, or -1 with a line on stderr. */
int kernels_table_read(const char *path, struct kernels_row *ret_rows, size_t *ret_count);
/* A line for each group, and one for the plan's first choices. Each begins with `prefix`. False
 * when something that is judged is missed. */
bool kernels_table_summary(FILE *to,
                           const char *prefix,
                           const struct kernels_row *rows,
                           size_t count,
                           const struct goals *goals);
