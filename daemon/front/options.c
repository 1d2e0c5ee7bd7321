#include "options.h"

#include "../jit/cache.h"
#include "value_text.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Takes `text` into the options; NULL, or what would have been allowed. */
typedef const char *(*option_fn)(struct options *options, const char *text);

struct option_entry {
    const char *name;        /* without the dashes */
    const char *environment; /* NULL: command line only */
    const char *value;       /* how --help names the value */
    const char *help;
    option_fn take;
    bool is_in_file;
};

/* Only noted: options_parse() reads it. */
static const char *take_config(struct options *options, const char *text)
{
    options->config = text;
    return text[0] == '\0' ? "a file" : NULL;
}

static const char *take_socket(struct options *options, const char *text)
{
    if (strlen(text) > SOCKET_PATH_MAX)
        return "a path of at most 107 bytes";
    options->socket = text;
    return NULL;
}

static const char *take_device(struct options *options, const char *text)
{
    uint64_t index;
    bool is_known =
        strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0 ||
        strncmp(text, "GPU-", 4) == 0 ||
        (strncmp(text, "cuda:", 5) == 0 && number_from_text(text + 5, 10, 1023, &index));

    if (!is_known)
        return "auto, cpu, cuda, cuda:N or GPU-<uuid>";
    options->device = text;
    return NULL;
}

static const char *take_cache(struct options *options, const char *text)
{
    options->cache = text;
    return text[0] == '\0' ? "a directory" : NULL;
}

static const char *take_cache_size(struct options *options, const char *text)
{
    return size_from_text(text, &options->cache_bytes) ? NULL
                                                       : "bytes, or a number with K, M, G or T";
}

static const char *take_kernels(struct options *options, const char *text)
{
    options->kernels = text;
    return text[0] == '\0' ? "a directory of kernel files" : NULL;
}

static const char *take_state(struct options *options, const char *text)
{
    options->state = text;
    return text[0] == '\0' ? "a directory" : NULL;
}

static const char *take_tune(struct options *options, const char *text)
{
    if (strcmp(text, "off") == 0)
        options->tune = TUNER_OFF;
    else if (strcmp(text, "idle") == 0)
        options->tune = TUNER_IDLE;
    else
        return "off or idle";
    return NULL;
}

static const char *take_mode(struct options *options, const char *text)
{
    uint64_t mode;

    if (!number_from_text(text, 8, 0777, &mode))
        return "octal permission bits up to 0777";
    options->mode = (mode_t)mode;
    return NULL;
}

static const char *take_log_level(struct options *options, const char *text)
{
    return log_level_from_text(text, &options->log_level) ? NULL : "error, warning, info or debug";
}

static const char *seconds_from_text(const char *text, double *ret_seconds)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(seconds) || seconds <= 0 || seconds > 3600)
        return "seconds, over 0 and up to 3600";
    *ret_seconds = seconds;
    return NULL;
}

static const char *take_compile_seconds(struct options *options, const char *text)
{
    return seconds_from_text(text, &options->compile_seconds);
}

static const char *take_job_seconds(struct options *options, const char *text)
{
    return seconds_from_text(text, &options->job_seconds);
}

static const char *take_compile_bytes(struct options *options, const char *text)
{
    bool is_right =
        size_from_text(text, &options->compile_bytes) && options->compile_bytes >= (64u << 20);

    return is_right ? NULL : "bytes, or a number with K, M, G or T; at least 64M";
}

static const char *take_scratch(struct options *options, const char *text)
{
    bool is_right = size_from_text(text, &options->scratch_bytes) &&
                    options->scratch_bytes >= OPTIONS_SCRATCH_LEAST;

    return is_right ? NULL : "bytes, or a number with K, M, G or T; at least 16M";
}

static const char *take_compilers(struct options *options, const char *text)
{
    bool is_right = number_from_text(text, 10, 64, &options->compilers) && options->compilers >= 1;

    return is_right ? NULL : "a number from 1 to 64";
}

