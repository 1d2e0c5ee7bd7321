/*
 * gemmctl compile: configurations to cubins on this machine, for people who work on kernels and for
 * build machines. Needs NVRTC, neither a daemon nor a GPU.
 *
 * Several threads compile, which NVRTC allows; what they print and count is under one lock, and
 * rows come in the order of completion.
 */
#include "../daemon/jit/nvrtc.h"
#include "../daemon/plan/config.h"
#include "gemmctl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A compile takes up to half a gigabyte; beyond eight at once memory is the scarcer thing. */
#define JOBS_DEFAULT_MAX 8
#define JOBS_MAX         64

enum {
    OPTION_ARCH = CTL_OPTION_OWN,
    OPTION_ALL,
    OPTION_LIST,
    OPTION_KERNELS,
    OPTION_JOBS,
};

struct compile_arguments {
    uint32_t arch; /* 0: not given */
    bool all, list;
    int64_t jobs;                 /* threads; 0: not given */
    const char *kernels, *output; /* directories; NULL: built in, nothing written */
};

/* Owns its first four members; `configs` has `count` entries. */
struct compilation {
    struct config *configs;
    size_t count;
    struct sources sources;
    struct nvrtc *nvrtc;
    struct gemmctl *ctl;
    const char *output;
    pthread_mutex_t lock; /* guards what follows, and the output */
    size_t next, done, failed;
};

static void compilation_deinit(struct compilation *compilation)
{
    free(compilation->configs);
    sources_deinit(&compilation->sources);
    (void)nvrtc_free(compilation->nvrtc);
}

/* --- arguments ------------------------------------------------------------------------------- */

static int take_option(const struct gemmctl *ctl, int option, struct compile_arguments *arguments)
{
    switch (option) {
    case OPTION_ARCH:
        return ctl_parse_arch(ctl, optarg, &arguments->arch);
    case OPTION_ALL:
        arguments->all = true;
        return CTL_OK;
    case OPTION_LIST:
        arguments->list = true;
        return CTL_OK;
    case OPTION_KERNELS:
        arguments->kernels = optarg;
        return CTL_OK;
    case OPTION_JOBS:
        if (ctl_parse_count(ctl, "--jobs", optarg, &arguments->jobs) != CTL_OK)
            return CTL_USAGE;
        if (arguments->jobs < 1 || arguments->jobs > JOBS_MAX)
            return ctl_usage(ctl, "--jobs is '%s'; 1 to %d are allowed", optarg, JOBS_MAX);
        return CTL_OK;
    default:
        arguments->output = optarg;
        return CTL_OK;
    }
}

static int choose_configs(const struct gemmctl *ctl,
                          const struct compile_arguments *arguments,
                          char **names,
                          size_t count,
                          struct compilation *compilation)
{
    bool whole = arguments->all || (arguments->list && count == 0);

    if (whole && !arguments->arch)
        return ctl_usage(ctl, "--all and --list want --arch ARCH");
    if (!whole && count == 0)
        return ctl_usage(ctl, "configurations are wanted, or --all or --list with --arch ARCH");
    compilation->configs = calloc(count + CONFIG_LIST_MAX, sizeof(*compilation->configs));
    if (!compilation->configs)
        return CTL_FAILED;
    if (whole)
        compilation->count = config_list(arguments->arch, compilation->configs);
    for (size_t i = 0; i < count; i++) {
        struct config *config = &compilation->configs[compilation->count];

        if (!config_from_text(names[i], config) || config->family == CONFIG_CPU)
            return ctl_usage(ctl,
                             "'%s' is not a configuration of a kernel; --list with --arch ARCH "
                             "names them",
                             names[i]);
        compilation->count++;
    }
    return CTL_OK;
}

static int open_compiler(struct gemmctl *ctl,
                         const struct compile_arguments *arguments,
                         struct compilation *compilation)
{
    struct fault fault;
    int r;

    r = sources_open(&compilation->sources, arguments->kernels);
    if (r == SOURCES_E_EMPTY)
        return ctl_fail(ctl, "--kernels %s: no kernel file is there", arguments->kernels);
    if (r < 0)
        return ctl_fail(ctl, "cannot read the kernel files in %s: %s",
                        arguments->kernels ? arguments->kernels : "this binary", strerror(-r));
    r = nvrtc_new(&compilation->nvrtc, &fault);
    if (r == NVRTC_E_ABSENT)
        return ctl_fail(ctl, "%s", fault.message);
    return r == 0 ? CTL_OK : ctl_fail(ctl, "cannot load NVRTC: %s", strerror(-r));
}

/* --- compiling ------------------------------------------------------------------------------- */

static int
write_cubin(struct gemmctl *ctl, const char *directory, const char *name, const struct cubin *cubin)
{
    cleanup(freep) char *path = NULL;
    FILE *file;
    bool is_written;

    if (asprintf(&path, "%s/%s.cubin", directory, name) < 0) {
        path = NULL;
        return ctl_fail(ctl, "no memory for a path");
    }
    file = fopen(path, "wbe");
    if (!file)
        return ctl_fail(ctl, "cannot create %s: %s", path, strerror(errno));
    is_written = fwrite(cubin->bytes, 1, cubin->size, file) == cubin->size;
    if (fclose(file) != 0 || !is_written)
        return ctl_fail(ctl, "cannot write %s: %s", path, strerror(errno));
    return CTL_OK;
}

