/*
 * What a command has printed, as numbers: a line that begins with "measurement," names the columns
 * of the lines that follow, and a figure is found by its line's first field and its column.
 */
#pragma once

#include "../../daemon/core/std.h"

#define FIGURES_MAX    512
#define FIGURE_NAME    48
#define FIGURE_COLUMNS 32

struct figure {
    char measurement[FIGURE_NAME], column[FIGURE_NAME];
    double value;
};

struct figures {
    size_t count, columns;
    char header[FIGURE_COLUMNS][FIGURE_NAME];
    struct figure items[FIGURES_MAX];
};

/* One line, without its newline. Lines for people ('#') and fields that are no number are passed
 * over. */
void figures_take(struct figures *figures, const char *line);
/* The largest of that name: of several configurations the slowest counts. NaN: none. */
double figures_find(const struct figures *figures, const char *measurement, const char *column);
