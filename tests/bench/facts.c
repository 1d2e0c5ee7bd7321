#include "bench.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A bundle carries the commit in a file beside bin/; a build knows its own. */
static const char *commit(char *buffer, size_t size)
{
    char path[PATH_MAX + 16];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length < 0)
        return GEMMD_COMMIT;
    path[length] = 0;
    for (int up = 0; up < 2 && strrchr(path, '/'); up++)
        *strrchr(path, '/') = 0;
    strcat(path, "/COMMIT");

    FILE *file = fopen(path, "re");
    if (!file)
        return GEMMD_COMMIT;
    bool has_line = fgets(buffer, (int)size, file);
    fclose(file);
    if (!has_line)
        return GEMMD_COMMIT;
    buffer[strcspn(buffer, "\n")] = 0;
    return buffer;
}

void bench_print_facts(const char *device, const char *driver)
{
    char revision[64], host[64] = "", date[32];
    time_t now = time(NULL);
    struct tm utc;
    (void)gethostname(host, sizeof(host) - 1);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    printf("# gemmd %s commit %s\n", GEMMD_VERSION, commit(revision, sizeof(revision)));
    printf("# date %s, host %s, %ld processors\n", date, host, sysconf(_SC_NPROCESSORS_ONLN));
    if (device)
        printf("# device %s\n", device);
    if (driver)
        printf("# driver %s\n", driver);
}

const char *bench_option(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    }
    return fallback;
}

double bench_option_number(int argc, char **argv, const char *name, double fallback)
{
    const char *text = bench_option(argc, argv, name, NULL);
    char *end;
    if (!text)
        return fallback;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0)) {
        fprintf(stderr, "gemmd-bench: %s \"%s\": a number, 0 or more, is allowed\n", name, text);
        exit(EXIT_USAGE);
    }
    return value;
}

/* Whether the list has the name, and whether it takes a value. */
static bool is_listed(const char *names, const char *name, bool *ret_has_value)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length) {
        bool is_start = at == names || at[-1] == ' ';
        char next = at[length];
        if (is_start && (next == ' ' || next == '\0' || next == '?')) {
            *ret_has_value = next != '?';
            return true;
        }
    }
    return false;
}

bool bench_options_are_known(int argc, char **argv, const char *names)
{
    for (int i = 1; i < argc; i++) {
        bool has_value;
        if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2] ||
            !is_listed(names, argv[i] + 2, &has_value)) {
            fprintf(stderr, "gemmd-bench: \"%s\" is no option of %s; it has: %s\n", argv[i],
                    argv[0], names);
            return false;
        }
        if (has_value && ++i == argc) {
            fprintf(stderr, "gemmd-bench: %s needs a value\n", argv[i - 1]);
            return false;
        }
    }
    return true;
}

bool bench_flag(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return false;
}
