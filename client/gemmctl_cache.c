/*
 * gemmctl cache: the daemon's compiled kernels.
 */
#include "../daemon/plan/config.h"
#include "gemmctl.h"

#include <inttypes.h>
#include <string.h>

enum {
    OPTION_JSON = CTL_OPTION_OWN,
    OPTION_ARCH,
    OPTION_MAX,
};

struct cache_arguments {
    bool as_json, has_max;
    uint64_t max_bytes;
    uint32_t arch; /* 0: not given */
};

static int list(struct gemmctl *ctl, const struct cache_arguments *arguments, bool verify)
{
    char *json;
    int status = CTL_OK;

    if (verify)
        ctl_progress(ctl, "verifying");
    if (gemmd_cache_list_json(ctl->connection, verify, &json) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    ctl_progress_end(ctl);
    if (arguments->as_json)
        (void)printf("%s\n", json);
    else if (!ctl_print_json(stdout, json))
        status = ctl_fail(ctl, "the daemon's answer is not JSON: %.200s", json);
    gemmd_free(json);
    return status;
}

static int prewarm_one(struct gemmctl *ctl, const char *configuration, size_t i, size_t count)
{
    double seconds;

    ctl_progress(ctl, "%zu of %zu  %s", i + 1, count, configuration);
    if (gemmd_cache_prewarm(ctl->connection, configuration, &seconds) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    ctl_progress_end(ctl);
    /* Milliseconds: it was there. */
    (void)printf("%-48s  %8.3f s\n", configuration, seconds);
    (void)fflush(stdout);
    return CTL_OK;
}

static int
prewarm(struct gemmctl *ctl, const struct cache_arguments *arguments, char **names, size_t count)
{
    struct config configs[CONFIG_LIST_MAX];
    size_t listed = arguments->arch ? config_list(arguments->arch, configs) : 0;
    char text[CONFIG_TEXT_MAX];
    int status = CTL_OK;

    for (size_t i = 0; i < count && status == CTL_OK; i++)
        status = prewarm_one(ctl, names[i], i, count + listed);
    for (size_t i = 0; i < listed && status == CTL_OK; i++) {
        config_to_text(&configs[i], text);
        status = prewarm_one(ctl, text, count + i, count + listed);
    }
    return status;
}

static int prune(struct gemmctl *ctl, const struct cache_arguments *arguments)
{
    uint64_t removed;

    if (gemmd_cache_prune(ctl->connection, arguments->max_bytes, &removed) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    (void)printf("%" PRIu64 " entries removed\n", removed);
    return CTL_OK;
}

static int take_option(const struct gemmctl *ctl, int option, struct cache_arguments *arguments)
{
    switch (option) {
    case OPTION_ARCH:
        return ctl_parse_arch(ctl, optarg, &arguments->arch);
    case OPTION_MAX:
        arguments->has_max = true;
        return ctl_parse_bytes(ctl, "--max", optarg, &arguments->max_bytes);
    default:
        arguments->as_json = true;
        return CTL_OK;
    }
}

/* `names` are the arguments after the verb. */
static int check_arguments(const struct gemmctl *ctl,
                           const struct cache_arguments *arguments,
                           const char *verb,
                           char **names,
                           size_t count)
{
    struct config config;

    if (strcmp(verb, "prewarm") == 0) {
        if (count == 0 && !arguments->arch)
            return ctl_usage(ctl, "prewarm wants configurations, or --arch ARCH for all");
        for (size_t i = 0; i < count; i++) {
            if (!config_from_text(names[i], &config))
                return ctl_usage(ctl,
                                 "'%s' is not a configuration; 'gemmctl compile --arch ARCH "
                                 "--list' names them",
                                 names[i]);
        }
        return CTL_OK;
    }
    if (count > 0)
        return ctl_usage(ctl, "unexpected argument '%s'", names[0]);
    if (strcmp(verb, "prune") == 0 && !arguments->has_max)
        return ctl_usage(ctl, "prune wants --max SIZE; 0 removes everything");
    if (strcmp(verb, "list") != 0 && strcmp(verb, "verify") != 0 && strcmp(verb, "prune") != 0)
        return ctl_usage(ctl, "'%s' is not list, verify, prewarm or prune", verb);
    return CTL_OK;
}

int ctl_cache(struct gemmctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, OPTION_JSON},
        {"arch", required_argument, NULL, OPTION_ARCH},
        {"max", required_argument, NULL, OPTION_MAX},
        CTL_COMMON_OPTIONS,
    };
    struct cache_arguments arguments = {0};
    const char *verb;
    int option, status;

    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_option(ctl, option, &arguments) != CTL_OK)
            return CTL_USAGE;
    }
    if (optind == argc)
        return ctl_usage(ctl, "one of list, verify, prewarm, prune is wanted");
    verb = argv[optind++];
    status = check_arguments(ctl, &arguments, verb, argv + optind, (size_t)(argc - optind));
    if (status == CTL_OK)
        status = ctl_connect(ctl);
    if (status != CTL_OK)
        return status;
    if (strcmp(verb, "prewarm") == 0)
        return prewarm(ctl, &arguments, argv + optind, (size_t)(argc - optind));
    if (strcmp(verb, "prune") == 0)
        return prune(ctl, &arguments);
    return list(ctl, &arguments, strcmp(verb, "verify") == 0);
}
