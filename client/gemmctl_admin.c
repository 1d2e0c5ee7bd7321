/*
 * gemmctl status, stats, explain: questions whose answers are printed as they come.
 */
#include "gemmctl.h"

#include <string.h>

enum {
    OPTION_JSON = CTL_OPTION_OWN,
    OPTION_DTYPE,
    OPTION_OUT_DTYPE,
    OPTION_LAYOUT,
    OPTION_BATCH,
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

struct explain_arguments {
    struct problem problem;
    bool as_json;
};

static int take_explain_option(const struct gemmctl *ctl, int option, struct explain_arguments *ret)
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

static int explain_problem(struct gemmctl *ctl, struct explain_arguments *arguments)
{
    struct problem *problem = &arguments->problem;
    gemmd_product product;
    struct fault fault;
    char *json;
    int status;

    if (problem->output == DTYPE_NONE)
        problem->output = dtype_default_output(problem->input);
    problem_fill_defaults(problem);
    if (problem_check(problem, false, &fault) != STATUS_OK)
        return ctl_usage(ctl, "%s", fault.message);
    status = ctl_connect(ctl);
    if (status != CTL_OK)
        return status;
    ctl_product(problem, &product);
    if (gemmd_explain_json(ctl->connection, &product, &json) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    return print_answer(ctl, json, arguments->as_json);
}

int ctl_explain(struct gemmctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, OPTION_JSON},
        {"dtype", required_argument, NULL, OPTION_DTYPE},
        {"out-dtype", required_argument, NULL, OPTION_OUT_DTYPE},
        {"layout", required_argument, NULL, OPTION_LAYOUT},
        {"batch", required_argument, NULL, OPTION_BATCH},
        CTL_COMMON_OPTIONS,
    };
    struct explain_arguments arguments = {
        .problem = {.input = DTYPE_BF16, .batch = 1, .alpha = 1},
    };
    int option, status;

    for (int i = 0; i < OPERAND_COUNT; i++)
        arguments.problem.operand[i] = (struct problem_operand){PROBLEM_DEFAULT, PROBLEM_DEFAULT};
    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_explain_option(ctl, option, &arguments) != CTL_OK)
            return CTL_USAGE;
    }
    status = take_explain_sizes(ctl, argc, argv, &arguments.problem);
    return status == CTL_OK ? explain_problem(ctl, &arguments) : status;
}
