/*
 * The goals of the kernels' table, out of goals.csv: a mean for each group, a floor for each row.
 */
#pragma once

#include "shapes.h"

#define GOALS_MAX          64
#define GOALS_FIRST_CHOICE "first choice" /* the group that stands for all rows */

struct goal {
    char group[24];
    int64_t m, n, k;    /* 0: every product of the group */
    double mean, floor; /* NaN: none */
    bool is_later;      /* reported, not judged */
};

struct goals {
    size_t count;
    struct goal of[GOALS_MAX];
};

/* The committed file, built in. */
void goals_default(struct goals *ret_goals);
/* 0, or -1 with a line on stderr. */
int goals_read(const char *path, struct goals *ret_goals);
/* The group's own line; NULL when it has no goal. */
const struct goal *goals_of_group(const struct goals *goals, const char *group);
/* NaN when nothing is asked of the product. */
double goals_floor(const struct goals *goals, const struct shape *shape);
