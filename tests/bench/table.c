#include "table.h"

#include <math.h>

#define CELL      24
#define GOAL_CELL 72

static bool needs_peer(const struct table_row *row)
{
    return row->kind == GOAL_AT_MOST_PEER || row->kind == GOAL_AT_LEAST_PEER;
}

enum table_verdict table_judge(const struct table_row *row)
{
    bool is_met = false;
    if (isnan(row->ours))
        return TABLE_NOT_MEASURED;
    if (needs_peer(row) && isnan(row->peer))
        return TABLE_NO_PEER;
    switch (row->kind) {
    case GOAL_AT_MOST:
        is_met = row->ours <= row->goal;
        break;
    case GOAL_AT_LEAST:
        is_met = row->ours >= row->goal;
        break;
    case GOAL_WITHIN:
        is_met = row->ours >= row->goal && row->ours <= row->goal_high;
        break;
    case GOAL_AT_MOST_PEER:
        is_met = row->ours <= row->goal * row->peer;
        break;
    case GOAL_AT_LEAST_PEER:
        is_met = row->ours >= row->goal * row->peer;
        break;
    }
    return is_met ? TABLE_MET : TABLE_MISSED;
}

const char *table_verdict_name(enum table_verdict verdict)
{
    static const char *const names[] = {
        [TABLE_MET] = "met",
        [TABLE_MISSED] = "missed",
        [TABLE_NOT_MEASURED] = "not measured",
        [TABLE_NO_PEER] = "no peer",
    };
    return names[verdict];
}

/* Four digits are what these measurements are worth. */
static void describe(double value, char ret[CELL])
{
    if (isnan(value))
        (void)snprintf(ret, CELL, "-");
    else if (fabs(value) >= 1000)
        (void)snprintf(ret, CELL, "%.0f", value);
    else
        (void)snprintf(ret, CELL, "%.4g", value);
}

static void describe_goal(const struct table_row *row, char ret[GOAL_CELL])
{
    bool is_upper = row->kind == GOAL_AT_MOST || row->kind == GOAL_AT_MOST_PEER;
    char low[CELL], high[CELL];
    describe(row->goal, low);
    describe(row->goal_high, high);
    if (row->kind == GOAL_WITHIN)
        (void)snprintf(ret, GOAL_CELL, "%s to %s", low, high);
    else
        (void)snprintf(ret, GOAL_CELL, "%s %s%s", is_upper ? "<=" : ">=", low,
                       needs_peer(row) ? " x peer" : "");
}

void table_print(FILE *to, const struct table_row *rows, size_t count)
{
    fprintf(to, "%-58s %-8s %10s %10s  %-16s %s\n", "measurement", "unit", "peer", "ours", "goal",
            "verdict");
    for (size_t i = 0; i < count; i++) {
        char peer[CELL], ours[CELL], goal[GOAL_CELL];
        describe(rows[i].peer, peer);
        describe(rows[i].ours, ours);
        describe_goal(&rows[i], goal);
        fprintf(to, "%-58s %-8s %10s %10s  %-16s %s%s\n", rows[i].name, rows[i].unit, peer, ours,
                goal, table_verdict_name(table_judge(&rows[i])),
                rows[i].is_later ? " (later)" : "");
    }
}

void table_print_csv(FILE *to, const struct table_row *rows, size_t count)
{
    fprintf(to, "measurement,unit,peer,ours,goal,verdict,later\n");
    for (size_t i = 0; i < count; i++) {
        char peer[CELL], ours[CELL], goal[GOAL_CELL];
        describe(rows[i].peer, peer);
        describe(rows[i].ours, ours);
        describe_goal(&rows[i], goal);
        fprintf(to, "\"%s\",%s,%s,%s,%s,%s,%d\n", rows[i].name, rows[i].unit, peer, ours, goal,
                table_verdict_name(table_judge(&rows[i])), rows[i].is_later);
    }
}
