/*
 * Tuning as an operator meets it. On the CPU there is nothing to tune; over the CUDA backend a run
 * times candidates, keeps the fastest across restarts, and names it by the epoch.
 */
#include "../support/daemon.h"
#include "../support/process.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *connection;
static char state[128];

static void start_with(const char *tune)
{
    const char *const arguments[] = {"--state", state, "--tune", tune, "--compilers", "1", NULL};

    test_daemon_start(&daemon_, arguments);
    connection = test_daemon_connect(&daemon_);
}

static void start(void)
{
    (void)snprintf(state, sizeof(state), "/tmp/gemmd-state-XXXXXX");
    cr_assert(mkdtemp(state));
    start_with("off");
}

static void stop(void)
{
    char command[160];

    gemmd_close(connection);
    test_daemon_stop(&daemon_);
    (void)snprintf(command, sizeof(command), "rm -r %s", state);
    cr_assert_eq(system(command), 0);
}

static void restart(void)
{
    gemmd_close(connection);
    (void)kill(daemon_.pid, SIGTERM);
    cr_assert_eq(test_daemon_wait(&daemon_), 0);
    start_with("off");
}

TestSuite(tune, .init = start, .fini = stop, .timeout = 120);

static void only_on_a_gpu(void)
{
    if (test_device_is_cpu())
        cr_skip_test("there is nothing to tune on the CPU");
}

static gemmd_product shape(int64_t m, int64_t n, int64_t k)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_BF16;
    product.m = m;
    product.n = n;
    product.k = k;
    return product;
}

/* The answer, for the caller to free. */
static char *tune(const gemmd_product *product, uint32_t keep)
{
    char *json = NULL;
    gemmd_status status = gemmd_tune_json(connection, product, keep, &json);

    if (status == GEMMD_COMPILE_FAILED || status == GEMMD_UNSUPPORTED)
        cr_skip_test("no NVRTC on this machine");
    cr_assert_eq(status, GEMMD_OK, "%s", gemmd_last_error(connection)->message);
    return json;
}

static double number(const char *json, const char *name)
{
    char key[64];
    const char *at;

    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(json, key);
    cr_assert(at, "no %s in %s", name, json);
    return strtod(at + strlen(key), NULL);
}

static double explained(const gemmd_product *product, const char *name)
{
    char *json;
    double value;

    cr_assert_eq(gemmd_explain_json(connection, product, &json), GEMMD_OK);
    value = number(json, name);
    gemmd_free(json);
    return value;
}

