/*
 * The queue's shares: over uids, over a uid's connections, by priority; slices.
 */
#include "queue_fixture.h"

TestSuite(queue_fair, .init = start, .fini = stop, .timeout = 30);

/* Jobs of two classes, always some of each waiting, for `turns` commands: device seconds of each.
 * A job writes memory of its own connection only, so nothing but the turns decides. */
struct contest {
    uid_t uid[2];
    double seconds[2];  /* as predicted */
    double measured[2]; /* as it is */
    int priority[2];
};

static void contend(const struct contest *contest, int turns, double ret_used[2])
{
    static struct stream streams[2];
    uint64_t owner[JOBS_MAX] = {0};
    int waiting[2] = {0, 0};

    stream_init(&streams[0]);
    stream_init(&streams[1]);
    ret_used[0] = ret_used[1] = 0;
    for (int i = 0; i <= turns; i++) {
        uint64_t number;

        for (int c = 0; c < 2; c++) {
            for (; waiting[c] < 5 && i < turns; waiting[c]++) {
                struct job *job = copy(contest->uid[c], 0, 1 + c, contest->seconds[c]);

                job->priority = contest->priority[c];
                number = submit(&streams[c], job);
                owner[number % JOBS_MAX] = (uint64_t)c;
            }
        }
        while ((number = take())) {
            int c = (int)owner[number % JOBS_MAX];

            waiting[c]--;
            complete_after(number, contest->measured[c]);
            ended_count = 0;
            if (i < turns) {
                ret_used[c] += contest->measured[c];
                break;
            }
        }
    }
}

Test(queue_fair, uids_share_device_time_whatever_their_jobs_sizes)
{
    static const double ratios[] = {1, 3, 10, 100};

    for (size_t i = 0; i < ARRAY_SIZE(ratios); i++) {
        double large = 250e-6 * ratios[i], small = 250e-6, used[2];
        struct contest contest = {{1, 2}, {large, small}, {large, small}, {0, 0}};

        contend(&contest, 1000, used);
        cr_expect_leq(used[0], used[1] + 2 * large, "%g: %g against %g", ratios[i], used[0],
                      used[1]);
        cr_expect_leq(used[1], used[0] + 2 * large, "%g: %g against %g", ratios[i], used[0],
                      used[1]);
    }
}

Test(queue_fair, uids_share_device_time_by_weight)
{
    struct quota_rules rules = {0};
    struct contest contest = {{1, 2}, {1e-3, 2e-3}, {1e-3, 2e-3}, {0, 0}};
    double used[2];

    cr_assert(quota_rules_set_weight(&rules, 1, 3));
    quota_set_rules(&quota, &rules);
    contend(&contest, 1000, used);
    cr_expect_float_eq(used[0], 3 * used[1], 10e-3, "%g against %g", used[0], used[1]);
}

Test(queue_fair, connections_of_a_uid_share_device_time)
{
    struct contest contest = {{1, 1}, {10e-3, 1e-3}, {10e-3, 1e-3}, {0, 0}};
    double used[2];

    contend(&contest, 500, used);
    cr_expect_leq(used[0], used[1] + 20e-3, "%g against %g", used[0], used[1]);
    cr_expect_leq(used[1], used[0] + 20e-3, "%g against %g", used[0], used[1]);
}

Test(queue_fair, wrong_predictions_do_not_gain_device_time)
{
    /* The first takes ten times what was predicted, the second a tenth. */
    struct contest contest = {{1, 2}, {1e-3, 1e-3}, {10e-3, 0.1e-3}, {0, 0}};
    double used[2];

    contend(&contest, 2000, used);
    cr_expect_leq(used[0], used[1] + 30e-3, "%g against %g", used[0], used[1]);
    cr_expect_leq(used[1], used[0] + 30e-3, "%g against %g", used[0], used[1]);
}

Test(queue_fair, priority_counts_within_a_uid)
{
    struct contest contest = {{1, 1}, {1e-3, 1e-3}, {1e-3, 1e-3}, {1, -1}};
    double used[2];

    contend(&contest, 100, used);
    cr_expect_leq(used[1], 0, "%g against %g", used[0], used[1]);
}

Test(queue_fair, priority_gains_nothing_over_another_uid)
{
    struct contest contest = {{1, 2}, {1e-3, 1e-3}, {1e-3, 1e-3}, {1, -1}};
    double used[2];

    contend(&contest, 200, used);
    cr_expect_float_eq(used[0], used[1], 2.1e-3, "%g against %g", used[0], used[1]);
}

