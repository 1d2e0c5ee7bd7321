#include <stdio.h>

#include "soak_quiet.h"

#include "../support/process.h"
#include "ask.h"

#include <string.h>
#include <unistd.h>

/* What says that somebody else is connected, something runs, or a child compiles. */
struct unrest {
    char state[96], spare[96]; /* of the worker, and of the one that stands by */
    double clients, jobs, staged_bytes;
    size_t children;
};

static struct unrest unrest_now(gemmd *connection, pid_t daemon)
{
    pid_t children[32];
    struct unrest now = {
        .clients = ask_number(connection, NULL, "clients"),
        .jobs = ask_number(connection, NULL, "jobs"),
        .staged_bytes = ask_number(connection, "buffers", "staged_bytes"),
        .children = process_children(daemon, children, ARRAY_SIZE(children)),
    };

    ask_text(connection, "worker", "state", now.state);
    ask_text(connection, "worker", "spare", now.spare);
    return now;
}

/* We are a client ourselves, and the workers are children; an idle one is parked. */
static bool is_quiet(const struct unrest *now)
{
    bool has_worker = strcmp(now->state, "ready") == 0 || strcmp(now->state, "parked") == 0;
    size_t spares = strcmp(now->spare, "ready") == 0 ? 1 : 0;

    return has_worker && strcmp(now->spare, "starting") != 0 && now->clients == 1 &&
           now->jobs == 0 && now->staged_bytes == 0 && now->children == 1 + spares;
}

static void print_unrest(const struct unrest *now)
{
    printf("# worker %s, spare %s, %.0f clients with the bench, %.0f jobs, %.0f bytes staged, %zu "
           "processes beside the front\n",
           now->state, now->spare, now->clients, now->jobs, now->staged_bytes, now->children);
}

void soak_print_unrest(gemmd *connection, pid_t daemon)
{
    const struct unrest now = unrest_now(connection, daemon);

    print_unrest(&now);
}

int soak_await_quiet(gemmd *connection, pid_t daemon)
{
    double end = bench_now() + SOAK_QUIET_SECONDS;
    struct unrest now = unrest_now(connection, daemon);

    for (; !is_quiet(&now) && bench_now() < end; now = unrest_now(connection, daemon))
        (void)usleep(20000);
    if (is_quiet(&now))
        return 0;
    printf("# the daemon is not quiet after %d s\n", SOAK_QUIET_SECONDS);
    print_unrest(&now);
    return 1;
}
