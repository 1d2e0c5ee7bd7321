#include <stdio.h>

#include "ask.h"
#include "power.h"

#include <stdlib.h>
#include <string.h>

int ask_connect(const char *socket, gemmd **ret)
{
    gemmd_error error;
    if (gemmd_connect(socket, ret, &error) == GEMMD_OK)
        return 0;
    fprintf(stderr, "gemmd-bench: %s\n", error.message);
    return EXIT_NO_DAEMON;
}

/* Enough of JSON for what the daemon writes: names are unique within their group. NULL: none. */
static const char *value_in(const char *json, const char *group, const char *name)
{
    char key[64];
    const char *at = json;
    if (group) {
        (void)snprintf(key, sizeof(key), "\"%s\":", group);
        at = strstr(at, key);
    }
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    at = at ? strstr(at, key) : NULL;
    return at ? at + strlen(key) : NULL;
}

double ask_number_in(const char *json, const char *group, const char *name)
{
    const char *at = value_in(json, group, name);
    return at ? strtod(at, NULL) : -1;
}

double ask_number(gemmd *connection, const char *group, const char *name)
{
    char *json = NULL;
    if (gemmd_status_json(connection, &json))
        return -1;
    double value = ask_number_in(json, group, name);
    gemmd_free(json);
    return value;
}

void ask_text(gemmd *connection, const char *group, const char *name, char ret[96])
{
    char *json = NULL;
    ret[0] = '\0';
    if (gemmd_status_json(connection, &json))
        return;
    const char *at = value_in(json, group, name);
    if (at)
        (void)sscanf(at, " \"%95[^\"]", ret);
    gemmd_free(json);
}

void ask_print_facts(gemmd *connection)
{
    char name[96], driver[96], gpu[96], system_driver[96];
    ask_text(connection, "device", "name", name);
    ask_text(connection, "device", "driver", driver);
    power_describe(gpu, system_driver);
    bench_print_facts(name, driver);
    if (system_driver[0])
        printf("# NVIDIA driver %s\n", system_driver);
}