static bool is_tuned(const gemmd_product *product)
{
    char *json;
    bool result;

    cr_assert_eq(gemmd_explain_json(connection, product, &json), GEMMD_OK);
    result = strstr(json, "\"tuned\":true") || strstr(json, "\"tuned\": true");
    gemmd_free(json);
    return result;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

Test(tune, says_that_there_is_nothing_to_tune_on_the_cpu)
{
    gemmd_product product = shape(64, 64, 64);
    char *json = NULL;

    if (!test_device_is_cpu())
        cr_skip_test("this is a GPU");
    cr_assert_eq(gemmd_tune_json(connection, &product, 0, &json), GEMMD_UNSUPPORTED);
    cr_expect(strstr(gemmd_last_error(connection)->message, "nothing to tune"));
    cr_expect_null(json);
}

Test(tune, times_as_many_candidates_as_are_asked_for_and_keeps_one)
{
    gemmd_product product = shape(96, 64, 128), neighbour = shape(90, 64, 128),
                  other = shape(512, 64, 128);
    char *json;

    only_on_a_gpu();
    cr_expect_eq(explained(&product, "epoch"), 0);
    json = tune(&product, 2);
    cr_expect_eq(count_of(json, "\"predicted_seconds\""), 2, "%s", json);
    cr_expect_gt(number(json, "seconds"), 0);
    cr_expect_neq(number(json, "epoch"), 0);
    cr_expect_eq(number(json, "epoch"), explained(&product, "epoch"));
    gemmd_free(json);
    cr_expect(is_tuned(&product));
    cr_expect_gt(explained(&product, "measured_seconds"), 0);
    cr_expect(is_tuned(&neighbour), "a shape of the same class");
    cr_expect_not(is_tuned(&other));
}

Test(tune, names_the_epoch_in_the_reply_of_a_product)
{
    gemmd_product product = shape(16, 16, 16);
    uint16_t a[256] = {0}, d[256];
    gemmd_result result = {.size = sizeof(result)};
    char *json;

    only_on_a_gpu();
    product.a.data = product.b.data = a;
    product.d.data = d;
    cr_assert_eq(gemmd_gemm(connection, &product, &result), GEMMD_OK);
    cr_expect_eq(result.epoch, 0);
    json = tune(&product, 2);
    cr_assert_eq(gemmd_gemm(connection, &product, &result), GEMMD_OK);
    cr_expect_eq((double)result.epoch, number(json, "epoch"));
    gemmd_free(json);
}

Test(tune, outlives_the_daemon_in_the_state_directory)
{
    gemmd_product product = shape(96, 64, 128);
    double epoch;

    only_on_a_gpu();
    gemmd_free(tune(&product, 2));
    epoch = explained(&product, "epoch");
    restart();
    cr_expect(is_tuned(&product));
    cr_expect_eq(explained(&product, "epoch"), epoch);
    cr_expect_eq(test_status_number(connection, "tuning", "classes"), 1);
}

/* The only file there. */
static void state_file(char ret_path[256])
{
    DIR *directory = opendir(state);
    struct dirent *member;

    ret_path[0] = '\0';
    while ((member = readdir(directory)))
        if (member->d_name[0] != '.')
            (void)snprintf(ret_path, 256, "%s/%.100s", state, member->d_name);
    (void)closedir(directory);
    cr_assert(ret_path[0]);
}

Test(tune, ignores_a_damaged_database_with_a_warning_and_replaces_it)
{
    gemmd_product product = shape(96, 64, 128);
    char path[256];
    FILE *file;

    only_on_a_gpu();
    gemmd_free(tune(&product, 2));
    restart(); /* so that it is on disk */
    state_file(path);
    file = fopen(path, "r+");
    cr_assert_eq(fseek(file, 40, SEEK_SET), 0);
    (void)fputc('#', file);
    (void)fclose(file);
    restart();
    cr_expect_not(is_tuned(&product));
    cr_expect_eq(explained(&product, "epoch"), 0);
    cr_expect(test_daemon_logged(&daemon_, "the file is damaged"));
    gemmd_free(tune(&product, 2));
    restart();
    cr_expect(is_tuned(&product));
}

Test(tune, refuses_what_computes_nothing_or_takes_too_much)
{
    gemmd_product none = shape(0, 64, 64), huge = shape(1 << 20, 1 << 20, 64),
                  right = shape(8, 8, 8);
    char *json = NULL;

    only_on_a_gpu();
    cr_expect_eq(gemmd_tune_json(connection, &none, 0, &json), GEMMD_INVALID_ARGUMENT);
    cr_expect_eq(gemmd_tune_json(connection, &huge, 0, &json), GEMMD_LIMIT);
    cr_expect(strstr(gemmd_last_error(connection)->message, "8589934592"));
    cr_expect_eq(gemmd_tune_json(connection, &right, 33, &json), GEMMD_INVALID_ARGUMENT);
    cr_expect_str_eq(gemmd_last_error(connection)->argument, "keep");
}

Test(tune, gives_its_memory_back)
{
    gemmd_product product = shape(96, 64, 128);

    only_on_a_gpu();
    gemmd_free(tune(&product, 2));
    cr_expect_eq(test_status_number(connection, "buffers", "count"), 0);
    cr_expect_eq(test_status_number(connection, "buffers", "device_bytes"), 0);
    cr_expect_eq(test_status_number(connection, NULL, "jobs"), 0);
}

Test(tune, ends_well_when_its_client_is_gone_or_the_daemon_drains)
{
    gemmd_product product = shape(96, 64, 128);
    pid_t child;

    only_on_a_gpu();
    child = process_fork();
    if (child == 0) {
        gemmd *impatient = test_daemon_connect(&daemon_);
        char *json;

        for (int64_t i = 0;; i++) {
            product.n = 64 + 16 * (i % 100);
            (void)gemmd_tune_json(impatient, &product, 4, &json);
        }
    }
    (void)usleep(300000);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    while (test_status_number(connection, NULL, "clients") > 1)
        (void)usleep(1000);
    restart();
}

/* Some thirty candidates have to be compiled: that takes longer than the signal. */
Test(tune, that_is_asked_for_ends_with_an_error_that_says_so_when_the_daemon_is_told_to_end)
{
    enum { ORDERS = 2 }; /* the one that runs, and one behind it */

    gemmd_product product = shape(96, 64, 128);
    pid_t clients[ORDERS];

    only_on_a_gpu();
    gemmd_free(tune(&product, 1)); /* or there is no compiler, and nothing to be seen */
    for (int i = 0; i < ORDERS; i++) {
        clients[i] = process_fork();
        if (clients[i] == 0) {
            gemmd *own = test_daemon_connect(&daemon_);
            char *json;
            bool is_told = gemmd_tune_json(own, &product, 32, &json) == GEMMD_SHUTTING_DOWN &&
                           strstr(gemmd_last_error(own)->message, "tuning");

            _exit(is_told ? 0 : 1);
        }
    }
    while (test_status_number(connection, "charged", "jobs") < ORDERS + 1) /* and a trial */
        (void)usleep(1000);
    restart();
    for (int i = 0; i < ORDERS; i++) {
        int status;

        cr_assert_eq(waitpid(clients[i], &status, 0), clients[i]);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "order %d: %d", i, status);
    }
}

