/*
 * The queue: order, horizon, coming and going.
 */
#include "queue_fixture.h"

#include "../../daemon/core/clock.h"

TestSuite(queue, .init = start, .fini = stop, .timeout = 30);

Test(queue, jobs_that_touch_the_same_memory_keep_their_order)
{
    uint64_t writes = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t reads = submit(&session_a, copy(1, 1, 2, 0));
    uint64_t overwrites = submit(&session_a, copy(1, 0, 1, 0));

    /* Committed ahead: the worker keeps the order of its commands. */
    cr_expect_eq(take(), writes);
    cr_expect_eq(take(), reads);
    cr_expect_eq(take(), overwrites);
    complete(writes);
    complete(reads);
    complete(overwrites);
    cr_expect_eq(ended_count, 3);
}

Test(queue, commits_no_job_before_one_that_it_depends_on)
{
    uint64_t long_one, writes, reads, urgent;
    struct job *job = copy(1, 2, 3, 0);

    long_one = submit(&session_b, copy(1, 0, 3, 1));
    writes = submit(&session_a, copy(1, 0, 1, 1));
    reads = submit(&session_a, copy(1, 1, 2, 0));
    job->priority = 1; /* it reads what `reads` writes */
    urgent = submit(&session_a, job);
    cr_expect_eq(take(), long_one);
    cr_expect_eq(take(), 0);
    complete(long_one);
    cr_expect_eq(take(), writes);
    complete(writes);
    cr_expect_eq(take(), reads);
    cr_expect_eq(take(), urgent);
    complete(reads);
    complete(urgent);
}

/* A memfd that was registered twice. The reader could go at once, and has the higher priority. The
 * worker, which compares addresses, would not see that the two meet: it may have only one of them.
 */
Test(queue, keeps_the_order_of_jobs_that_touch_one_memory_by_two_buffers)
{
    struct job *reader = copy(1, 2, 3, 0);
    uint64_t before, writes, reads;

    buffers[1].inode = buffers[2].inode = 9;
    before = submit(&session_b, copy(1, 0, 0, 1));
    writes = submit(&session_a, copy(1, 0, 1, 1));
    reader->priority = 1;
    reads = submit(&session_a, reader);
    cr_expect_eq(take(), before);
    cr_expect_eq(take(), 0);
    complete(before);
    cr_expect_eq(take(), writes);
    cr_expect_eq(take(), 0);
    complete(writes);
    cr_expect_eq(take(), reads);
    complete(reads);
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

    /* Small ones: 90 us each, one running and two behind it. */
    for (int i = 0; i < 6; i++)
        jobs[i] = submit(&session_a, copy(1, 0, 1 + i % 3, 90e-6));
    for (int i = 0; i < 3; i++)
        cr_expect_eq(take(), jobs[i]);
    cr_expect_eq(take(), 0);
    for (int i = 0; i < 6; i++) {
        complete(jobs[i]);
        cr_expect_eq(take(), i < 3 ? jobs[i + 3] : 0);
    }
}

Test(queue, commits_what_is_longer_than_the_horizon_alone)
{
    uint64_t first = submit(&session_a, copy(1, 0, 1, 1.0));
    uint64_t second = submit(&session_a, copy(1, 0, 2, 1.0));
    uint64_t small = submit(&session_b, copy(2, 0, 3, 1e-6));

    cr_expect_eq(take(), first);
    /* The other uid's small one waits behind what runs, and behind nothing else. */
    cr_expect_eq(take(), small);
    cr_expect_eq(take(), 0);
    complete(first);
    complete(small);
    cr_expect_eq(take(), second);
    complete(second);
}

Test(queue, waits_for_memory_and_fails_when_it_is_lost)
{
    uint64_t waits, lost;

    buffers[1].memory.state = MEMORY_WANTED;
    waits = submit(&session_a, copy(1, 0, 1, 1));
    lost = submit(&session_a, copy(1, 1, 2, 1));
    cr_expect_eq(take(), 0);
    buffers[1].memory.state = MEMORY_MAPPED;
    queue_review(&queue);
    cr_expect_eq(take(), waits);
    buffers[1].memory.state = MEMORY_LOST;
    buffers[1].memory.lost_status = STATUS_BUFFER_LOST;
    queue_review(&queue);
    complete(waits);
    cr_expect_eq(status_of(lost), STATUS_BUFFER_LOST);
}

