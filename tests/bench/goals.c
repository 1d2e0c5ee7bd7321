#include "goals.h"

#include "goals_text.h" /* goals.csv, by the build */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 7

static double number_or(const char *text, double fallback)
{
    return *text ? strtod(text, NULL) : fallback;
}

/* Fields may be empty, which is why this is not sscanf(). */
static bool parse(char *line, struct goal *ret_goal)
{
    char *field[FIELDS], *rest = line;
    size_t count = 0;

    line[strcspn(line, "\r\n")] = '\0';
    while (rest && count < FIELDS)
        field[count++] = strsep(&rest, ",");
    if (count != FIELDS || rest || !*field[0] || strlen(field[0]) >= sizeof(ret_goal->group))
        return false;
    *ret_goal = (struct goal){
        .m = (int64_t)number_or(field[1], 0),
        .n = (int64_t)number_or(field[2], 0),
        .k = (int64_t)number_or(field[3], 0),
        .mean = number_or(field[4], NAN),
        .floor = number_or(field[5], NAN),
        .is_later = strcmp(field[6], "1") == 0,
    };
    (void)snprintf(ret_goal->group, sizeof(ret_goal->group), "%s", field[0]);
    return true;
}

static int read_stream(FILE *file, const char *name, struct goals *ret_goals)
{
    char line[256];
    bool has_header = false;

    ret_goals->count = 0;
    for (int number = 1; fgets(line, sizeof(line), file); number++) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (!has_header) {
            has_header = true;
            continue;
        }
        if (ret_goals->count == GOALS_MAX || !parse(line, &ret_goals->of[ret_goals->count])) {
            fprintf(stderr, "gemmd-bench: %s:%d: not group,m,n,k,mean,floor,later, or over %d\n",
                    name, number, GOALS_MAX);
            return -1;
        }
        ret_goals->count++;
    }
    return 0;
}

void goals_default(struct goals *ret_goals)
{
    FILE *file = fmemopen((void *)(uintptr_t)goals_text, strlen(goals_text), "r");
    int r = file ? read_stream(file, "goals.csv", ret_goals) : -1;

    assert(r == 0); /* the file is ours: a test reads it */
    if (file)
        fclose(file);
}

int goals_read(const char *path, struct goals *ret_goals)
{
    FILE *file = fopen(path, "re");
    int r;

    if (!file) {
        fprintf(stderr, "gemmd-bench: %s: %m\n", path);
        return -1;
    }
    r = read_stream(file, path, ret_goals);
    fclose(file);
    return r;
}

const struct goal *goals_of_group(const struct goals *goals, const char *group)
{
    for (size_t i = 0; i < goals->count; i++)
        if (goals->of[i].m == 0 && strcmp(goals->of[i].group, group) == 0)
            return &goals->of[i];
    return NULL;
}

double goals_floor(const struct goals *goals, const struct shape *shape)
{
    const struct goal *of_group = goals_of_group(goals, shape->group);

    for (size_t i = 0; i < goals->count; i++) {
        const struct goal *goal = &goals->of[i];

        if (strcmp(goal->group, shape->group) == 0 && goal->m == shape->m && goal->n == shape->n &&
            goal->k == shape->k)
            return goal->floor;
    }
    return of_group ? of_group->floor : NAN;
}
