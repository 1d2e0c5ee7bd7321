/*
 * The queue when a worker dies: what goes again, what is lost, who is guilty.
 */
#include "../../daemon/core/clock.h"
#include "queue_fixture.h"

TestSuite(queue_replay, .init = start, .fini = stop, .timeout = 30);

Test(queue_replay, replays_what_the_dead_worker_had_not_taken)
{
    uint64_t job = submit(&session_a, copy(1, 0, 1, 0));

    die();
    cr_expect_eq(take(), job);
    complete(job);
    cr_expect_eq(status_of(job), STATUS_OK);
    cr_expect_eq(stats.replayed, 0);
}

/* The one that ran when the worker died goes last of them. */
Test(queue_replay, replays_suspects_one_at_a_time_before_others)
{
    uint64_t ran = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t second = submit(&session_a, copy(1, 0, 2, 0));
    uint64_t third = submit(&session_b, copy(1, 0, 2, 0));
    uint64_t later = submit(&session_a, copy(1, 0, 3, 0));

    cr_assert_eq(take(), ran);
    cr_assert_eq(take(), second);
    cr_assert_eq(take(), third);
    die();
    cr_expect_eq(take(), second);
    cr_expect_eq(take(), 0);
    complete(second);
    cr_expect_eq(take(), third);
    cr_expect_eq(take(), 0);
    complete(third);
    cr_expect_eq(take(), ran);
    cr_expect_eq(take(), 0);
    complete(ran);
    cr_expect_eq(take(), later);
    complete(later);
    for (size_t i = 0; i < ended_count; i++)
        cr_expect_eq(ended[i].status, STATUS_OK);
}

Test(queue_replay, finds_the_guilty_job_and_tells_only_its_owner)
{
    uint64_t innocent = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t guilty = submit(&session_b, copy(2, 0, 2, 0));
    uint64_t other = submit(&session_a, copy(1, 0, 3, 0));

    cr_assert_eq(take(), innocent);
    cr_assert_eq(take(), guilty);
    cr_assert_eq(take(), other);
    complete(innocent);
    die();
    cr_assert_eq(take(), other, "%s", "who only waited behind it is answered first");
    complete(other);
    cr_assert_eq(take(), guilty);
    die();
    cr_expect_eq(status_of(guilty), STATUS_GPU_FAULT);
    cr_expect_eq(status_of(innocent), STATUS_OK);
    cr_expect_eq(status_of(other), STATUS_OK);
    cr_expect_eq(stats.suspects_guilty, 1);
}

/* It was not the one that ran: commands may overlap, and a fault may show late. */
Test(queue_replay, finds_the_guilty_job_wherever_it_stands)
{
    uint64_t innocent = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t guilty = submit(&session_b, copy(2, 0, 2, 0));

    cr_assert_eq(take(), innocent);
    cr_assert_eq(take(), guilty);
    die();
    cr_assert_eq(take(), guilty);
    die();
    cr_expect_eq(status_of(guilty), STATUS_GPU_FAULT);
    cr_assert_eq(take(), innocent);
    complete(innocent);
    cr_expect_eq(status_of(innocent), STATUS_OK);
    cr_expect_eq(stats.suspects_guilty, 1);
}

Test(queue_replay, does_not_repeat_a_job_whose_input_may_have_changed)
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

Test(queue_replay, repeats_a_chain_of_jobs_in_order)
{
    uint64_t first = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t second = submit(&session_a, copy(1, 1, 2, 0));
    uint64_t third = submit(&session_a, copy(1, 2, 3, 0));

    cr_assert_eq(take(), first);
    cr_assert_eq(take(), second);
    die();
    /* Two had been taken: each alone. The third had not, and follows what it reads. */
    cr_expect_eq(take(), first);
    cr_expect_eq(take(), 0);
    complete(first);
    cr_expect_eq(take(), second);
    cr_expect_eq(take(), 0);
    complete(second);
    cr_expect_eq(take(), third);
    complete(third);
    for (size_t i = 0; i < ended_count; i++)
        cr_expect_eq(ended[i].status, STATUS_OK);
}

Test(queue_replay, loses_a_job_whose_input_a_later_one_of_its_stream_may_have_overwritten)
{
    uint64_t reads = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t overwrites = submit(&session_a, copy(1, 2, 0, 0));

    cr_assert_eq(take(), reads);
    cr_assert_eq(take(), overwrites);
    die();
    cr_expect_eq(status_of(reads), STATUS_GPU_FAULT);
    cr_expect_eq(take(), overwrites);
    complete(overwrites);
    cr_expect_eq(status_of(overwrites), STATUS_OK);
}

Test(queue_replay, keeps_a_job_whose_overwriter_had_not_been_taken)
{
    uint64_t reads = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t overwrites = submit(&session_a, copy(1, 2, 0, 0));

    cr_assert_eq(take(), reads);
    die();
    cr_expect_eq(take(), reads);
    cr_expect_eq(take(), 0, "%s", "the overwriter waits for the suspect");
    complete(reads);
    cr_expect_eq(take(), overwrites);
    complete(overwrites);
    cr_expect_eq(status_of(reads), STATUS_OK);
    cr_expect_eq(status_of(overwrites), STATUS_OK);
}

