#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_START "measurement,"

/* The next field of a line, cut to fit; false at its end. */
static bool next_field(const char **at, char ret[FIGURE_NAME])
{
    if (!*at)
        return false;
    size_t length = strcspn(*at, ",");
    (void)snprintf(ret, FIGURE_NAME, "%.*s", (int)length, *at);
    *at = (*at)[length] == ',' ? *at + length + 1 : NULL;
    return true;
}

static void take_header(struct figures *figures, const char *line)
{
    figures->columns = 0;
    while (figures->columns < FIGURE_COLUMNS &&
           next_field(&line, figures->header[figures->columns]))
        figures->columns++;
}

static void take_row(struct figures *figures, const char *line)
{
    char measurement[FIGURE_NAME], field[FIGURE_NAME];
    (void)next_field(&line, measurement);
    for (size_t i = 1; i < figures->columns && next_field(&line, field); i++) {
        char *end;
        double value = strtod(field, &end);
        if (end == field || *end != '\0' || figures->count == FIGURES_MAX)
            continue;
        struct figure *figure = &figures->items[figures->count++];
        (void)strcpy(figure->measurement, measurement);
        (void)strcpy(figure->column, figures->header[i]);
        figure->value = value;
    }
}

void figures_take(struct figures *figures, const char *line)
{
    if (strncmp(line, HEADER_START, strlen(HEADER_START)) == 0)
        take_header(figures, line);
    else if (line[0] != '#' && line[0] != '\0' && figures->columns > 0)
        take_row(figures, line);
}

double figures_find(const struct figures *figures, const char *measurement, const char *column)
{
    double value = NAN;
    for (size_t i = 0; i < figures->count; i++) {
        const struct figure *figure = &figures->items[i];
        if (strcmp(figure->measurement, measurement) == 0 && strcmp(figure->column, column) == 0)
            value = fmax(value, figure->value); /* fmax passes over NaN */
    }
    return value;
}
