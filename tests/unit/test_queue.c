/*
 * The queue against a real link whose worker's end the test plays.
 */
#include "../../daemon/front/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFERS = 4, JOBS_MAX = 64 };

static uv_loop_t loop;
static struct worker_process worker;
static struct link taker; /* the worker's end */
static struct quota quota;
static struct stats stats;
static struct queue queue;
static struct buffer buffers[BUFFERS];
static struct list session_a, session_b;
static const struct worker_operations nothing;

static struct {
    uint64_t number;
    enum status status;
} ended[JOBS_MAX];

static size_t ended_count;

static void finished(struct queue *q,
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

static void connect_worker(void)
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

static void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &nothing), 0);
    connect_worker();
    quota_init(&quota);
    queue_init(&queue, &worker, &stats, finished);
    list_init(&session_a);
    list_init(&session_b);
    for (size_t i = 0; i < BUFFERS; i++) {
        buffers[i].references = 1000;
        buffers[i].memory.state = MEMORY_MAPPED;
        buffers[i].memory.kind = LINK_MEMORY_HOST;
        buffers[i].memory.address = (i + 1) << 20;
    }
}

static void stop(void)
{
    queue_deinit(&queue);
    quota_deinit(&quota);
}

TestSuite(queue, .init = start, .fini = stop, .timeout = 30);

/* A copy from one buffer to another: the smallest job with an input and an output. */
static struct job *copy(uid_t uid, int from, int to, double seconds)
{
    struct job *job = job_new();
    struct fault fault;

    cr_assert_eq(quota_charge(&quota, uid, QUOTA_JOBS, 1, &job->charge, &fault), 0);
    job->kind = JOB_COPY;
    job->estimate_seconds = seconds;
    job_use_buffer(job, OPERAND_A, buffer_ref(&buffers[from]), 0, 100);
    job_use_buffer(job, OPERAND_D, buffer_ref(&buffers[to]), 0, 100);
    return job;
}

static uint64_t submit(struct list *session, struct job *job)
{
    uint64_t number = queue.next_number;

    queue_submit(&queue, job, session);
    return number;
}

/* The next committed job, as the worker takes it; 0: none. */
static uint64_t take(void)
{
    struct gemmd_command command;

    return link_command_next(&taker, &command) ? command.job : 0;
}

static void complete(uint64_t number)
{
    const struct gemmd_completion done = {.job = number, .status = STATUS_OK};
    struct gemmd_completion seen;

    cr_assert_eq(link_complete(&taker, &done), 0);
    cr_assert(link_complete_next(&worker.link, &seen));
    worker.in_flight--;
    queue_completed(&queue, &seen);
}

static void die(void)
{
    uint64_t taken = link_commands_taken(&worker.link);

    worker.state = WORKER_DOWN;
    queue_worker_died(&queue, taken);
    link_deinit(&taker);
    link_deinit(&worker.link);
    connect_worker();
    queue_advance(&queue);
}

static enum status status_of(uint64_t number)
{
    for (size_t i = 0; i < ended_count; i++) {
        if (ended[i].number == number)
            return ended[i].status;
    }
    return STATUS_TIMEOUT; /* not yet */
}

Test(queue, jobs_that_touch_the_same_memory_keep_their_order)
{
    uint64_t writes = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t reads = submit(&session_a, copy(1, 1, 2, 0));
    uint64_t overwrites = submit(&session_a, copy(1, 0, 1, 0));

    cr_expect_eq(take(), writes);
    cr_expect_eq(take(), 0);
    complete(writes);
    cr_expect_eq(take(), reads);
    cr_expect_eq(take(), 0);
    complete(reads);
    cr_expect_eq(take(), overwrites);
    complete(overwrites);
    cr_expect_eq(ended_count, 3);
}

Test(queue, keeps_the_order_of_jobs_that_touch_one_memory_by_two_buffers)
{
    uint64_t writes, reads;

    buffers[1].inode = buffers[2].inode = 9; /* a memfd that was registered twice */
    writes = submit(&session_a, copy(1, 0, 1, 0));
    reads = submit(&session_a, copy(1, 2, 3, 0));
    cr_expect_eq(take(), writes);
    cr_expect_eq(take(), 0);
    complete(writes);
    cr_expect_eq(take(), reads);
    complete(reads);
}

Test(queue, does_not_repeat_a_job_that_overwrote_its_input_by_another_buffer)
{
    uint64_t job;

    buffers[1].inode = buffers[2].inode = 9;
    job = submit(&session_a, copy(1, 1, 2, 0));
    cr_assert_eq(take(), job);
    die();
    cr_expect_eq(status_of(job), STATUS_GPU_FAULT);
}

Test(queue, jobs_that_only_read_the_same_memory_overlap)
{
    uint64_t one = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t two = submit(&session_a, copy(1, 0, 2, 0));

    cr_expect_eq(take(), one);
    cr_expect_eq(take(), two);
    complete(one);
    complete(two);
}

Test(queue, connections_do_not_wait_for_each_other)
{
    uint64_t one = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t two = submit(&session_b, copy(1, 1, 2, 0));

    cr_expect_eq(take(), one);
    cr_expect_eq(take(), two);
    complete(one);
    complete(two);
}