/* The first is lost (its input was overwritten), so what it wrote is undefined, so the one that
 * reads that is lost as well. */
Test(queue_replay, loses_what_reads_from_a_lost_job)
{
    uint64_t first = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t reader = submit(&session_a, copy(1, 1, 2, 0));
    uint64_t overwrites = submit(&session_a, copy(1, 3, 0, 0));

    cr_assert_eq(take(), first);
    cr_assert_eq(take(), reader);
    cr_assert_eq(take(), overwrites);
    die();
    cr_expect_eq(status_of(first), STATUS_GPU_FAULT);
    cr_expect_eq(status_of(reader), STATUS_GPU_FAULT);
    cr_expect_eq(take(), overwrites);
    complete(overwrites);
}

Test(queue_replay, trusts_completions_that_were_published)
{
    uint64_t first = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t reader = submit(&session_a, copy(1, 1, 2, 0));

    cr_assert_eq(take(), first);
    cr_assert_eq(take(), reader);
    complete(first);
    die();
    cr_expect_eq(take(), reader);
    complete(reader);
    cr_expect_eq(status_of(reader), STATUS_OK);
    cr_expect_eq(take(), 0);
}

Test(queue_replay, finishes_in_order_what_a_gone_client_had_committed)
{
    uint64_t first = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t second = submit(&session_a, copy(1, 1, 2, 0));

    queue_abandon(&queue, &session_a);
    die();
    cr_expect_eq(take(), first);
    cr_expect_eq(take(), second);
    complete(first);
    complete(second);
}

Test(queue_replay, does_not_repeat_a_job_that_overwrote_its_input_by_another_buffer)
{
    uint64_t job;

    buffers[1].inode = buffers[2].inode = 9;
    job = submit(&session_a, copy(1, 1, 2, 0));
    cr_assert_eq(take(), job);
    die();
    cr_expect_eq(status_of(job), STATUS_GPU_FAULT);
}

/* What took one worker with it may well take the next: others do not wait for a start meanwhile. */
Test(queue_replay, runs_what_faulted_the_device_only_when_a_worker_stands_by)
{
    uint64_t ran = submit(&session_a, copy(1, 0, 1, 0));
    uint64_t second = submit(&session_b, copy(1, 0, 2, 0)), later;

    cr_assert_eq(take(), ran);
    cr_assert_eq(take(), second);
    worker.spare.state = SPARE_STARTING;
    (void)fault_set(&worker.lost, STATUS_GPU_FAULT, "", "the device is lost");
    die();
    cr_expect_eq(take(), second);
    complete(second);
    later = submit(&session_b, copy(1, 0, 3, 0));
    cr_expect_eq(take(), later, "%s", "it was not there when the device faulted");
    complete(later);
    cr_expect_eq(take(), 0);
    worker.spare.state = SPARE_READY;
    queue_advance(&queue);
    cr_expect_eq(take(), ran);
    complete(ran);
    cr_expect_eq(status_of(ran), STATUS_OK);
}

/* Whoever killed the worker, it was no job. */
Test(queue_replay, waits_for_no_spare_when_the_worker_was_killed)
{
    uint64_t ran = submit(&session_a, copy(1, 0, 1, 0));

    cr_assert_eq(take(), ran);
    worker.spare.state = SPARE_STARTING;
    die();
    cr_expect_eq(take(), ran);
    complete(ran);
}

/* No worker comes for a while. */
static void die_for_long(void)
{
    worker.state = WORKER_DOWN;
    queue_worker_died(&queue, link_commands_taken(&worker.link));
}

static uint64_t submit_due(uint64_t deadline_ns)
{
    struct job *job = copy(1, 0, 1, 0);

    job->deadline_ns = deadline_ns;
    return submit(&session_a, job);
}

Test(queue_replay, what_had_not_begun_is_told_when_it_is_late)
{
    const uint64_t deadline = clock_now_ns() + UINT64_C(3600000000000);
    uint64_t number = submit_due(deadline);

    cr_expect_eq(queue_expire(&queue, deadline + 1), 0, "it is committed");
    die_for_long();
    cr_expect_eq(queue_expire(&queue, deadline - 1), deadline);
    cr_expect_eq(queue_expire(&queue, deadline + 1), 0);
    cr_expect_eq(status_of(number), STATUS_DEADLINE);
}

Test(queue_replay, what_had_begun_is_not_late)
{
    const uint64_t deadline = clock_now_ns() + UINT64_C(3600000000000);
    uint64_t number = submit_due(deadline);

    cr_assert_eq(take(), number);
    die_for_long();
    cr_expect_eq(queue_expire(&queue, deadline + 1), 0);
    die();
    cr_expect_eq(take(), number);
    complete(number);
    cr_expect_eq(status_of(number), STATUS_OK);
}
