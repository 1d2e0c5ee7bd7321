/*
 * The queue against a real link whose worker's end the test plays, on a clock of its own.
 */
#pragma once

#include "../../daemon/front/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFERS = 4, JOBS_MAX = 1024 };

static uv_loop_t loop;
static struct worker_process worker;
static struct link taker; /* the worker's end */
static struct quota quota;
static struct stats stats;
static struct queue queue;
static struct buffer buffers[BUFFERS];
static struct stream session_a, session_b;
static const struct worker_operations nothing;

static struct {
    uint64_t number;
    enum status status;
} ended[JOBS_MAX];

static size_t ended_count;
static double seconds_of[JOBS_MAX]; /* by number: what was predicted */
static uint64_t clock_ns;
static struct gemmd_command taken; /* the last */

static inline void finished(struct queue *q,
                            struct job *job,
                            const struct fault *fault,
                            const struct gemmd_completion *completion)
{
    (void)q;
    (void)completion;
    cr_assert_lt(ended_count, JOBS_MAX);
    ended[ended_count].number = job->number;
    ended[ended_count++].status = fault->status;
    (void)job_free(job);
}

static inline void connect_worker(void)
{
    struct link_fds fds;

    cr_assert_eq(link_create(&worker.link), 0);
    fds = (struct link_fds){.memory = dup(worker.link.fds.memory),
                            .command_event = dup(worker.link.fds.command_event),
                            .completion_event = dup(worker.link.fds.completion_event),
                            .socket = dup(worker.link.peer_socket)};
    cr_assert_eq(link_attach(&taker, &fds), 0);
    worker.state = WORKER_READY;
}

static inline void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &nothing), 0);
    connect_worker();
    quota_init(&quota);
    queue_init(&queue, &worker, &stats, finished);
    stream_init(&session_a);
    stream_init(&session_b);
    clock_ns = 1000000000;
    for (size_t i = 0; i < BUFFERS; i++) {
        buffers[i].references = 1000;
        buffers[i].memory.state = MEMORY_MAPPED;
        buffers[i].memory.kind = LINK_MEMORY_HOST;
        buffers[i].memory.address = (i + 1) << 20;
    }
}

static inline void stop(void)
{
    queue_deinit(&queue);
    quota_deinit(&quota);
}

/* A copy from one buffer to another: the smallest job with an input and an output. */
static inline struct job *copy(uid_t uid, int from, int to, double seconds)
{
    struct job *job = job_new();
    struct fault fault;

    cr_assert_eq(quota_charge(&quota, uid, QUOTA_JOBS, 1, &job->charge, &fault), 0);
    job->kind = JOB_COPY;
    job->predicted_seconds = seconds;
    job_use_buffer(job, OPERAND_A, buffer_ref(&buffers[from]), 0, 100);
    job_use_buffer(job, OPERAND_D, buffer_ref(&buffers[to]), 0, 100);
    return job;
}

static inline uint64_t submit(struct stream *session, struct job *job)
{
    uint64_t number = queue.next_number;

    seconds_of[number % JOBS_MAX] = job->predicted_seconds;
    queue_submit(&queue, job, session);
    return number;
}

/* The next committed job, as the worker takes it; 0: none. */
static inline uint64_t take(void)
{
    return link_command_next(&taker, &taken) ? taken.job : 0;
}

/* The job's command ends, after so many seconds. */
static inline void complete_after(uint64_t number, double seconds)
{
    struct gemmd_completion done = {.job = number, .status = STATUS_OK, .started_ns = clock_ns};
    struct gemmd_completion seen;

    clock_ns += (uint64_t)(seconds * 1e9);
    done.finished_ns = clock_ns;
    cr_assert_eq(link_complete(&taker, &done), 0);
    cr_assert(link_complete_next(&worker.link, &seen));
    worker.in_flight--;
    worker.vain_deaths = 0;
    queue_completed(&queue, &seen);
}

/* As long as was predicted for the whole job. */
static inline void complete(uint64_t number)
{
    complete_after(number, seconds_of[number % JOBS_MAX]);
}

static inline void die(void)
{
    uint64_t commands_taken = link_commands_taken(&worker.link);

    worker.state = WORKER_DOWN;
    worker.vain_deaths++;
    queue_worker_died(&queue, commands_taken);
    link_deinit(&taker);
    link_deinit(&worker.link);
    connect_worker();
    queue_advance(&queue);
}

static inline enum status status_of(uint64_t number)
{
    for (size_t i = 0; i < ended_count; i++) {
        if (ended[i].number == number)
            return ended[i].status;
    }
    return STATUS_TIMEOUT; /* not yet */
}
