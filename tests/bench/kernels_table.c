#include "kernels_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EQUAL 0.02 /* a ratio this near to 1 is neither ahead nor behind: the noise of a run */
#define CELL  16

double kernels_row_ratio(const struct kernels_row *row)
{
    return row->best > 0 && row->ours > 0 ? row->best / row->ours : 0;
}

static double tuned_ratio(const struct kernels_row *row)
{
    return row->best > 0 && row->tuned > 0 ? row->best / row->tuned : 0;
}

static double first_choice(const struct kernels_row *row)
{
    return row->tuned > 0 ? row->tuned / row->ours : 0;
}

/* --- rows ------------------------------------------------------------------------------------ */

void kernels_table_header(FILE *to)
{
    fprintf(to, "group,dtype,layout,m,n,k,config,us,cublaslt_first_us,cublaslt_best_us,ratio,"
                "tuned_ratio,error,clock_mhz,watts,verdict\n");
}

static const char *row_verdict(const struct kernels_row *row, const struct goals *goals)
{
    double floor = goals_floor(goals, &row->shape), ratio = kernels_row_ratio(row);

    if (ratio == 0 || isnan(floor))
        return "";
    return ratio >= floor ? "met" : "missed";
}

void kernels_table_row(FILE *to, const struct kernels_row *row, const struct goals *goals)
{
    const struct shape *shape = &row->shape;
    double tuned = tuned_ratio(row);
    char text[CELL] = "";

    if (tuned > 0)
        (void)snprintf(text, sizeof(text), "%.4f", tuned);
    fprintf(to, "%s,%s,%c%c,%lld,%lld,%lld,%s,%.3f,%.3f,%.3f,%.4f,%s,%.3g,%u,%u,%s\n", shape->group,
            dtype_name(shape->dtype), shape->trans_a ? 't' : 'n', shape->trans_b ? 't' : 'n',
            (long long)shape->m, (long long)shape->n, (long long)shape->k, row->config,
            row->ours * 1e6, row->first * 1e6, row->best * 1e6, kernels_row_ratio(row), text,
            row->error, row->clock_mhz, row->watts, row_verdict(row, goals));
}

enum { AT_DTYPE = 1, AT_LAYOUT, AT_M, AT_N, AT_K, AT_CONFIG, AT_OURS, AT_FIRST, AT_BEST };

enum { AT_TUNED = AT_BEST + 2, AT_ERROR, AT_CLOCK, AT_WATTS, FIELDS };

static bool parse(char *line, struct kernels_row *ret_row)
{
    char *field[FIELDS], *rest = line, size[96];
    size_t count = 0;
    double best, tuned;

    while (rest && count < FIELDS)
        field[count++] = strsep(&rest, ",\n");
    while (count < FIELDS)
        field[count++] = "";
    (void)snprintf(size, sizeof(size), "%sx%sx%s", field[AT_M], field[AT_N], field[AT_K]);
    if (!shape_from_text(size, field[AT_DTYPE], field[AT_LAYOUT], &ret_row->shape))
        return false;
    (void)snprintf(ret_row->shape.group, sizeof(ret_row->shape.group), "%.*s",
                   (int)sizeof(ret_row->shape.group) - 1, field[0]);
    (void)snprintf(ret_row->config, sizeof(ret_row->config), "%.*s", CONFIG_TEXT_MAX - 1,
                   field[AT_CONFIG]);
    best = strtod(field[AT_BEST], NULL) * 1e-6;
    tuned = strtod(field[AT_TUNED], NULL);
    ret_row->ours = strtod(field[AT_OURS], NULL) * 1e-6;
    ret_row->first = strtod(field[AT_FIRST], NULL) * 1e-6;
    ret_row->best = best;
    ret_row->tuned = tuned > 0 ? best / tuned : 0;
    ret_row->error = strtod(field[AT_ERROR], NULL);
    ret_row->clock_mhz = (unsigned)strtoul(field[AT_CLOCK], NULL, 10);
    ret_row->watts = (unsigned)strtoul(field[AT_WATTS], NULL, 10);
    return ret_row->ours > 0;
}

int kernels_table_read(const char *path, struct kernels_row *ret_rows, size_t *ret_count)
{
    FILE *file = fopen(path, "re");
    char line[512];
    size_t count = 0;

    if (!file) {
        fprintf(stderr, "gemmd-bench: %s: %m\n", path);
        return -1;
    }
    while (fgets(line, sizeof(line), file) && count < SHAPES_MAX) {
        if (line[0] != '#' && parse(line, &ret_rows[count]))
            count++;
    }
    fclose(file);
    *ret_count = count;
    return 0;
}

