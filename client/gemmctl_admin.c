/*
 * gemmctl status, stats, explain, tune: questions whose answers are printed as they come.
 */
#include "../proto/request.h"
#include "gemmctl.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    OPTION_JSON = CTL_OPTION_OWN,
    OPTION_DTYPE,
    OPTION_OUT_DTYPE,
    OPTION_LAYOUT,
    OPTION_BATCH,
    OPTION_KEEP,
    OPTION_BIAS,
    OPTION_ACTIVATION,
};

/* Takes the answer. */
static int print_answer(struct gemmctl *ctl, char *json, bool as_json)
{
    int status = CTL_OK;

    if (as_json)
        (void)printf("%s\n", json);
    else if (!ctl_print_json(stdout, json))
        status = ctl_fail(ctl, "the daemon's answer is not JSON: %.200s", json);
    gemmd_free(json);
    return status;
}

static int
ask(struct gemmctl *ctl, int argc, char **argv, gemmd_status (*question)(gemmd *, char **))
{
    static const struct option options[] = {
        {"json", no_argument, NULL, OPTION_JSON},
        CTL_COMMON_OPTIONS,
    };
    bool as_json = false;
    int option, status;
    char *json;

    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG)
            return CTL_USAGE;
        as_json = true;
    }
    status = ctl_no_more(ctl, argc, argv);
    if (status == CTL_OK)
        status = ctl_connect(ctl);
    if (status != CTL_OK)
        return status;
    if (question(ctl->connection, &json) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    return print_answer(ctl, json, as_json);
}

int ctl_status(struct gemmctl *ctl, int argc, char **argv)
{
    return ask(ctl, argc, argv, gemmd_status_json);
}

int ctl_stats(struct gemmctl *ctl, int argc, char **argv)
{
    return ask(ctl, argc, argv, gemmd_stats_json);
}

/* Of explain and tune. */
struct shape_arguments {
    struct problem problem;
    int64_t keep; /* 0: not given */
    bool as_json;
};

static int take_keep(const struct gemmctl *ctl, int64_t *ret_keep)
{
    int status = ctl_parse_count(ctl, "--keep", optarg, ret_keep);

    if (status == CTL_OK && (*ret_keep < 1 || *ret_keep > REQUEST_KEEP_MAX))
        return ctl_usage(ctl, "--keep is '%s'; allowed are 1 to %d", optarg, REQUEST_KEEP_MAX);
    return status;
}

static int take_shape_option(const struct gemmctl *ctl, int option, struct shape_arguments *ret)
{
    struct problem *problem = &ret->problem;

    switch (option) {
    case OPTION_DTYPE:
        return ctl_parse_dtype(ctl, "--dtype", optarg, &problem->input);
    case OPTION_OUT_DTYPE:
        return ctl_parse_dtype(ctl, "--out-dtype", optarg, &problem->output);
    case OPTION_LAYOUT:
        return ctl_parse_layout(ctl, optarg, &problem->trans_a, &problem->trans_b);
    case OPTION_BATCH:
        return ctl_parse_count(ctl, "--batch", optarg, &problem->batch);
    case OPTION_KEEP:
        return take_keep(ctl, &ret->keep);
    case OPTION_BIAS:
        return ctl_parse_axis(ctl, "--bias", optarg, &problem->bias);
    case OPTION_ACTIVATION:
        return ctl_parse_activation(ctl, optarg, &problem->activation);
    default:
        ret->as_json = true;
        return CTL_OK;
    }
}

static int
take_explain_sizes(const struct gemmctl *ctl, int argc, char **argv, struct problem *problem)
{
    const struct {
        const char *name;
        int64_t *value;
    } sizes[] = {{"M", &problem->m}, {"N", &problem->n}, {"K", &problem->k}};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        int status;

        if (optind == argc)
            return ctl_usage(ctl, "%s is missing", sizes[i].name);
        status = ctl_parse_count(ctl, sizes[i].name, argv[optind++], sizes[i].value);
        if (status != CTL_OK)
            return status;
    }
    return ctl_no_more(ctl, argc, argv);
}

static struct shape_arguments no_shape(void)
{
    struct shape_arguments arguments = {.problem = {.input = DTYPE_BF16, .batch = 1, .alpha = 1}};

    problem_leave_layouts(&arguments.problem);
    return arguments;
}

static int complete(const struct gemmctl *ctl, struct problem *problem)
{
    struct fault fault;

    if (problem->output == DTYPE_NONE)
        problem->output = dtype_default_output(problem->input);
    problem_fill_defaults(problem);
    return problem_check(problem, false, &fault) == STATUS_OK ? CTL_OK
                                                              : ctl_usage(ctl, "%s", fault.message);
}

