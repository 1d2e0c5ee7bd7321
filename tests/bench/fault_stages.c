#include <stdio.h>

#include "fault_stages.h"

#include "ask.h"

#include <string.h>
#include <unistd.h>

static const char *const names[STAGES] = {"noticed_ms", "ended_ms", "started_ms", "restored_ms",
                                          "answered_ms"};

static void look(struct stages_watch *watch)
{
    char *json = NULL;
    if (gemmd_status_json(watch->connection, &json))
        return;
    size_t deaths = (size_t)ask_number_in(json, "worker", "deaths") - watch->first;
    /* The next one has begun, and is not counted before it has ended: these are not its stages. */
    bool is_next = ask_number_in(json, "recovery", "ended_ms") == 0;
    if (deaths > 0 && deaths <= STAGES_DEATHS && !is_next) {
        for (int i = 0; i < STAGES; i++)
            watch->milliseconds[deaths - 1][i] = ask_number_in(json, "recovery", names[i]);
        atomic_store(&watch->deaths, deaths);
    }
    gemmd_free(json);
}

static void *watch_main(void *argument)
{
    struct stages_watch *watch = argument;
    while (!atomic_load(&watch->is_over)) {
        look(watch);
        (void)usleep(STAGES_LOOK_US);
    }
    return NULL;
}

int stages_start(struct stages_watch *watch, const char *socket)
{
    *watch = (struct stages_watch){.connection = NULL};
    int r = ask_connect(socket, &watch->connection);
    if (r)
        return r;
    watch->first = (size_t)ask_number(watch->connection, "worker", "deaths");
    watch->is_started = pthread_create(&watch->thread, NULL, watch_main, watch) == 0;
    return !watch->is_started;
}

void stages_stop(struct stages_watch *watch)
{
    atomic_store(&watch->is_over, true);
    if (watch->is_started)
        (void)pthread_join(watch->thread, NULL);
    gemmd_close(watch->connection);
}

size_t stages_print(const struct stages_watch *watch, const char *what, size_t from)
{
    size_t deaths = atomic_load(&watch->deaths);
    for (size_t i = from; i < deaths; i++) {
        printf("# %s: death %zu:", what, i - from + 1);
        for (int j = 0; j < STAGES; j++)
            printf(" %.*s %.1f%s", (int)strlen(names[j]) - 3, names[j], watch->milliseconds[i][j],
                   j + 1 < STAGES ? "," : " ms\n");
    }
    return deaths;
}
