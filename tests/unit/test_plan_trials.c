/*
 * The cost model against every trial of an H200 that lies in tests/bench/results: how far its first
 * choice is from the best that was tried, and how far its times are from the measured ones. A trial
 * lasts some ten milliseconds and is off by up to 4 %.
 *
 * In a row of launches up to eight grids that leave room run beside each other, and a long K by few
 * CTAs, which takes long by itself, looks best there: 64x2112x7168 by 33 CTAs 8 us, where these
 * alone need some 20. The plan takes what is fast by itself, and is worse by such a trial.
 *
 * Configurations that were not tried are passed over, as are trials of those that are gone. Where a
 * configuration was tried with another number of splits than the plan takes now, nobody knows how
 * good the choice is, and the product is left out.
 */
#include "plan_fixture.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRIALS_MAX  4096
#define LINE_LENGTH 512
#define NEAR_BEST   1.25 /* of the shortest trial: what is far behind may be predicted worse */

struct trial {
    struct problem problem;
    struct config config;
    unsigned splits;
    double seconds;
};

static struct trial trials[TRIALS_MAX];

/* --- the files ------------------------------------------------------------------------------- */

static struct problem
problem_of(enum dtype dtype, const char *layout, int64_t m, int64_t n, int64_t k)
{
    struct problem problem = {.input = dtype,
                              .output = dtype_default_output(dtype),
                              .m = m,
                              .n = n,
                              .k = k,
                              .batch = 1,
                              .alpha = 1,
                              .trans_a = layout[0] == 't',
                              .trans_b = layout[1] == 't'};

    problem_leave_layouts(&problem);
    problem_fill_defaults(&problem);
    return problem;
}

/* group,dtype,layout,m,n,k,config,splits,us,... */
static bool trial_from_line(const char *line, struct trial *ret_trial)
{
    char type[16], layout[4], text[CONFIG_TEXT_MAX];
    long long m, n, k;
    double us;
    enum dtype dtype;

    if (sscanf(line, "%*[^,],%15[^,],%2[^,],%lld,%lld,%lld,%95[^,],%u,%lf", type, layout, &m, &n,
               &k, text, &ret_trial->splits, &us) != 8 ||
        !dtype_from_name(type, strlen(type), &dtype) || !config_from_text(text, &ret_trial->config))
        return false;
    ret_trial->problem = problem_of(dtype, layout, m, n, k);
    ret_trial->seconds = us * 1e-6;
    return isfinite(us) && us > 0;
}

static size_t read_trials(const char *name)
{
    char path[512], line[LINE_LENGTH];
    size_t count = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", RESULTS, name);
    file = fopen(path, "r");
    cr_assert(file, "%s", path);
    while (count < TRIALS_MAX && fgets(line, sizeof line, file))
        count += trial_from_line(line, &trials[count]);
    fclose(file);
    cr_assert_gt(count, 0, "%s has no trials", path);
    return count;
}

/* Trials of one product follow each other. */
static size_t same_problem(const struct trial *first, size_t left)
{
    size_t count = 1;

    while (count < left &&
           memcmp(&first[count].problem, &first->problem, sizeof(struct problem)) == 0)
        count++;
    return count;
}

/* --- the model beside them ------------------------------------------------------------------- */

struct verdict {
    size_t products, predictions;
    double log_choice; /* sum of log(best / first choice) */
    double worst;
    double log_error, squares; /* of log(predicted / measured), near the best */
};

/* Of this configuration, with this number of splits if there is one. */
static const struct trial *
trial_of(const struct plan *plan, const struct trial *first, size_t count)
{
    const struct trial *found = NULL;

    for (size_t i = 0; i < count; i++)
        if (config_equal(&first[i].config, &plan->config) &&
            (!found || first[i].splits == plan->splits))
            found = &first[i];
    return found;
}

static void judge_choice(const struct trial *chosen, double best, struct verdict *verdict)
{
    verdict->products++;
    verdict->log_choice += log(best / chosen->seconds);
    verdict->worst = fmin(verdict->worst, best / chosen->seconds);
}