Test(queue, drops_what_a_gone_client_had_not_committed)
{
    uint64_t committed = submit(&session_a, copy(1, 0, 1, 1));
    uint64_t waiting = submit(&session_a, copy(1, 1, 2, 1));

    queue_abandon(&queue, &session_a);
    cr_expect_eq(status_of(waiting), STATUS_CANCELLED);
    cr_expect_eq(status_of(committed), STATUS_TIMEOUT);
    cr_expect_eq(take(), committed);
    complete(committed);
    cr_expect_eq(take(), 0);
}

/* --- what ends a job before it ran ----------------------------------------------------------- */

Test(queue, cancels_a_job_that_was_not_committed)
{
    struct job *job = copy(1, 0, 2, 1);
    uint64_t runs = submit(&session_a, copy(1, 0, 1, 1)), cancelled;

    job->request = 7;
    cancelled = submit(&session_a, job);
    cr_expect_eq(take(), runs);
    cr_expect(queue_cancel(&queue, &session_a, 7));
    cr_expect_eq(status_of(cancelled), STATUS_CANCELLED);
    cr_expect_not(queue_cancel(&queue, &session_a, 7), "%s", "it is answered already");
    complete(runs);
    cr_expect_eq(take(), 0);
}

Test(queue, cancels_nothing_that_runs_nor_another_connections_jobs)
{
    struct job *job = copy(1, 0, 1, 1), *other = copy(1, 0, 2, 1);
    uint64_t runs, waits;

    job->request = 7;
    other->request = 8;
    runs = submit(&session_a, job);
    waits = submit(&session_b, other);
    cr_expect_eq(take(), runs);
    cr_expect_not(queue_cancel(&queue, &session_a, 7));
    cr_expect_not(queue_cancel(&queue, &session_a, 8));
    complete(runs);
    cr_expect_eq(take(), waits);
    complete(waits);
    cr_expect_eq(status_of(runs), STATUS_OK);
    cr_expect_eq(status_of(waits), STATUS_OK);
}

Test(queue, what_depends_on_a_cancelled_job_runs_without_it)
{
    struct job *job = copy(1, 0, 1, 1);
    uint64_t before = submit(&session_b, copy(1, 0, 3, 1)), reads;

    job->request = 7;
    (void)submit(&session_a, job);
    reads = submit(&session_a, copy(1, 1, 2, 1));
    cr_expect_eq(take(), before);
    cr_expect(queue_cancel(&queue, &session_a, 7));
    complete(before);
    cr_expect_eq(take(), reads);
    complete(reads);
}

Test(queue, late_jobs_are_answered_and_do_not_run)
{
    struct job *late = copy(1, 0, 2, 1), *later = copy(1, 0, 3, 1);
    uint64_t runs = submit(&session_a, copy(1, 0, 1, 1)), late_number, later_number;
    const uint64_t now = clock_now_ns(), hour = UINT64_C(3600000000000);

    late->deadline_ns = now + hour;
    later->deadline_ns = now + 2 * hour;
    late_number = submit(&session_a, late);
    later_number = submit(&session_a, later);
    cr_expect_eq(take(), runs);
    cr_expect_eq(queue_expire(&queue, now), now + hour);
    cr_expect_eq(ended_count, 0);
    cr_expect_eq(queue_expire(&queue, now + hour + 1), now + 2 * hour);
    cr_expect_eq(status_of(late_number), STATUS_DEADLINE);
    complete(runs);
    cr_expect_eq(take(), later_number);
    /* It started in time. */
    cr_expect_eq(queue_expire(&queue, now + 3 * hour), 0);
    complete(later_number);
    cr_expect_eq(status_of(later_number), STATUS_OK);
}

Test(queue, a_job_whose_turn_comes_too_late_does_not_run)
{
    struct job *late = copy(1, 0, 2, 1);
    uint64_t runs = submit(&session_a, copy(1, 0, 1, 1)), late_number;

    late->deadline_ns = 1; /* shortly after the machine started */
    late_number = submit(&session_a, late);
    cr_expect_eq(take(), runs);
    complete(runs);
    cr_expect_eq(take(), 0);
    cr_expect_eq(status_of(late_number), STATUS_DEADLINE);
}