/* One "UID=WEIGHT"; false when it is none. */
static bool weight_from_text(const char *text, size_t length, struct option_weight *ret_weight)
{
    char entry[32], *equals;
    uint64_t uid, weight;

    if (length >= sizeof(entry))
        return false;
    memcpy(entry, text, length);
    entry[length] = '\0';
    equals = strchr(entry, '=');
    if (!equals)
        return false;
    *equals = '\0';
    if (!number_from_text(entry, 10, UINT32_MAX - 1, &uid) ||
        !number_from_text(equals + 1, 10, QUOTA_WEIGHT_MOST, &weight) || weight == 0)
        return false;
    *ret_weight = (struct option_weight){.uid = (uid_t)uid, .weight = (uint32_t)weight};
    return true;
}

static const char *take_weights(struct options *options, const char *text)
{
    static_assert(QUOTA_UIDS_MAX == 64 && QUOTA_WEIGHT_MOST == 1000, "the sentence says so");
    options->weight_count = 0;
    for (const char *end; *text; text = *end ? end + 1 : end) {
        end = strchrnul(text, ',');
        if (options->weight_count == QUOTA_UIDS_MAX ||
            !weight_from_text(text, (size_t)(end - text), &options->weights[options->weight_count]))
            return "UID=WEIGHT[,UID=WEIGHT...]: numbers, weights from 1 to 1000, at most 64 uids";
        options->weight_count++;
    }
    return NULL;
}

static const char *take_ready_fd(struct options *options, const char *text)
{
    uint64_t fd;

    if (!number_from_text(text, 10, INT32_MAX, &fd) || fcntl((int)fd, F_GETFD) < 0)
        return "the number of an open descriptor";
    options->ready_fd = (int)fd;
    return NULL;
}

static const struct option_entry entries[] = {
    {"config", "GEMMD_CONFIG", "FILE", "configuration; " OPTIONS_CONFIG_DEFAULT ", if it exists",
     take_config, false},
    {"socket", "GEMMD_SOCKET", "PATH", "where to listen", take_socket, true},
    {"device", "GEMMD_DEVICE", "DEVICE", "auto, cpu, cuda, cuda:N or GPU-<uuid>; auto", take_device,
     true},
    {"cache", "GEMMD_CACHE", "DIR", "directory of compiled kernels", take_cache, true},
    {"cache-size", "GEMMD_CACHE_SIZE", "BYTES", "its bound; 512M", take_cache_size, true},
    {"kernels", "GEMMD_KERNELS_DIR", "DIR", "kernel files instead of the embedded", take_kernels,
     true},
    {"state", "GEMMD_STATE", "DIR", "directory of the tuning database", take_state, true},
    {"tune", "GEMMD_TUNE", "WHEN", "by itself: off, or idle; off", take_tune, true},
    {"mode", "GEMMD_MODE", "OCTAL", "permission bits of the socket; 0600", take_mode, true},
    {"log-level", "GEMMD_LOG_LEVEL", "LEVEL", "error, warning, info or debug; info", take_log_level,
     true},
    {"compile-time-limit", "GEMMD_COMPILE_TIME_LIMIT", "SECONDS", "of one compile; 10",
     take_compile_seconds, true},
    {"compile-memory-limit", "GEMMD_COMPILE_MEMORY_LIMIT", "BYTES", "of one compile; 2G",
     take_compile_bytes, true},
    {"job-time-limit", "GEMMD_JOB_TIME_LIMIT", "SECONDS",
     "of a job that hangs, at least; 2, on the CPU none", take_job_seconds, true},
    {"scratch-size", "GEMMD_SCRATCH_SIZE", "BYTES",
     "of device memory for a product on host memory; 1/32 of it", take_scratch, true},
    {"compilers", "GEMMD_COMPILERS", "N", "compile children at most; half the processors, up to 8",
     take_compilers, true},
    {"weights", "GEMMD_WEIGHTS", "UID=N,...", "parts of device time for uids; others weigh 1",
     take_weights, false},
    {"ready-fd", NULL, "FD", "gets a byte once requests are served", take_ready_fd, false},
};

static_assert(ARRAY_SIZE(entries) <= OPTIONS_MAX, "each row may own a text");

static const struct option_entry *entry_find(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        if (strlen(entries[i].name) == length && memcmp(entries[i].name, name, length) == 0)
            return &entries[i];
    }
    return NULL;
}