static int explain_problem(struct gemmctl *ctl, struct shape_arguments *arguments)
{
    gemmd_product product;
    char *json;
    int status = complete(ctl, &arguments->problem);

    if (status == CTL_OK)
        status = ctl_connect(ctl);
    if (status != CTL_OK)
        return status;
    ctl_product(&arguments->problem, &product);
    if (gemmd_explain_json(ctl->connection, &product, &json) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    return print_answer(ctl, json, arguments->as_json);
}

static const struct option explain_options[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {"bias", required_argument, NULL, OPTION_BIAS},
    {"activation", required_argument, NULL, OPTION_ACTIVATION},
    {"dtype", required_argument, NULL, OPTION_DTYPE},
    {"out-dtype", required_argument, NULL, OPTION_OUT_DTYPE},
    {"layout", required_argument, NULL, OPTION_LAYOUT},
    {"batch", required_argument, NULL, OPTION_BATCH},
    CTL_COMMON_OPTIONS,
};

int ctl_explain(struct gemmctl *ctl, int argc, char **argv)
{
    struct shape_arguments arguments = no_shape();
    int option, status;

    while ((option = ctl_option(ctl, argc, argv, explain_options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_shape_option(ctl, option, &arguments) != CTL_OK)
            return CTL_USAGE;
    }
    status = take_explain_sizes(ctl, argc, argv, &arguments.problem);
    return status == CTL_OK ? explain_problem(ctl, &arguments) : status;
}

/* --- tune ------------------------------------------------------------------------------------ */

static int parse_shape(const struct gemmctl *ctl,
                       const char *text,
                       const struct problem *kind,
                       struct problem *ret)
{
    long long m, n, k;
    char rest;

    if (sscanf(text, "%lldx%lldx%lld%c", &m, &n, &k, &rest) != 3 || m < 1 || n < 1 || k < 1)
        return ctl_usage(ctl,
                         "'%s' is neither a shape, MxNxK such as 128x4096x7168, nor a file of "
                         "shapes",
                         text);
    *ret = *kind;
    ret->m = m;
    ret->n = n;
    ret->k = k;
    return complete(ctl, ret);
}

/* A line of a benchmark's suite: group,dtype,layout,m,n,k. False: it is none; its type may be one
 * that this version does not have. */
static bool parse_line(const char *line, const struct problem *kind, struct problem *ret)
{
    char dtype[16], layout[3];
    long long m, n, k;
    struct fault fault;

    *ret = *kind;
    if (sscanf(line, "%*[^,],%15[^,],%2[nt],%lld,%lld,%lld", dtype, layout, &m, &n, &k) != 5 ||
        strlen(layout) != 2 || !dtype_from_name(dtype, strlen(dtype), &ret->input))
        return false;
    if (ret->output == DTYPE_NONE)
        ret->output = dtype_default_output(ret->input);
    ret->trans_a = layout[0] == 't';
    ret->trans_b = layout[1] == 't';
    ret->m = m;
    ret->n = n;
    ret->k = k;
    problem_fill_defaults(ret);
    return problem_check(ret, false, &fault) == STATUS_OK;
}

static int tune_problem(struct gemmctl *ctl,
                        const struct problem *problem,
                        const struct shape_arguments *arguments)
{
    gemmd_product product;
    char *json;
    int status;

    ctl_product(problem, &product);
    if (gemmd_tune_json(ctl->connection, &product, (uint32_t)arguments->keep, &json) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    if (!arguments->as_json)
        (void)printf("%lldx%lldx%lld\n", (long long)problem->m, (long long)problem->n,
                     (long long)problem->k);
    status = print_answer(ctl, json, arguments->as_json);
    (void)fflush(stdout); /* the next one takes its time */
    return status;
}

static int tune_file(struct gemmctl *ctl, const char *path, const struct shape_arguments *arguments)
{
    FILE *file = fopen(path, "re");
    struct problem problem;
    char line[256];
    int status = CTL_OK, shapes = 0;

    if (!file)
        return ctl_fail(ctl, "%s: %s", path, strerror(errno));
    while (status == CTL_OK && fgets(line, sizeof(line), file)) {
        if (!parse_line(line, &arguments->problem, &problem))
            continue;
        shapes++;
        status = tune_problem(ctl, &problem, arguments);
    }
    if (ferror(file)) /* a directory */
        status = ctl_fail(ctl, "%s: %s", path, strerror(errno));
    else if (shapes == 0)
        status = ctl_fail(ctl, "%s: no line of it is a shape, group,dtype,layout,m,n,k", path);
    (void)fclose(file);
    return status;
}

static int
tune_argument(struct gemmctl *ctl, const char *argument, const struct shape_arguments *arguments)
{
    struct problem problem;
    int status;

    if (access(argument, R_OK) == 0)
        return tune_file(ctl, argument, arguments);
    status = parse_shape(ctl, argument, &arguments->problem, &problem);
    return status == CTL_OK ? tune_problem(ctl, &problem, arguments) : status;
}

int ctl_tune(struct gemmctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, OPTION_JSON},
        {"dtype", required_argument, NULL, OPTION_DTYPE},
        {"out-dtype", required_argument, NULL, OPTION_OUT_DTYPE},
        {"layout", required_argument, NULL, OPTION_LAYOUT},
        {"batch", required_argument, NULL, OPTION_BATCH},
        {"keep", required_argument, NULL, OPTION_KEEP},
        CTL_COMMON_OPTIONS,
    };
    struct shape_arguments arguments = no_shape();
    struct problem problem;
    int option, status = CTL_OK;

    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_shape_option(ctl, option, &arguments) != CTL_OK)
            return CTL_USAGE;
    }
    if (optind == argc)
        return ctl_usage(
            ctl, "there is no shape; MxNxK is wanted, such as 128x4096x7168, or a file of shapes");
    /* All are looked at before the first is tuned. */
    for (int i = optind; i < argc && status == CTL_OK; i++)
        if (access(argv[i], R_OK) != 0)
            status = parse_shape(ctl, argv[i], &arguments.problem, &problem);
    if (status == CTL_OK)
        status = ctl_connect(ctl);
    for (int i = optind; i < argc && status == CTL_OK; i++)
        status = tune_argument(ctl, argv[i], &arguments);
    return status;
}