Test(queue_fair, a_uid_that_comes_back_starts_level)
{
    double used[2] = {0, 0};
    uint64_t number;

    /* Uid 2 has no work for a hundred turns of uid 1, which nobody else wanted. */
    for (int i = 0; i < 100; i++) {
        number = submit(&session_a, copy(1, 0, 1, 1e-3));
        cr_assert_eq(take(), number);
        complete(number);
    }
    for (int i = 0; i < 20; i++) {
        (void)submit(&session_a, copy(1, 0, 1, 1e-3));
        (void)submit(&session_b, copy(2, 0, 2, 1e-3));
    }
    for (int i = 0; i < 20; i++) {
        number = take();
        used[number % 2] += 1e-3;
        complete(number);
    }
    cr_expect_float_eq(used[0], used[1], 2.1e-3, "%g against %g", used[0], used[1]);
    while ((number = take()))
        complete(number);
}

/* A client that connects anew for each job pays for the last one all the same. */
Test(queue_fair, leaving_and_coming_back_pays_no_debt)
{
    struct stream each[JOBS_MAX];
    double used[2] = {0, 0};
    uint64_t number;

    for (int i = 0; i < 100; i++)
        (void)submit(&session_b, copy(2, 0, 2, 1e-3));
    for (int i = 0; i < 50; i++) {
        uint64_t visitor;

        stream_init(&each[i]);
        visitor = submit(&each[i], copy(1, 0, 1, 20e-3));
        do {
            number = take();
            used[number == visitor ? 0 : 1] += seconds_of[number % JOBS_MAX];
            complete(number);
        } while (number != visitor && queue.count > 1);
        if (queue.count <= 1)
            break;
    }
    while ((number = take()))
        complete(number);
    cr_expect_leq(used[0], used[1] + 41e-3, "%g against %g", used[0], used[1]);
}

/* --- slices ---------------------------------------------------------------------------------- */

/* A product of `tiles` tiles on a device that computes `wave` of them at once. */
static struct job *
product(uid_t uid, int from, int to, double seconds, uint64_t tiles, uint64_t wave)
{
    struct job *job = copy(uid, from, to, seconds);

    job->kind = JOB_PRODUCT;
    job->problem = (struct problem){.input = DTYPE_FP32, .output = DTYPE_FP32, .batch = 1};
    job->tiles = tiles;
    job->wave_tiles = wave;
    for (int i = 0; i < BUFFERS; i++)
        buffers[i].memory.kind = LINK_MEMORY_DEVICE_CREATE;
    return job;
}

Test(queue_fair, slices_of_a_large_job_cover_its_tiles_once_and_end_in_one_answer)
{
    uint64_t number = submit(&session_a, product(1, 0, 1, 10e-3, 1001, 7));
    uint64_t next_tile = 0;

    while (take()) {
        const struct gemmd_job *gemm = &taken.body.gemm;

        cr_expect_eq(taken.job, number);
        cr_expect_eq(gemm->first_tile, next_tile);
        cr_expect_eq(ended_count, 0);
        if (gemm->tile_count) {
            cr_expect_eq(gemm->tile_count % 7, 0);
            cr_expect_leq(10e-3 * gemm->tile_count / 1001, QUEUE_HORIZON_SECONDS);
        }
        next_tile += gemm->tile_count ? gemm->tile_count : 1001 - next_tile;
        complete_after(number, 100e-6);
    }
    cr_expect_eq(next_tile, 1001);
    cr_expect_eq(status_of(number), STATUS_OK);
    cr_expect_eq(ended_count, 1);
}

/* 4096^3 on an H200: four waves of 53 us, the last one not quite full. */
Test(queue_fair, a_job_hardly_longer_than_a_slice_is_one_command_and_the_next_waits_behind_it)
{
    const double seconds = QUEUE_HORIZON_SECONDS * JOB_WHOLE_SLICES * 0.99;
    uint64_t first = submit(&session_a, product(1, 0, 1, seconds, 256, 66));
    uint64_t second = submit(&session_b, product(2, 0, 2, seconds, 256, 66));
    uint64_t third = submit(&session_b, product(2, 0, 3, seconds, 256, 66));

    cr_expect_eq(take(), first);
    cr_expect_eq(taken.body.gemm.tile_count, 0);
    cr_expect_eq(take(), second, "the device has something to do when the first one ends");
    cr_expect_eq(taken.body.gemm.tile_count, 0);
    cr_expect_eq(take(), 0);
    complete(first);
    cr_expect_eq(take(), third);
    complete(second);
    complete(third);
    cr_expect_eq(ended_count, 3);
}

Test(queue_fair, tiles_are_counted_in_clusters)
{
    struct job *job = job_new();
    uint64_t wave;

    cr_assert(config_from_text("sm90a.bf16.bf16.nt.128x256x64.s4.c1x1.coop.tma", &job->config));
    job_count_tiles(job, 1001, 132);
    wave = job->wave_tiles;
    cr_expect_eq(job->tiles, 1001);
    cr_expect_eq(wave % 132, 0);
    cr_assert(config_from_text("sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma", &job->config));
    job_count_tiles(job, 1001, 132);
    cr_expect_eq(job->tiles, 501);
    cr_expect_eq(job->wave_tiles, wave / 2);
    (void)job_free(job);
}