static void print_header(void)
{
    (void)printf("%-44s %9s %7s %6s %8s %7s %6s\n", "configuration", "registers", "threads",
                 "shared", "spills", "cubin", "time");
}

/* Shared memory is what a launch asks for plus what the code declares. */
static void print_row(const char *text, const struct config *config, const struct cubin *cubin)
{
    struct config_resources resources;

    config_resources(config, &resources);
    (void)printf("%-44s %9u %7u %5.1fK %8u %6.1fK %5.2fs\n", text, cubin->registers,
                 resources.threads, (resources.shared_memory + cubin->shared_memory) / 1024.0,
                 cubin->spill_bytes, (double)cubin->size / 1024, cubin->compile_seconds);
    (void)fflush(stdout);
}

/* With the lock held: prints one compile's outcome. */
static int report(struct compilation *compilation,
                  const struct config *config,
                  int r,
                  const struct nvrtc_result *result)
{
    struct gemmctl *ctl = compilation->ctl;
    char text[CONFIG_TEXT_MAX];

    config_to_text(config, text);
    ctl_progress_end(ctl);
    if (r < 0)
        return ctl_fail(ctl, "%s: %s", text, strerror(-r));
    if (r == NVRTC_E_COMPILE)
        return ctl_fail(ctl, "%s does not compile:\n%s", text, result->log);
    print_row(text, config, &result->cubin);
    return compilation->output ? write_cubin(ctl, compilation->output, text, &result->cubin)
                               : CTL_OK;
}

/* Takes the next configuration; false when there is none left. */
static bool compile_next(struct compilation *compilation)
{
    cleanup(nvrtc_result_deinit) struct nvrtc_result result = {0};
    const struct config *config;
    int r;

    (void)pthread_mutex_lock(&compilation->lock);
    config = &compilation->configs[compilation->next];
    if (compilation->next == compilation->count) {
        (void)pthread_mutex_unlock(&compilation->lock);
        return false;
    }
    compilation->next++;
    (void)pthread_mutex_unlock(&compilation->lock);

    r = nvrtc_compile(compilation->nvrtc, &compilation->sources, config, &result);

    (void)pthread_mutex_lock(&compilation->lock);
    compilation->failed += report(compilation, config, r, &result) != CTL_OK;
    ctl_progress(compilation->ctl, "%zu of %zu", ++compilation->done, compilation->count);
    (void)pthread_mutex_unlock(&compilation->lock);
    return true;
}

static void *compile_thread(void *context)
{
    while (compile_next(context))
        ;
    return NULL;
}

static size_t count_jobs(const struct compile_arguments *arguments, size_t count)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t jobs = arguments->jobs ? arguments->jobs : MIN(MAX(processors, 1), JOBS_DEFAULT_MAX);

    return MIN((size_t)jobs, count);
}

/* Goes on after a failure: one log per configuration that does not compile. */
static int compile_all(const struct compile_arguments *arguments, struct compilation *compilation)
{
    double start = ctl_seconds();
    pthread_t threads[JOBS_MAX];
    size_t jobs = count_jobs(arguments, compilation->count), started = 0;

    print_header();
    ctl_progress(compilation->ctl, "0 of %zu", compilation->count);
    while (started + 1 < jobs &&
           pthread_create(&threads[started], NULL, compile_thread, compilation) == 0)
        started++;
    (void)compile_thread(compilation); /* this thread is one of them */
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    ctl_progress_end(compilation->ctl);
    (void)printf("%zu of %zu done, %.1f s\n", compilation->count - compilation->failed,
                 compilation->count, ctl_seconds() - start);
    return compilation->failed ? CTL_FAILED : CTL_OK;
}

static int print_list(const struct compilation *compilation)
{
    char text[CONFIG_TEXT_MAX];

    for (size_t i = 0; i < compilation->count; i++) {
        config_to_text(&compilation->configs[i], text);
        (void)printf("%s\n", text);
    }
    return CTL_OK;
}

int ctl_compile(struct gemmctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"arch", required_argument, NULL, OPTION_ARCH},
        {"all", no_argument, NULL, OPTION_ALL},
        {"list", no_argument, NULL, OPTION_LIST},
        {"kernels", required_argument, NULL, OPTION_KERNELS},
        {"jobs", required_argument, NULL, OPTION_JOBS},
        {"output", required_argument, NULL, 'o'},
        CTL_COMMON_OPTIONS,
    };
    cleanup(compilation_deinit) struct compilation compilation = {
        .sources = SOURCES_NULL,
        .ctl = ctl,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    struct compile_arguments arguments = {0};
    int option, status;

    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_option(ctl, option, &arguments) != CTL_OK)
            return CTL_USAGE;
    }
    status = choose_configs(ctl, &arguments, argv + optind, (size_t)(argc - optind), &compilation);
    if (status != CTL_OK)
        return status;
    if (arguments.list)
        return print_list(&compilation);
    compilation.output = arguments.output;
    status = open_compiler(ctl, &arguments, &compilation);
    return status == CTL_OK ? compile_all(&arguments, &compilation) : status;
}