static void set_defaults(struct options *options)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    *options = (struct options){
        .device = "auto",
        .cache_bytes = CACHE_BYTES_DEFAULT,
        .mode = 0600,
        .log_level = LOG_LEVEL_INFO,
        .compile_seconds = 10,
        .compile_bytes = 2ull << 30,
        .compilers = (uint64_t)MIN(MAX(processors / 2, 1), 8),
        .ready_fd = -1,
    };
}

static int take_environment(struct options *options, char message[OPTIONS_MESSAGE_MAX])
{
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        const char *text = entries[i].environment ? getenv(entries[i].environment) : NULL;
        const char *allowed = text && text[0] != '\0' ? entries[i].take(options, text) : NULL;

        if (allowed) {
            (void)snprintf(message, OPTIONS_MESSAGE_MAX, "%s is \"%.64s\"; allowed is %s",
                           entries[i].environment, text, allowed);
            return OPTIONS_E_USAGE;
        }
    }
    return 0;
}

/* One argument; *index moves on when its value is the next one. */
static int take_argument(struct options *options,
                         int argc,
                         char *const *argv,
                         int *index,
                         char message[OPTIONS_MESSAGE_MAX])
{
    const char *argument = argv[*index];
    const char *equals = strchr(argument, '=');
    const struct option_entry *entry;
    const char *text, *allowed;

    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)
        return OPTIONS_E_HELP;
    if (strcmp(argument, "--version") == 0 || strcmp(argument, "-V") == 0)
        return OPTIONS_E_VERSION;

    entry = strncmp(argument, "--", 2) == 0
                ? entry_find(argument + 2,
                             equals ? (size_t)(equals - argument) - 2 : strlen(argument) - 2)
                : NULL;
    if (!entry) {
        (void)snprintf(message, OPTIONS_MESSAGE_MAX,
                       "\"%.64s\" is not an option; --help lists them", argument);
        return OPTIONS_E_USAGE;
    }
    text = equals ? equals + 1 : *index + 1 < argc ? argv[++*index] : NULL;
    if (!text) {
        (void)snprintf(message, OPTIONS_MESSAGE_MAX, "--%s needs a value: %s", entry->name,
                       entry->value);
        return OPTIONS_E_USAGE;
    }
    allowed = entry->take(options, text);
    if (allowed) {
        (void)snprintf(message, OPTIONS_MESSAGE_MAX, "--%s is \"%.64s\"; allowed is %s",
                       entry->name, text, allowed);
        return OPTIONS_E_USAGE;
    }
    return 0;
}

/* --- the file -------------------------------------------------------------------------------- */

static bool unknown_setting(const char *key, char message[OPTIONS_MESSAGE_MAX])
{
    const struct option_entry *nearest = NULL;
    int length = snprintf(message, OPTIONS_MESSAGE_MAX, "[daemon] has no %.32s; allowed are", key);

    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        if (!entries[i].is_in_file)
            continue;
        if (!nearest || text_distance(key, entries[i].name) < text_distance(key, nearest->name))
            nearest = &entries[i];
        length += snprintf(message + length, OPTIONS_MESSAGE_MAX - (size_t)length, " %s",
                           entries[i].name);
    }
    (void)snprintf(message + length, OPTIONS_MESSAGE_MAX - (size_t)length, "; did you mean %s?",
                   nearest->name);
    return false;
}

/* A key of [daemon]. */
static bool take_daemon_setting(struct options *options,
                                const char *key,
                                const char *value,
                                char message[OPTIONS_MESSAGE_MAX])
{
    const struct option_entry *entry = entry_find(key, strlen(key));
    const char *allowed;
    char **owned;

    if (!entry || !entry->is_in_file)
        return unknown_setting(key, message);
    owned = &options->owned[entry - entries];
    if (*owned) {
        (void)snprintf(message, OPTIONS_MESSAGE_MAX, "[daemon] has %s twice", key);
        return false;
    }
    *owned = strdup(value);
    allowed = *owned ? entry->take(options, *owned) : "less: there is no memory";
    if (allowed)
        (void)snprintf(message, OPTIONS_MESSAGE_MAX, "[daemon] %s is \"%.64s\"; allowed is %s", key,
                       value, allowed);
    return !allowed;
}