Test(queue_fair, a_small_job_waits_for_two_slices_of_a_large_one_at_most)
{
    uint64_t large = submit(&session_a, product(1, 0, 1, 1, 9000, 1)), small;

    cr_expect_eq(take(), large);
    small = submit(&session_b, product(2, 0, 2, 5e-6, 1, 1));
    cr_expect_eq(take(), large); /* had been committed */
    complete_after(large, 100e-6);
    cr_expect_eq(take(), small);
    complete_after(large, 100e-6);
    complete(small);
    cr_expect_eq(status_of(small), STATUS_OK);
    queue_end(&queue);
}

Test(queue_fair, jobs_in_host_memory_and_without_tiles_are_not_sliced)
{
    uint64_t number;
    struct job *host = product(1, 0, 1, 1, 1000, 1);

    buffers[1].memory.kind = LINK_MEMORY_HOST;
    number = submit(&session_a, host);
    cr_expect_eq(take(), number);
    cr_expect_eq(taken.body.gemm.tile_count, 0);
    cr_expect_eq(take(), 0);
    complete(number);
    number = submit(&session_a, product(1, 0, 2, 1, 0, 0));
    cr_expect_eq(take(), number);
    cr_expect_eq(taken.body.gemm.tile_count, 0);
    cr_expect_eq(take(), 0);
    complete(number);
}

Test(queue_fair, a_job_that_depends_on_a_sliced_one_follows_its_last_slice)
{
    uint64_t large = submit(&session_a, product(1, 0, 1, 1e-3, 10, 1));
    uint64_t reader = submit(&session_a, product(1, 1, 2, 1e-6, 1, 1));
    int slices = 0;

    for (uint64_t job = take(); job == large; job = take()) {
        slices++;
        complete_after(large, 100e-6);
    }
    cr_expect_gt(slices, 1);
    cr_expect_eq(taken.job, reader);
    complete(reader);
}

Test(queue_fair, a_sliced_job_goes_on_behind_the_slices_that_were_done)
{
    uint64_t large = submit(&session_a, product(1, 0, 1, 1e-3, 10, 1)), done;

    cr_assert_eq(take(), large);
    done = taken.body.gemm.tile_count;
    complete_after(large, 100e-6);
    die(); /* the next slice had not been taken */
    cr_assert_eq(take(), large);
    cr_expect_eq(taken.body.gemm.first_tile, done);
    cr_expect_neq(taken.body.gemm.tile_count, 0, "%s", "it is no suspect");
    die(); /* and this one had */
    cr_assert_eq(take(), large);
    cr_expect_eq(taken.body.gemm.first_tile, done);
    cr_expect_eq(taken.body.gemm.tile_count, 0, "%s", "a suspect is one launch");
    cr_expect_eq(take(), 0);
    complete_after(large, 1e-3);
    cr_expect_eq(status_of(large), STATUS_OK);
    cr_expect_eq(ended_count, 1);
}

/* In place: a slice that was started may have overwritten its part of C. */
Test(queue_fair, an_in_place_job_is_lost_with_a_slice_that_was_taken)
{
    struct job *job = product(1, 0, 1, 1e-3, 10, 1);
    uint64_t number;

    job_use_buffer(job, OPERAND_C, buffer_ref(&buffers[1]), 0, 100);
    job->problem.beta = 1;
    number = submit(&session_a, job);
    cr_assert_eq(take(), number);
    complete_after(number, 100e-6);
    die();
    cr_expect_eq(status_of(number), STATUS_TIMEOUT);
    cr_assert_eq(take(), number);
    die();
    cr_expect_eq(status_of(number), STATUS_GPU_FAULT);
    cr_expect_eq(ended_count, 1);
}

Test(queue_fair, what_a_gone_client_had_begun_runs_to_its_end)
{
    uint64_t large = submit(&session_a, product(1, 0, 1, 1e-3, 10, 1)), tiles = 0;

    cr_assert_eq(take(), large);
    queue_abandon(&queue, &session_a);
    do {
        tiles += taken.body.gemm.tile_count ? taken.body.gemm.tile_count : 10 - tiles;
        complete_after(large, 100e-6);
    } while (take());
    cr_expect_eq(tiles, 10);
    cr_expect_eq(ended_count, 1);
}

/* --- tracks ----------------------------------------------------------------------------------- */

static struct job *in_track(enum gemmd_track track, uid_t uid, int from, int to, double seconds)
{
    struct job *job = copy(uid, from, to, seconds);

    job->track = track;
    return job;
}

