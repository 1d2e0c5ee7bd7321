/*
 * The parts of `service`, and which figure of which part stands in which row of its table.
 */
#pragma once

#include "figures.h"
#include "table.h"

enum service_part {
    PART_LATENCY,
    PART_SHARE_ONE,
    PART_COLD,
    PART_SHARE,
    PART_HOST,
    PART_COMPILE,
    PART_FAULT,
    PART_IDLE,
    PART_FAIR,
    PART_SHARE_SMALL,
    PART_SHARE_SMALL_DEEP,
    PART_SHARE_MIDDLE,
    PART_PEER_MIDDLE,
    PART_COUNT,
};

struct service_command {
    const char *name;
    double limit;             /* seconds */
    const char *full, *brief; /* arguments, separated by spaces */
    bool asks_daemon, shares; /* takes --socket; takes --mps */
};

#define SERVICE_ROWS_MAX 32

extern const struct service_command service_commands[PART_COUNT];

/* Fills the table from the parts' figures; how many rows. */
size_t service_rows(const struct figures figures[PART_COUNT],
                    struct table_row ret_rows[SERVICE_ROWS_MAX]);

/* For each row whose goal is missed, the figures that stand beside its own: the line it is from,
 * and that of the measurement with "-stages" behind its name. */
void service_print_stages(FILE *to,
                          const struct figures figures[PART_COUNT],
                          const struct table_row *rows,
                          size_t count);