static void judge_prediction(const struct plan *plan,
                             const struct trial *trial,
                             double best,
                             struct verdict *verdict)
{
    double error = log(plan->predicted_seconds / trial->seconds);

    if (trial->seconds > best * NEAR_BEST)
        return;
    verdict->log_error += error;
    verdict->squares += error * error;
    verdict->predictions++;
}

static void judge(const struct trial *first, size_t count, struct verdict *verdict)
{
    static struct plan_ranking ranking;
    struct fault fault = FAULT_NONE;
    double best = INFINITY;
    bool has_choice = false;

    cr_assert_eq(plan_rank(&first->problem, aligned, &h200, &ranking, &fault), STATUS_OK);
    for (size_t i = 0; i < count; i++)
        best = fmin(best, first[i].seconds);
    for (size_t i = 0; i < ranking.count; i++) {
        const struct plan *plan = &ranking.plan[i];
        const struct trial *trial = trial_of(plan, first, count);
        bool is_known = trial && trial->splits == plan->splits;

        if (is_known && !has_choice)
            judge_choice(trial, best, verdict);
        if (is_known)
            judge_prediction(plan, trial, best, verdict);
        has_choice = has_choice || trial;
    }
}

struct expectation {
    char file[64];
    double choice; /* geometric mean of best / first choice: bench/README.md asks for 0.96 */
    double worst;
    double error; /* root of the mean square of log(predicted / measured) */
};

ParameterizedTestParameters(plan_trials, model)
{
    /* The first two files' kernels are the present ones. Those from the sixth file on began half a
     * microsecond later, and were slower to end: there choices are to stay good. */
    static struct expectation files[] = {
        {"20261130-nvidia-h200-kernels-suite-7.csv", 0.97, 0.65, 0.12},
        {"20261130-nvidia-h200-kernels-random-7.csv", 0.96, 0.5, 0.22},
        {"20261130-nvidia-h200-kernels-suite-6.csv", 0.97, 0.65, 0.12},
        {"20261130-nvidia-h200-kernels-random-6.csv", 0.96, 0.5, 0.2},
        {"20261130-nvidia-h200-kernels-model-2.csv", 0.97, 0.6, 0.16},
        {"20261129-nvidia-h200-kernels-suite-2.csv", 0.95, 0.55, 0.17},
        {"20261129-nvidia-h200-kernels-random.csv", 0.95, 0.5, 0.45},
        {"20261130-nvidia-h200-kernels-decode.csv", 0.96, 0.75, 0.15},
        {"20261130-nvidia-h200-kernels-decode-2.csv", 0.97, 0.8, 0.12},
        {"20261130-nvidia-h200-kernels-suite-3.csv", 0.97, 0.7, 0.15},
        {"20261130-nvidia-h200-kernels-random-2.csv", 0.95, 0.5, 0.28},
    };

    return cr_make_param_array(struct expectation, files, ARRAY_SIZE(files));
}

ParameterizedTest(struct expectation *expected, plan_trials, model)
{
    size_t count = read_trials(expected->file);
    struct verdict verdict = {.worst = 1};
    double choice, error, mean;

    for (size_t i = 0, same; i < count; i += same) {
        same = same_problem(&trials[i], count - i);
        judge(&trials[i], same, &verdict);
    }
    cr_assert_gt(verdict.products, 0);
    choice = exp(verdict.log_choice / (double)verdict.products);
    error = sqrt(verdict.squares / (double)verdict.predictions);
    mean = verdict.log_error / (double)verdict.predictions;
    printf("%s: %zu products: first choice / best %.3f, worst %.3f; %zu predictions near the best: "
           "error %.3f, mean %+.3f\n",
           expected->file, verdict.products, choice, verdict.worst, verdict.predictions, error,
           mean);
    cr_expect_geq(choice, expected->choice);
    cr_expect_geq(verdict.worst, expected->worst);
    cr_expect_leq(error, expected->error);
}
