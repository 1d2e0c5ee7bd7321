/*
 * The service table: what was measured, the peer beside it, the goal, and whether it is met.
 */
#pragma once

#include "../../daemon/core/std.h"

#include <stdio.h>

enum goal_kind {
    GOAL_AT_MOST,
    GOAL_AT_LEAST,
    GOAL_WITHIN,        /* goal to goal_high */
    GOAL_AT_MOST_PEER,  /* goal times the peer */
    GOAL_AT_LEAST_PEER, /* goal times the peer */
};

struct table_row {
    const char *name, *unit;
    double peer, ours; /* NaN: not measured */
    enum goal_kind kind;
    double goal, goal_high;
    bool is_later; /* a goal of a later version: reported, not judged */
};

enum table_verdict { TABLE_MET, TABLE_MISSED, TABLE_NOT_MEASURED, TABLE_NO_PEER };

enum table_verdict table_judge(const struct table_row *row);
const char *table_verdict_name(enum table_verdict verdict);
void table_print(FILE *to, const struct table_row *rows, size_t count); /* for people */
void table_print_csv(FILE *to, const struct table_row *rows, size_t count);
