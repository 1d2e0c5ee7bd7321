/*
 * One device, many who want it: cancelling, deadlines, priorities, shares. On the CPU, whose worker
 * may stand still while a test says what is to run and what waits behind it.
 */
#include "../support/daemon.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONG = 600 }; /* more than may be committed beside what runs */

static struct test_daemon daemon_;
static gemmd *connection;

static void start(void)
{
    static const char *const arguments[] = {"--mode", "0666", NULL};

    if (!test_device_is_cpu())
        cr_skip_test("a GPU's worker that stands still is replaced at once");
    test_daemon_start(&daemon_, arguments);
    cr_assert_eq(chmod(daemon_.directory, 0711), 0);
    connection = test_daemon_connect(&daemon_);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

TestSuite(sharing, .init = start, .fini = stop, .timeout = 120);

static gemmd_product square(gemmd *from, int64_t n)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = n;
    for (int i = 0; i < 3; i++) {
        gemmd_operand *operand[] = {&product.a, &product.b, &product.d};

        cr_assert_eq(gemmd_buffer_create(from, GEMMD_DEVICE, (uint64_t)(n * n) * 4, NULL, 0,
                                         &operand[i]->buffer),
                     GEMMD_OK);
    }
    return product;
}

static gemmd_job submit(const gemmd_product *product)
{
    gemmd_job job = 0;

    cr_assert_eq(gemmd_submit(connection, product, &job), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    return job;
}

Test(sharing, a_waiting_job_is_cancelled_and_a_committed_one_finishes)
{
    gemmd_product product = square(connection, LONG), other = square(connection, LONG);
    pid_t worker = test_worker_hold(connection);
    gemmd_job runs = submit(&product), waits = submit(&other);
    bool cancelled = false;

    cr_assert_eq(gemmd_cancel(connection, waits, &cancelled), GEMMD_OK);
    cr_expect(cancelled);
    cr_expect_eq(gemmd_wait(connection, waits, -1, NULL), GEMMD_CANCELLED);
    cr_assert_eq(gemmd_cancel(connection, runs, &cancelled), GEMMD_OK);
    cr_expect_not(cancelled);
    test_worker_release(worker);
    cr_expect_eq(gemmd_wait(connection, runs, -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_cancel(connection, runs, &cancelled), GEMMD_NOT_FOUND);
}

Test(sharing, late_work_is_answered_and_not_run)
{
    gemmd_product product = square(connection, LONG), late = square(connection, LONG);
    pid_t worker = test_worker_hold(connection);
    gemmd_job first = submit(&product), second, third;

    late.deadline_seconds = 1e-3;
    second = submit(&late);
    late.deadline_seconds = 600;
    third = submit(&late);
    cr_expect_eq(gemmd_wait(connection, second, -1, NULL), GEMMD_DEADLINE);
    test_worker_release(worker);
    cr_expect_eq(gemmd_wait(connection, first, -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, third, -1, NULL), GEMMD_OK);
}

Test(sharing, higher_priority_goes_first)
{
    gemmd_product product = square(connection, LONG), low = square(connection, LONG);
    gemmd_product high = square(connection, LONG);
    pid_t worker = test_worker_hold(connection);
    gemmd_job first = submit(&product), second, third;
    gemmd_result of_low = {.size = sizeof(of_low)}, of_high = {.size = sizeof(of_high)};

    low.priority = -1;
    high.priority = 1;
    second = submit(&low);
    third = submit(&high);
    (void)test_status_number(connection, NULL, "jobs"); /* all have arrived */
    test_worker_release(worker);
    cr_expect_eq(gemmd_wait(connection, first, -1, NULL), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, second, -1, &of_low), GEMMD_OK);
    cr_expect_eq(gemmd_wait(connection, third, -1, &of_high), GEMMD_OK);
    cr_expect_lt(of_high.queued_seconds, of_low.queued_seconds);
}

Test(sharing, names_what_is_wrong_with_deadline_and_priority)
{
    gemmd_product product = square(connection, 1);
    gemmd_job job;

    product.priority = 2;
    cr_expect_eq(gemmd_submit(connection, &product, &job), GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "priority");
    product.priority = 0;
    product.deadline_seconds = -1;
    cr_expect_eq(gemmd_submit(connection, &product, &job), GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "deadline_seconds");
}

/* --- shares ---------------------------------------------------------------------------------- */

enum { STREAMS = 15, EACH = 250, FEW = 30, ENOUGH = 3000, ROUNDS = 20 };

/* A uid with connections, and products of one size on each. What it has waiting lasts for longer
 * than what is looked at. */
struct contender {
    int streams, each;
    gemmd *connections[STREAMS];
    gemmd_product products[STREAMS];
    gemmd_job jobs[STREAMS][EACH];
    int taken[STREAMS];
    double seconds; /* the device's, of what was taken */
};

/* The daemon sees who connected by the effective uid. */
static void enter(struct contender *contender, uid_t uid, int64_t n, int streams, int each)
{
    contender->streams = streams;
    contender->each = each;
    cr_assert_eq(seteuid(uid), 0);
    for (int i = 0; i < streams; i++)
        contender->connections[i] = test_daemon_connect(&daemon_);
    cr_assert_eq(seteuid(0), 0);
    for (int i = 0; i < streams; i++)
        contender->products[i] = square(contender->connections[i], n);
}

/* So many of each stream; the daemon then knows how long they take. */
static void run_some(struct contender *contender, int count)
{
    for (int i = 0; i < count; i++)
        cr_assert_eq(gemmd_gemm(contender->connections[0], &contender->products[0], NULL),
                     GEMMD_OK);
}

static void submit_all(struct contender *contender)
{
    contender->seconds = 0;
    for (int i = 0; i < contender->streams; i++) {
        contender->taken[i] = 0;
        for (int j = 0; j < contender->each; j++)
            cr_assert_eq(gemmd_submit(contender->connections[i], &contender->products[i],
                                      &contender->jobs[i][j]),
                         GEMMD_OK);
    }
}

static int all_of(const struct contender *contender)
{
    return contender->streams * contender->each;
}

static int taken(const struct contender *contender)
{
    int sum = 0;

    for (int i = 0; i < contender->streams; i++)
        sum += contender->taken[i];
    return sum;
}

/* Takes what is answered, or all. Products of one stream write the same memory: they end in order.
 */
static void take(struct contender *contender, bool all)
{
    for (int i = 0; i < contender->streams; i++) {
        gemmd_result result = {.size = sizeof(result)};
        int *next = &contender->taken[i];

        while (*next < contender->each &&
               gemmd_wait(contender->connections[i], contender->jobs[i][*next], all ? -1 : 0,
                          &result) == GEMMD_OK) {
            contender->seconds += result.device_seconds;
            (*next)++;
        }
    }
}

static double jobs(void)
{
    return test_status_number(connection, NULL, "jobs");
}

/* Both have plenty waiting when the worker begins, and still when it is held again; had not one of
 * them, since this process was late, it has no share to speak of. */
static void compete(struct contender *small, struct contender *large)
{
    const double all = all_of(small) + all_of(large);
    pid_t worker = test_worker_hold(connection);

    submit_all(small);
    submit_all(large);
    while (jobs() < all)
        ;
    test_worker_release(worker);
    while (jobs() > all - ENOUGH)
        ;
    worker = test_worker_hold(connection);
    while (taken(small) + taken(large) + jobs() < all) {
        take(small, false);
        take(large, false);
    }
    test_worker_release(worker);
    (void)fprintf(stderr, "shares: %.3f s in %d small, %.3f s in %d large products\n",
                  small->seconds, taken(small), large->seconds, taken(large));
}

static bool is_fair(const struct contender *small, const struct contender *large)
{
    return taken(small) < all_of(small) && taken(large) < all_of(large) &&
           small->seconds > 0.8 * large->seconds && large->seconds > 0.8 * small->seconds;
}

/* A product in whose time the machine did something else weighs more than it should, now and then.
 */

Test(sharing, uids_get_equal_shares_whatever_the_size_of_their_products)
{
    static struct contender small, large;
    bool was_fair = false;

    if (geteuid() != 0)
        cr_skip_test("only root can be two users");
    enter(&small, 60001, 96, STREAMS, EACH);
    enter(&large, 60002, 445, 1, EACH / 2); /* a hundred times the arithmetic */
    run_some(&small, FEW);
    run_some(&large, FEW);
    for (int i = 0; i < ROUNDS && !was_fair; i++) {
        compete(&small, &large);
        was_fair = is_fair(&small, &large);
        take(&small, true);
        take(&large, true);
    }
    cr_expect(was_fair);
    for (int i = 0; i < small.streams; i++)
        gemmd_close(small.connections[i]);
    gemmd_close(large.connections[0]);
}
