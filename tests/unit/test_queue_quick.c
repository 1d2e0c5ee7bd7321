/*
 * The queue's quick jobs: beside what, behind what, and what they and others are charged.
 */
#include "queue_fixture.h"

TestSuite(queue_quick, .init = start, .fini = stop, .timeout = 30);

static uint64_t submit_seconds(struct stream *stream, uid_t uid, int buffer, double seconds)
{
    return submit(stream, copy(uid, 0, buffer, seconds));
}

Test(queue_quick, a_quick_job_is_committed_beside_what_fills_the_horizon)
{
    uint64_t running = submit_seconds(&session_a, 1, 1, 150e-6),
             next = submit_seconds(&session_a, 1, 2, 190e-6),
             quick = submit_seconds(&session_b, 2, 3, 15e-6);

    cr_expect_eq(take(), running);
    cr_expect_eq(take(), next);
    cr_expect_not(taken.is_quick);
    cr_expect_eq(take(), quick);
    cr_expect(taken.is_quick);
    complete(quick);
    complete(running);
    complete(next);
}

Test(queue_quick, quick_jobs_have_a_horizon_too)
{
    size_t count = 0;
    uint64_t first = submit_seconds(&session_a, 1, 1, 150e-6), numbers[64];

    for (int i = 0; i < 30; i++)
        submit_seconds(&session_b, 2, 2, 19e-6);
    cr_assert_eq(take(), first);
    while ((numbers[count] = take()))
        count++;
    cr_expect_eq(count, (size_t)(QUEUE_HORIZON_SECONDS / 19e-6));
    complete(first);
    for (size_t i = 0; i < count; i++)
        complete(numbers[i]);
    while ((first = take()))
        complete(first);
    cr_expect_eq(ended_count, 31);
}

/* A device on which quick commands run beside the others, each kind at half its speed. */
struct device {
    uint64_t quick[JOBS_MAX], quick_started[JOBS_MAX], large[JOBS_MAX], large_started[JOBS_MAX];
    size_t quick_begin, quick_end, large_begin, large_end;
    double large_done; /* seconds of work of the oldest large one */
};

static void device_take(struct device *device)
{
    uint64_t number;

    while ((number = take())) {
        uint64_t *numbers = taken.is_quick ? device->quick : device->large;
        uint64_t *started = taken.is_quick ? device->quick_started : device->large_started;
        size_t *end = taken.is_quick ? &device->quick_end : &device->large_end;

        started[*end % JOBS_MAX] = clock_ns;
        numbers[(*end)++ % JOBS_MAX] = number;
    }
}

static void device_end(const uint64_t *numbers, const uint64_t *started, size_t *begin)
{
    uint64_t now = clock_ns;

    clock_ns = started[*begin % JOBS_MAX];
    complete_after(numbers[*begin % JOBS_MAX], (double)(now - clock_ns) * 1e-9);
    clock_ns = now;
    (*begin)++;
    ended_count = 0;
}

/* Runs until the next one ends; whether that is a quick one. */
static bool device_run(struct device *device, double quick, double large)
{
    bool has_quick = device->quick_begin < device->quick_end;
    bool has_large = device->large_begin < device->large_end;
    double slow = has_quick && has_large ? 2 : 1, left = large - device->large_done;

    cr_assert(has_quick || has_large, "nothing is committed");
    if (has_quick && (!has_large || quick <= left)) {
        clock_ns += (uint64_t)(slow * quick * 1e9);
        device->large_done += has_large ? quick : 0;
        device_end(device->quick, device->quick_started, &device->quick_begin);
        return true;
    }
    clock_ns += (uint64_t)(slow * left * 1e9);
    device->large_done = 0;
    device_end(device->large, device->large_started, &device->large_begin);
    return false;
}

Test(queue_quick, who_runs_beside_others_is_charged_what_it_takes_and_no_wait)
{
    enum { ENDS = 4000 };

    const double quick = 8e-6, large = 190e-6;
    static struct device device;
    double used[2] = {0, 0};
    uint64_t class = 0;

    for (int i = 0; i < 60; i++) {
        struct job *job = copy(2, 0, 2, quick);

        class = job_estimate_class(job);
        (void)submit(&session_b, job);
        (void)submit(&session_a, copy(1, 0, 1, large));
    }
    device_take(&device);
    for (int i = 0; i < ENDS; i++) {
        bool was_quick = device_run(&device, quick, large);

        used[was_quick] += was_quick ? quick : large;
        (void)(was_quick ? submit(&session_b, copy(2, 0, 2, quick))
                         : submit(&session_a, copy(1, 0, 1, large)));
        device_take(&device);
    }
    cr_expect_float_eq(used[0], used[1], 5 * large, "%g against %g", used[0], used[1]);
    cr_expect_float_eq(estimate_correct(&queue.estimates, class, quick), quick, 1e-9,
                       "a wait was taken for work");
    queue_abandon(&queue, &session_a);
    queue_abandon(&queue, &session_b);
    while (device.quick_begin < device.quick_end || device.large_begin < device.large_end)
        (void)device_run(&device, quick, large);
}

Test(queue_quick, a_job_that_was_measured_with_delays_is_still_quick)
{
    for (int i = 0; i < 30; i++) {
        uint64_t number = submit_seconds(&session_a, 1, 1, 10e-6);

        cr_assert_eq(take(), number);
        cr_expect(taken.is_quick);
        complete_after(number, 60e-6);
    }
}

Test(queue_quick, a_class_that_was_predicted_wrong_is_not_quick)
{
    uint64_t number = 0;

    for (int i = 0; i < 30; i++) {
        number = submit_seconds(&session_a, 1, 1, 10e-6);
        cr_assert_eq(take(), number);
        complete_after(number, 300e-6);
    }
    cr_expect_not(taken.is_quick);
}