static bool take_setting(void *context,
                         const char *section,
                         const char *key,
                         const char *value,
                         char message[SETTINGS_MESSAGE_MAX])
{
    struct options *options = context;
    bool is_daemon = strcmp(section, "daemon") == 0;

    if (!is_daemon && !quota_rules_know_section(section)) {
        (void)snprintf(message, SETTINGS_MESSAGE_MAX,
                       section[0] == '\0'
                           ? "\"%s%.32s\" comes before any section; allowed are [daemon], "
                             "[default] and [uid N]"
                           : "[%.32s%s] is not a section; allowed are [daemon], [default] and "
                             "[uid N]",
                       section, section[0] == '\0' && key ? key : "");
        return false;
    }
    if (!key)
        return true;
    if (is_daemon)
        return take_daemon_setting(options, key, value, message);
    return quota_rules_take(&options->rules, section, key, value, SETTINGS_MESSAGE_MAX, message);
}

/* The default file need not exist; one that was asked for must. */
static int take_file(struct options *options, char message[OPTIONS_MESSAGE_MAX])
{
    const char *path = options->config ? options->config : OPTIONS_CONFIG_DEFAULT;
    int r = settings_read(path, take_setting, options, message);

    if (r == 0 || (r == SETTINGS_E_MISSING && !options->config)) {
        message[0] = '\0';
        return 0;
    }
    return OPTIONS_E_USAGE;
}

/* The command line's weights and the environment's, over the file's. */
static int add_weights(const struct options *options,
                       struct quota_rules *rules,
                       char message[OPTIONS_MESSAGE_MAX])
{
    for (size_t i = 0; i < options->weight_count; i++) {
        if (quota_rules_set_weight(rules, options->weights[i].uid, options->weights[i].weight))
            continue;
        (void)snprintf(message, OPTIONS_MESSAGE_MAX,
                       "--weights and the file name more than %d uids", QUOTA_UIDS_MAX);
        return OPTIONS_E_USAGE;
    }
    return 0;
}

/* --- all of them ----------------------------------------------------------------------------- */

static int
take_given(struct options *options, int argc, char *const *argv, char message[OPTIONS_MESSAGE_MAX])
{
    int r = take_environment(options, message);

    for (int i = 1; i < argc && r == 0; i++)
        r = take_argument(options, argc, argv, &i, message);
    return r;
}

int options_parse(struct options *ret_options,
                  int argc,
                  char *const *argv,
                  char ret_message[OPTIONS_MESSAGE_MAX])
{
    const char *config;
    int r;

    ret_message[0] = '\0';
    set_defaults(ret_options);
    /* Once to learn which file is meant, then again over what it says. */
    r = take_given(ret_options, argc, argv, ret_message);
    if (r)
        return r;
    config = ret_options->config;
    set_defaults(ret_options);
    ret_options->config = config;
    r = take_file(ret_options, ret_message);
    if (r == 0)
        r = take_given(ret_options, argc, argv, ret_message);
    if (r == 0)
        r = add_weights(ret_options, &ret_options->rules, ret_message);
    if (r)
        return r;
    if (!ret_options->socket)
        ret_options->socket = socket_path_default(NULL, ret_options->socket_buffer);
    return 0;
}

int options_reload(const struct options *options,
                   struct quota_rules *ret_rules,
                   char ret_message[OPTIONS_MESSAGE_MAX])
{
    cleanup(options_deinit) struct options read = {.config = options->config};
    int r = take_file(&read, ret_message);

    if (r == 0)
        r = add_weights(options, &read.rules, ret_message);
    if (r == 0)
        *ret_rules = read.rules;
    return r;
}

void options_deinit(struct options *options)
{
    for (size_t i = 0; i < ARRAY_SIZE(options->owned); i++) {
        free(options->owned[i]);
        options->owned[i] = NULL;
    }
}

void options_print_help(void)
{
    (void)printf("Usage: gemmd [OPTION]...\n"
                 "Owns the GPU (or the CPU's BLAS) and serves matrix products over a Unix "
                 "socket.\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        char head[64];

        (void)snprintf(head, sizeof(head), "--%s %s", entries[i].name, entries[i].value);
        (void)printf("  %-30s %s%s%s%s\n", head, entries[i].help,
                     entries[i].environment ? " ($" : "",
                     entries[i].environment ? entries[i].environment : "",
                     entries[i].environment ? ")" : "");
    }
    (void)printf("  %-30s %s\n  %-30s %s\n", "--help", "this text", "--version", "the version");
}