Test(queue_fair, a_long_job_of_one_track_does_not_keep_another_track_waiting)
{
    uint64_t streamed = submit(&session_a, in_track(GEMMD_TRACK_STREAM, 1, 0, 1, 1.0));
    uint64_t small = submit(&session_b, in_track(GEMMD_TRACK_MAIN, 2, 2, 3, 10e-6));

    cr_expect_eq(take(), streamed);
    cr_expect_eq(take(), small);
    complete_after(small, 10e-6);
    small = submit(&session_b, in_track(GEMMD_TRACK_MAIN, 2, 2, 3, 10e-6));
    cr_expect_eq(take(), small, "in the middle of it");
    complete(streamed);
    complete(small);
}

/* The record of what was sent has a place for each command since the oldest that is not done. */
Test(queue_fair, no_more_commands_pass_a_long_one_than_are_recorded)
{
    uint64_t streamed = submit(&session_a, in_track(GEMMD_TRACK_STREAM, 1, 0, 1, 1.0));
    unsigned passed = 0;
    uint64_t number;

    cr_assert_eq(take(), streamed);
    for (unsigned i = 0; i < 2 * LINK_COMMANDS; i++) {
        (void)submit(&session_b, in_track(GEMMD_TRACK_MAIN, 2, 2, 3, 1e-6));
        while ((number = take())) {
            complete(number);
            passed++;
        }
    }
    cr_expect_eq(passed, LINK_COMMANDS - 1);
    complete(streamed);
    cr_expect_eq(status_of(streamed), STATUS_OK);
    while ((number = take())) {
        complete(number);
        passed++;
    }
    cr_expect_eq(passed, 2 * LINK_COMMANDS);
}

Test(queue_fair, who_waits_for_a_track_does_not_keep_others_from_theirs)
{
    uint64_t numbers[3], small;

    for (int i = 0; i < 3; i++)
        numbers[i] = submit(&session_a, in_track(GEMMD_TRACK_STREAM, 1, 0, 1 + i, 1.0));
    cr_expect_eq(take(), numbers[0]);
    cr_expect_eq(take(), numbers[1], "its copies begin in the tail of the first");
    cr_expect_eq(take(), 0, "and no third");
    small = submit(&session_b, in_track(GEMMD_TRACK_MAIN, 2, 0, 0, 100.0));
    cr_expect_eq(take(), small);
    complete(numbers[0]);
    cr_expect_eq(take(), numbers[2]);
    complete(small);
    complete(numbers[1]);
    complete(numbers[2]);
}

Test(queue_fair, a_job_that_needs_another_tracks_result_waits_for_its_end)
{
    static const struct {
        enum gemmd_track first, second;
        bool waits;
    } cases[] = {{GEMMD_TRACK_MAIN, GEMMD_TRACK_MAIN, false},
                 {GEMMD_TRACK_IN, GEMMD_TRACK_IN, false},
                 {GEMMD_TRACK_OUT, GEMMD_TRACK_OUT, false},
                 {GEMMD_TRACK_IN, GEMMD_TRACK_MAIN, true},
                 {GEMMD_TRACK_MAIN, GEMMD_TRACK_OUT, true},
                 {GEMMD_TRACK_STREAM, GEMMD_TRACK_STREAM, true}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t first = submit(&session_a, in_track(cases[i].first, 1, 0, 1, 10e-6));
        uint64_t second = submit(&session_a, in_track(cases[i].second, 1, 1, 2, 10e-6));

        cr_expect_eq(take(), first, "case %zu", i);
        cr_expect_eq(take(), cases[i].waits ? 0 : second, "case %zu", i);
        complete(first);
        if (cases[i].waits)
            cr_expect_eq(take(), second, "case %zu", i);
        complete(second);
    }
}

Test(queue_fair, a_tracks_time_is_not_anothers)
{
    struct job *job = in_track(GEMMD_TRACK_STREAM, 1, 0, 1, 1.0);
    uint64_t class = job_estimate_class(job), began = clock_ns;
    uint64_t streamed = submit(&session_a, job);
    uint64_t small = submit(&session_b, in_track(GEMMD_TRACK_MAIN, 2, 2, 3, 10e-6));

    (void)take();
    (void)take();
    clock_ns = began + 500000000;
    complete_after(small, 10e-6);
    clock_ns = began;
    complete_after(streamed, 1.0);
    cr_expect_float_eq(estimate_correct(&queue.estimates, class, 1.0), 1.0, 1e-6);
}

Test(queue_fair, quick_jobs_gain_no_device_time_over_another_uid)
{
    struct contest contest = {{1, 2}, {1e-3, 10e-6}, {1e-3, 10e-6}, {0, 0}};
    double used[2];

    contend(&contest, 3000, used);
    cr_expect_leq(used[0], used[1] + 2e-3, "%g against %g", used[0], used[1]);
    cr_expect_leq(used[1], used[0] + 2e-3, "%g against %g", used[0], used[1]);
}
