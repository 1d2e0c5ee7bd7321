/*
 * What the link and a worker's loop cost, without a front: empty commands to a real worker, one at
 * a time and in rings, with the front's side spinning or asleep.
 *
 *   bench_link [DEVICE]        auto (default), cpu, cuda:N
 *
 * Prints the round trip, the rate, and the front's system calls per command, which must be 0 on a
 * machine with at least four CPUs while both sides are hot.
 */
#include "../../daemon/link/link.h"
#include "../../daemon/roles.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMANDS 20000

struct measurement {
    const char *name;
    uint32_t in_flight;
    bool sleeps; /* the front blocks for each completion instead of looking again and again */
};

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void die(const char *what)
{
    fprintf(stderr, "bench_link: %s\n", what);
    exit(1);
}

static pid_t start_worker(struct link *link, char *device)
{
    char numbers[4][16];
    char *argv[] = {"worker",   "--device",           device,     "--memory",
                    numbers[0], "--command-event",    numbers[1], "--socket",
                    numbers[2], "--completion-event", numbers[3], NULL};
    pid_t pid = fork();

    if (pid != 0) {
        fd_closep(&link->peer_socket);
        return pid;
    }
    fd_closep(&link->fds.socket);
    (void)snprintf(numbers[0], sizeof(numbers[0]), "%d", link->fds.memory);
    (void)snprintf(numbers[1], sizeof(numbers[1]), "%d", link->fds.command_event);
    (void)snprintf(numbers[2], sizeof(numbers[2]), "%d", link->peer_socket);
    (void)snprintf(numbers[3], sizeof(numbers[3]), "%d", link->fds.completion_event);
    _exit(worker_main(ARRAY_SIZE(argv) - 1, argv));
}

static void await_hello(struct link *link)
{
    struct pollfd wait = {.fd = link->fds.socket, .events = POLLIN};
    struct link_message hello;
    size_t n_fds;
    int fd;

    (void)poll(&wait, 1, -1);
    if (link_receive(link, &hello, &fd, &n_fds) != 0)
        die("the worker ended without a word");
    if (hello.fault.status != STATUS_OK)
        die(hello.fault.message);
    printf("device %s, %s\n", hello.device.name, hello.device.driver);
}

static void take_one(struct link *link, bool sleeps)
{
    struct pollfd wait = {.fd = link->fds.completion_event, .events = POLLIN};
    struct gemmd_completion completion;

    while (!link_complete_next(link, &completion)) {
        if (!sleeps || !link_front_may_sleep(link))
            continue;
        (void)poll(&wait, 1, -1);
        link_front_awake(link);
    }
    if (completion.status != STATUS_OK)
        die("a command failed");
}

/* An empty fill: the device is asked for nothing, so what is left is the way there and back. */
static void submit(struct link *link)
{
    const struct gemmd_command command = {.kind = GEMMD_COMMAND_ZERO};

    if (link_submit(link, &command) < 0)
        die("a command could not be submitted");
}

static void measure(struct link *link, const struct measurement *how)
{
    static double took[COMMANDS];
    const uint64_t calls = link->system_calls;
    const double begin = now_us();
    double last = begin, total;

    for (uint32_t i = 0; i + 1 < how->in_flight; i++)
        submit(link);
    for (uint32_t i = 0; i < COMMANDS; i++) {
        submit(link);
        take_one(link, how->sleeps);
        took[i] = now_us() - last;
        last += took[i];
    }
    total = last - begin;
    for (uint32_t i = 0; i + 1 < how->in_flight; i++)
        take_one(link, how->sleeps);

    qsort(took, COMMANDS, sizeof(took[0]), by_value);
    printf("%-28s %8.2f %8.2f %12.0f %10.3f\n", how->name, took[COMMANDS / 2],
           took[COMMANDS / 100 * 99], 1e6 * COMMANDS / total,
           (double)(link->system_calls - calls) / COMMANDS);
}

int main(int argc, char **argv)
{
    static const struct measurement measurements[] = {
        {"one at a time, front spins", 1, false},
        {"one at a time, front sleeps", 1, true},
        {"64 in flight, front spins", 64, false},
        {"64 in flight, front sleeps", 64, true},
    };
    const struct link_message quit = {.kind = LINK_QUIT};
    cleanup(link_deinit) struct link link = LINK_NULL;
    pid_t worker;

    if (argc > 2)
        die("usage: bench_link [auto|cpu|cuda:N]");
    if (link_create(&link) != 0)
        die("no link");
    worker = start_worker(&link, argc > 1 ? argv[1] : (char *)"auto");
    await_hello(&link);
    printf("%-28s %8s %8s %12s %10s\n", "", "p50 us", "p99 us", "commands/s", "calls");
    for (size_t i = 0; i < ARRAY_SIZE(measurements); i++)
        measure(&link, &measurements[i]);
    (void)link_send(&link, &quit, NULL, 0);
    (void)waitpid(worker, NULL, 0);
    return 0;
}