Test(queue, commits_no_more_than_the_horizon_beyond_what_runs)
{
    uint64_t jobs[6];

    for (int i = 0; i < 6; i++)
        jobs[i] = submit(&session_a, copy(1, 0, 1 + i % 3, 0));
    for (int i = 0; i < 6; i++) {
        uint64_t job = take();

        cr_expect_eq(job != 0, i < 3 || job == jobs[i]);
        if (job)
            complete(job);
    }
    uint64_t longs[4];
    for (int i = 0; i < 4; i++) /* disjoint outputs would need more buffers: other connections */
        longs[i] = submit(i % 2 ? &session_a : &session_b, copy(1, 0, 1 + i / 2, 1.0));
    cr_expect_eq(take(), longs[0]);
    cr_expect_eq(take(), longs[1]);
    cr_expect_eq(take(), 0);
    complete(longs[0]);
    cr_expect_eq(take(), longs[2]);
    complete(longs[1]);
    cr_expect_eq(take(), longs[3]);
    complete(longs[2]);
    complete(longs[3]);
}

Test(queue, uids_share_by_estimated_time)
{
    double used[2] = {0, 0};
    struct list sessions[JOBS_MAX];

    /* Uid 1 sends ten large jobs first, uid 2 thirty small ones. */
    for (int i = 0; i < 40; i++) {
        list_init(&sessions[i]);
        (void)submit(&sessions[i], i < 10 ? copy(1, 0, 1, 0.010) : copy(2, 0, 2, 0.001));
    }
    for (int i = 0; i < 20; i++) {
        uint64_t job = take();

        cr_assert_neq(job, 0);
        used[job <= 10 ? 0 : 1] += job <= 10 ? 0.010 : 0.001;
        complete(job);
    }
    /* Two large ones had been committed before uid 2 came. */
    cr_expect_leq(used[0], used[1] + 0.031, "%g against %g", used[0], used[1]);
    for (uint64_t job = take(); job; job = take())
        complete(job);
}

Test(queue, waits_for_memory_and_fails_when_it_is_lost)
{
    uint64_t waits, lost;

    buffers[1].memory.state = MEMORY_WANTED;
    waits = submit(&session_a, copy(1, 0, 1, 0));
    lost = submit(&session_a, copy(1, 1, 2, 0));
    cr_expect_eq(take(), 0);
    buffers[1].memory.state = MEMORY_MAPPED;
    queue_review(&queue);
    cr_expect_eq(take(), waits);
    buffers[1].memory.state = MEMORY_LOST;
    buffers[1].memory.lost_status = STATUS_BUFFER_LOST;
    queue_review(&queue);
    cr_expect_eq(status_of(lost), STATUS_BUFFER_LOST);
    complete(waits);
}

Test(queue, drops_what_a_gone_client_had_not_committed)
{
    uint64_t committed = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t waiting = submit(&session_a, copy(1, 1, 2, 0));

    queue_abandon(&queue, &session_a);
    cr_expect_eq(status_of(waiting), STATUS_CANCELLED);
    cr_expect_eq(status_of(committed), STATUS_TIMEOUT);
    cr_expect_eq(take(), committed);
    complete(committed);
    cr_expect_eq(take(), 0);
}

Test(queue, replays_what_the_dead_worker_had_not_taken)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 0));

    die();
    cr_expect_eq(take(), job);
    complete(job);
    cr_expect_eq(status_of(job), STATUS_OK);
    cr_expect_eq(stats.replayed, 0);
}

Test(queue, replays_suspects_one_at_a_time_before_others)
{
    uint64_t one = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t two = submit(&session_a, copy(1, 0, 2, 0));
    uint64_t later = submit(&session_a, copy(1, 0, 3, 0));

    cr_assert_eq(take(), one);
    cr_assert_eq(take(), two);
    die();
    cr_expect_eq(take(), one);
    cr_expect_eq(take(), 0);
    complete(one);
    cr_expect_eq(take(), two);
    cr_expect_eq(take(), 0);
    complete(two);
    cr_expect_eq(take(), later);
    complete(later);
    for (size_t i = 0; i < ended_count; i++)
        cr_expect_eq(ended[i].status, STATUS_OK);
}

Test(queue, finds_the_guilty_job_and_tells_only_its_owner)
{
    uint64_t innocent = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t guilty = submit(&session_b, copy(2, 0, 2, 0));
    uint64_t other = submit(&session_a, copy(1, 0, 3, 0));

    cr_assert_eq(take(), innocent);
    cr_assert_eq(take(), guilty);
    cr_assert_eq(take(), other);
    die();
    cr_assert_eq(take(), innocent);
    complete(innocent);
    cr_assert_eq(take(), guilty);
    die();
    cr_expect_eq(status_of(guilty), STATUS_GPU_FAULT);
    cr_assert_eq(take(), other);
    complete(other);
    cr_expect_eq(status_of(innocent), STATUS_OK);
    cr_expect_eq(status_of(other), STATUS_OK);
    cr_expect_eq(stats.suspects_guilty, 1);
}

Test(queue, does_not_repeat_a_job_whose_input_may_have_changed)
{
    /* The other connection's job writes what the first reads, and both had been taken. */
    uint64_t reader = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t writer = submit(&session_b, copy(1, 2, 0, 0));

    cr_assert_eq(take(), reader);
    cr_assert_eq(take(), writer);
    die();
    cr_expect_eq(status_of(reader), STATUS_GPU_FAULT);
    cr_expect_eq(take(), writer);
    complete(writer);
    cr_expect_eq(status_of(writer), STATUS_OK);
}