Test(tune, takes_a_suite_of_shapes_from_gemmctl)
{
    char suite[160], command[512];
    FILE *file;

    only_on_a_gpu();
    (void)snprintf(suite, sizeof(suite), "%s/suite", daemon_.directory);
    file = fopen(suite, "w");
    cr_assert_not_null(file);
    fprintf(file, "group,dtype,layout,m,n,k\nsmall,bf16,nt,64,64,64\nlater,e4m3,nt,64,64,64\n"
                  "small,fp16,tn,80,64,64\n");
    (void)fclose(file);
    (void)snprintf(command, sizeof(command), "%s tune %s --keep 1 --socket %s >/dev/null",
                   getenv("GEMMD_TEST_GEMMCTL") ? getenv("GEMMD_TEST_GEMMCTL") : GEMMCTL, suite,
                   daemon_.socket);
    cr_expect_eq(system(command), 0);
    cr_expect_eq(test_status_number(connection, "tuning", "classes"), 2);
}

Test(tune, takes_the_output_type_that_was_asked_for_all_lines_of_a_suite)
{
    char path[160], command[512], answer[4096];
    const char *program = getenv("GEMMD_TEST_GEMMCTL");
    FILE *file;

    only_on_a_gpu();
    (void)snprintf(path, sizeof(path), "%s/suite", state);
    file = fopen(path, "w");
    fprintf(file, "small,bf16,nt,64,64,64\n");
    (void)fclose(file);
    (void)snprintf(command, sizeof(command),
                   "%s tune %s --keep 1 --out-dtype fp32 --json --socket %s",
                   program ? program : GEMMCTL, path, daemon_.socket);
    file = popen(command, "r");
    answer[fread(answer, 1, sizeof(answer) - 1, file)] = '\0';
    cr_expect_eq(pclose(file), 0);
    cr_expect(strstr(answer, ".bf16.fp32.nt."), "%s", answer);
}

/* --- idle ------------------------------------------------------------------------------------ */

static void restart_idle(void)
{
    gemmd_close(connection);
    (void)kill(daemon_.pid, SIGTERM);
    cr_assert_eq(test_daemon_wait(&daemon_), 0);
    start_with("idle");
}

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Products for 3 s, three times as long as it must be quiet, and how many runs there were after
 * them. The longest time without a product. */
static double keep_busy(const gemmd_product *product, double *ret_runs)
{
    double start = now(), last = start, longest = 0;

    while (last - start < 3) {
        double before = last;

        cr_assert_eq(gemmd_gemm(connection, product, NULL), GEMMD_OK);
        last = now();
        longest = MAX(longest, last - before);
        (void)usleep(50000);
    }
    *ret_runs = test_status_number(connection, "tuning", "runs");
    return MAX(longest, now() - last);
}

/* A pause of ours on a busy machine is one of the daemon's clients, too: then it is done anew. */
Test(tune, in_idle_mode_waits_while_products_come)
{
    gemmd_product product = shape(32, 32, 32);
    uint16_t a[1024] = {0}, d[1024];
    double runs;

    only_on_a_gpu();
    product.a.data = product.b.data = a;
    product.d.data = d;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK); /* it is compiled */
    do {
        restart_idle();
    } while (keep_busy(&product, &runs) > 0.5);
    cr_expect_eq(runs, 0);
}

/* Idle tuning begins with what came often, and has nothing else to do. */
static gemmd_product asked_often(void)
{
    static uint16_t a[1024], d[1024];
    gemmd_product product = shape(32, 32, 32);

    restart_idle();
    product.a.data = product.b.data = a;
    product.d.data = d;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    return product;
}

Test(tune, in_idle_mode_times_what_came_often_once_nothing_is_asked)
{
    gemmd_product product;

    only_on_a_gpu();
    product = asked_often();
    while (test_status_number(connection, "tuning", "runs") == 0)
        (void)usleep(50000);
    cr_expect_eq(test_status_number(connection, "tuning", "runs"), 1);
    cr_expect(is_tuned(&product));
    cr_expect_eq(test_status_number(connection, "tuning", "failed"), 0);
}

/* Nobody waits for it: the daemon neither, even where a trial's kernel takes long to compile. */
Test(tune, in_idle_mode_is_broken_off_when_the_daemon_is_told_to_end)
{
    gemmd_product product;
    pid_t compiler;
    double told;

    only_on_a_gpu();
    product = asked_often();
    compiler = process_child(daemon_.pid, "compile");
    cr_assert_gt(compiler, 0);
    (void)kill(compiler, SIGSTOP);
    while (test_status_number(connection, NULL, "kernels") < 2)
        (void)usleep(1000);
    told = now();
    restart();
    cr_expect_lt(now() - told, 20, "it took %g s", now() - told);
    cr_expect_not(is_tuned(&product));
}