/* --- the summary ----------------------------------------------------------------------------- */

/* Of some rows: logarithms add up to geometric means. */
struct sums {
    size_t rows, with_peer, tuned, chosen, below, ahead, equal, behind;
    double ratio, tuned_ratio, first_choice; /* sums of logarithms */
    double worst;
};

static void add(struct sums *sums, const struct kernels_row *row, const struct goals *goals)
{
    double ratio = kernels_row_ratio(row);

    sums->rows++;
    if (row->tuned > 0) {
        sums->chosen++;
        sums->first_choice += log(first_choice(row));
    }
    if (ratio == 0)
        return;
    sums->worst = sums->with_peer == 0 ? ratio : MIN(sums->worst, ratio);
    sums->with_peer++;
    sums->ratio += log(ratio);
    sums->below += strcmp(row_verdict(row, goals), "missed") == 0;
    sums->ahead += ratio > 1 + EQUAL;
    sums->behind += ratio < 1 - EQUAL;
    sums->equal += fabs(ratio - 1) <= EQUAL;
    if (row->tuned > 0) {
        sums->tuned++;
        sums->tuned_ratio += log(tuned_ratio(row));
    }
}

static double mean(double sum, size_t count)
{
    return count > 0 ? exp(sum / (double)count) : NAN;
}

static const char *cell(double value, char ret_text[CELL])
{
    (void)snprintf(ret_text, CELL, isnan(value) ? "-" : "%.3f", value);
    return ret_text;
}

static bool print_sums(FILE *to,
                       const char *prefix,
                       const char *group,
                       const struct sums *sums,
                       const struct goal *goal)
{
    char mean_text[CELL], goal_text[CELL], worst[CELL], floor[CELL], tuned[CELL], first[CELL];
    double reached = mean(sums->ratio, sums->with_peer);
    bool is_judged = goal && !goal->is_later && sums->with_peer > 0;
    bool is_met = !is_judged || (sums->below == 0 && (isnan(goal->mean) || reached >= goal->mean));
    const char *verdict = !is_judged ? goal && goal->is_later ? "later" : "" : "met";

    fprintf(to, "%s%-17s %4zu %7s %6s %7s %6s %5zu  %5zu %5zu %6zu %7s %7s  %s\n", prefix, group,
            sums->rows, cell(reached, mean_text), cell(goal ? goal->mean : NAN, goal_text),
            cell(sums->with_peer ? sums->worst : NAN, worst), cell(goal ? goal->floor : NAN, floor),
            sums->below, sums->ahead, sums->equal, sums->behind,
            cell(mean(sums->tuned_ratio, sums->tuned), tuned),
            cell(mean(sums->first_choice, sums->chosen), first), is_met ? verdict : "missed");
    return is_met;
}

static bool
print_first_choice(FILE *to, const char *prefix, const struct sums *all, const struct goal *goal)
{
    double reached = mean(all->first_choice, all->chosen);
    bool is_met = !goal || !(reached < goal->mean);
    char text[CELL], goal_text[CELL];

    if (all->chosen == 0)
        return true;
    fprintf(to, "%s%s against the best that was tried, %zu rows: %s, goal %s: %s\n", prefix,
            GOALS_FIRST_CHOICE, all->chosen, cell(reached, text),
            cell(goal ? goal->mean : NAN, goal_text), is_met ? "met" : "missed");
    return is_met;
}

static bool is_first_of_group(const struct kernels_row *rows, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(rows[i].shape.group, rows[at].shape.group) == 0)
            return false;
    return true;
}

bool kernels_table_summary(FILE *to,
                           const char *prefix,
                           const struct kernels_row *rows,
                           size_t count,
                           const struct goals *goals)
{
    struct sums all = {0};
    bool is_met = true;

    fprintf(to, "%s%-17s %4s %7s %6s %7s %6s %5s  %5s %5s %6s %7s %7s  %s\n", prefix, "group",
            "rows", "mean", "goal", "worst", "floor", "below", "ahead", "equal", "behind", "tuned",
            "choice", "verdict");
    for (size_t i = 0; i < count; i++) {
        const char *group = rows[i].shape.group;
        struct sums sums = {0};

        add(&all, &rows[i], goals);
        if (!is_first_of_group(rows, i))
            continue;
        for (size_t j = i; j < count; j++)
            if (strcmp(rows[j].shape.group, group) == 0)
                add(&sums, &rows[j], goals);
        is_met = print_sums(to, prefix, group, &sums, goals_of_group(goals, group)) && is_met;
    }
    return print_first_choice(to, prefix, &all, goals_of_group(goals, GOALS_FIRST_CHOICE)) &&
           is_met;
}
