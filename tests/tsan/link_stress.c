/*
 * Two threads on the two ends of one link, as hot as they can and asleep as often as they can.
 *
 * ThreadSanitizer knows addresses, not physical pages: the worker's end therefore shares the
 * front's mapping instead of attaching to its own, or no race could be seen.
 */
#include "../../daemon/link/link.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS    200000
#define WAIT_MS 30000

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void pause_until(int event)
{
    struct pollfd wait = {.fd = event, .events = POLLIN};

    check(poll(&wait, 1, WAIT_MS) == 1);
}

static void answer(struct link *worker, const struct gemmd_command *command)
{
    struct gemmd_completion completion = {.job = command->job,
                                          .started_ns = command->body.copy.size};

    check(command->kernel == ~command->job);
    check(link_complete(worker, &completion) == 0);
    link_beat(worker);
}

static void *run_worker(void *context)
{
    struct link *worker = context;
    struct gemmd_command command;

    for (uint64_t job = 0; job < JOBS;) {
        if (link_command_next(worker, &command)) {
            check(command.job == job);
            answer(worker, &command);
            job++;
        } else if (link_worker_may_sleep(worker)) {
            pause_until(worker->fds.command_event);
            link_worker_awake(worker);
        }
    }
    return NULL;
}

static uint64_t take(struct link *front, uint64_t read)
{
    struct gemmd_completion completion;

    while (link_complete_next(front, &completion)) {
        check(completion.job == read);
        check(completion.started_ns == read * 2);
        read++;
    }
    return read;
}

/* Alternates between single jobs, which put both sides to sleep, and full rings kept hot. */
static void run_front(struct link *front)
{
    uint64_t written = 0, read = 0;

    while (read < JOBS) {
        const bool is_hot = (written / 4096) % 4 != 0;
        const uint64_t burst = is_hot ? LINK_COMMANDS : 1;

        for (uint64_t i = 0; i < burst && written < JOBS && link_room(front) > 0; i++) {
            struct gemmd_command command = {.job = written, .kernel = ~written};

            command.body.copy.size = written * 2;
            check(link_submit(front, &command) == 0);
            written++;
        }
        check(link_commands_taken(front) <= written);
        (void)link_heartbeat(front);
        read = take(front, read);
        if (!is_hot && read < written && link_front_may_sleep(front)) {
            pause_until(front->fds.completion_event);
            link_front_awake(front);
        }
    }
}

int main(void)
{
    cleanup(link_deinit) struct link front = LINK_NULL;
    struct link worker = LINK_NULL;
    pthread_t thread;

    check(link_create(&front) == 0);
    worker.side = LINK_WORKER;
    worker.memory = front.memory;
    worker.fds = front.fds;
    worker.fds.socket = front.peer_socket;

    check(pthread_create(&thread, NULL, run_worker, &worker) == 0);
    run_front(&front);
    check(pthread_join(thread, NULL) == 0);
    printf("%d jobs, system calls: front %llu, worker %llu\n", JOBS,
           (unsigned long long)front.system_calls, (unsigned long long)worker.system_calls);
    return 0;
}
