/*
 * Compiling and caching as clients and administrators meet them: many who want one kernel, several
 * daemons on one directory, what a crash or a bad disk leaves behind, a compiler that dies.
 *
 * cache.prewarm compiles for any architecture, so no GPU is needed; NVRTC is.
 */
#include "../../daemon/plan/config.h"
#include "../support/process.h"
#include "../support/products.h"
#include "../support/raw.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct test_daemon daemon_;
static gemmd *connection;

static void start_with(const char *const *arguments)
{
    test_daemon_start(&daemon_, arguments);
    connection = test_daemon_connect(&daemon_);
}

static void start(void)
{
    start_with(NULL);
}

static void stop(void)
{
    gemmd_close(connection);
    test_daemon_stop(&daemon_);
}

static void end(void)
{
    gemmd_close(connection);
    (void)kill(daemon_.pid, SIGTERM);
    cr_assert_eq(test_daemon_wait(&daemon_), 0);
}

/* With the cache as it is. */
static void restart(void)
{
    end();
    start();
}

TestSuite(compile, .init = start, .fini = stop, .timeout = 120);
/* Those that start their daemon themselves. */
TestSuite(compile_elsewhere, .fini = stop, .timeout = 120);

static const char *configuration(size_t index)
{
    static struct config configs[CONFIG_LIST_MAX];
    static char text[CONFIG_TEXT_MAX];
    size_t count = config_list(80, configs);

    config_to_text(&configs[index % count], text);
    return text;
}

static gemmd_status prewarm(gemmd *client, size_t index)
{
    double seconds;
    gemmd_status status = gemmd_cache_prewarm(client, configuration(index), &seconds);

    if (status == GEMMD_UNSUPPORTED)
        cr_skip_test("no NVRTC on this machine");
    return status;
}

static void expect_compiled(gemmd *client, double count)
{
    cr_expect_eq(test_stats_number(client, "compiles", "compiled"), count);
}

static void expect_served(void)
{
    const struct product_case p = {
        .input = DTYPE_FP32, .m = 5, .n = 6, .k = 7, .batch = 1, .alpha = 1};

    product_check(connection, &p);
}

/* --- one compile for all --------------------------------------------------------------------- */

static void ask(int fd, size_t index)
{
    const char *text = configuration(index);
    const struct request request = {
        .id = 5,
        .method = METHOD_CACHE_PREWARM,
        .body.cache = {.configuration = text, .configuration_size = strlen(text)}};

    cr_assert(raw_request(fd, &request, -1));
}

Test(compile, sixteen_clients_on_a_cold_cache_cost_one_compile)
{
    enum { CLIENTS = 16 };

    int fds[CLIENTS];
    struct raw_reply reply;

    for (int i = 0; i < CLIENTS; i++)
        fds[i] = raw_greeted(&daemon_);
    for (int i = 0; i < CLIENTS; i++)
        ask(fds[i], 0);
    for (int i = 0; i < CLIENTS; i++) {
        cr_assert(raw_receive(fds[i], &reply));
        if (reply.fault.status == STATUS_UNSUPPORTED)
            cr_skip_test("no NVRTC on this machine");
        cr_expect_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
        (void)close(fds[i]);
    }
    expect_compiled(connection, 1);
    cr_expect_eq(prewarm(connection, 0), GEMMD_OK);
    expect_compiled(connection, 1);
}

Test(compile, clients_that_leave_while_it_compiles_cost_nothing)
{
    int fd = raw_greeted(&daemon_);

    ask(fd, 1);
    (void)close(fd);
    while (test_status_number(connection, NULL, "clients") > 1)
        ;
    cr_expect_eq(prewarm(connection, 1), GEMMD_OK);
    expect_served();
}

Test(compile, two_daemons_on_one_directory_compile_once)
{
    struct test_daemon second = {0};
    const char *const arguments[] = {"--cache", daemon_.cache, NULL};
    gemmd *other;
    int one, two;

    test_daemon_start(&second, arguments);
    other = test_daemon_connect(&second);
    one = raw_greeted(&daemon_);
    two = raw_greeted(&second);
    ask(one, 2);
    ask(two, 2);
    (void)prewarm(connection, 2);
    raw_expect(one, 5, STATUS_OK);
    raw_expect(two, 5, STATUS_OK);
    cr_expect_eq(test_stats_number(connection, "compiles", "compiled") +
                     test_stats_number(other, "compiles", "compiled"),
                 1);
    (void)close(one);
    (void)close(two);
    gemmd_close(other);
    test_daemon_stop(&second);
}

/* --- what lies on the disk ------------------------------------------------------------------- */

/* The path of the only large file of the cache: the entry. */
static void entry_path(char ret_path[300])
{
    DIR *directory = opendir(daemon_.cache);
    struct stat status, largest = {0};

    cr_assert_not_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[400];

        (void)snprintf(path, sizeof(path), "%s/%.180s", daemon_.cache, entry->d_name);
        if (stat(path, &status) == 0 && S_ISREG(status.st_mode) &&
            status.st_size > largest.st_size) {
            largest = status;
            (void)snprintf(ret_path, 300, "%.299s", path);
        }
    }
    (void)closedir(directory);
    cr_assert_gt(largest.st_size, 1000, "no entry in the cache");
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

static void damage(const char *path, int how)
{
    struct stat status;

    cr_assert_eq(stat(path, &status), 0);
    switch (how) {
    case 0:
        cr_assert_eq(truncate(path, 0), 0);
        break;
    case 1:
        cr_assert_eq(truncate(path, status.st_size / 2), 0);
        break;
    default:
        flip(path, status.st_size - 10);
    }
}

Test(compile, a_damaged_entry_is_compiled_anew)
{
    char path[300];

    cr_assert_eq(prewarm(connection, 3), GEMMD_OK);
    for (int how = 0; how < 3; how++) {
        end(); /* an answer does not wait for the disk, the end does */
        entry_path(path);
        damage(path, how);
        start();
        cr_expect_eq(prewarm(connection, 3), GEMMD_OK);
        expect_compiled(connection, 1);
        cr_expect_eq(test_stats_number(connection, "cache", "removed_damaged"), 1, "damage %d",
                     how);
    }
    restart();
    cr_expect_eq(prewarm(connection, 3), GEMMD_OK);
    expect_compiled(connection, 0);
}

Test(compile, an_entry_under_another_ones_name_is_not_served)
{
    char path[300], moved[310];

    cr_assert_eq(prewarm(connection, 3), GEMMD_OK);
    end();
    entry_path(path);
    (void)snprintf(moved, sizeof(moved), "%s/moved", daemon_.directory);
    cr_assert_eq(rename(path, moved), 0);
    start();
    cr_assert_eq(prewarm(connection, 4), GEMMD_OK);
    end();
    entry_path(path);
    cr_assert_eq(rename(moved, path), 0); /* a whole entry of another configuration */
    start();
    cr_expect_eq(prewarm(connection, 4), GEMMD_OK);
    expect_compiled(connection, 1);
}

Test(compile, a_daemon_killed_in_the_middle_leaves_a_directory_that_serves)
{
    int fd = raw_greeted(&daemon_);

    ask(fd, 5);
    for (int i = 0; i < 200 && process_child(daemon_.pid, "compile") == 0; i++)
        (void)poll(NULL, 0, 5);
    (void)kill(daemon_.pid, SIGKILL);
    (void)test_daemon_wait(&daemon_);
    (void)close(fd);
    gemmd_close(connection);
    start();
    cr_expect_eq(prewarm(connection, 5), GEMMD_OK);
    restart();
    cr_expect_eq(prewarm(connection, 5), GEMMD_OK);
    expect_compiled(connection, 0);
}

/* --- where there is no disk ------------------------------------------------------------------ */

static unsigned count_in_log(const char *text)
{
    unsigned count = 0;
    char line[1200];
    FILE *file = fopen(daemon_.log, "r");

    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    if (file)
        (void)fclose(file);
    return count;
}

static void expect_memory_only(const char *says)
{
    char *json = NULL;

    cr_assert_eq(gemmd_status_json(connection, &json), GEMMD_OK);
    cr_expect(strstr(json, "\"memory_only\": true"), "%s", json);
    gemmd_free(json);
    cr_expect_eq(prewarm(connection, 0), GEMMD_OK);
    cr_expect_eq(prewarm(connection, 6), GEMMD_OK);
    cr_expect_eq(prewarm(connection, 0), GEMMD_OK);
    expect_compiled(connection, 2);
    cr_expect_eq(count_in_log(says), 1);
    expect_served();
}

Test(compile_elsewhere, without_a_home_memory_serves)
{
    static const char *const names[] = {"HOME", "XDG_CACHE_HOME", "CACHE_DIRECTORY", "GEMMD_CACHE"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_eq(unsetenv(names[i]), 0);
    daemon_.has_default_cache = true;
    start_with(NULL);
    expect_memory_only("cache=memory");
}

Test(compile_elsewhere, with_a_file_in_the_directorys_place_memory_serves)
{
    static const char *const arguments[] = {"--cache", "/dev/null/cache", NULL};

    start_with(arguments);
    expect_memory_only("cache=memory");
}

/* --- a compiler that does not come back ------------------------------------------------------ */

Test(compile, a_compiler_can_be_told_by_its_name)
{
    cr_assert_eq(prewarm(connection, 0), GEMMD_OK);
    cr_expect(process_is_named(process_child(daemon_.pid, "compile"), "gemmd-compile"));
}

Test(compile, a_killed_compiler_costs_one_answer)
{
    int fd = raw_greeted(&daemon_);
    struct raw_reply reply;
    pid_t child = 0;

    cr_assert_eq(prewarm(connection, 0), GEMMD_OK); /* a child is there and idle */
    child = process_child(daemon_.pid, "compile");
    cr_assert_gt(child, 0);
    cr_assert_eq(kill(child, SIGSTOP), 0);
    ask(fd, 7);
    cr_expect_geq(test_status_number(connection, NULL, "clients"), 2); /* a turn of the loop */
    (void)poll(NULL, 0, 50); /* the cache is looked at beside the loop */
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert(raw_receive(fd, &reply));
    cr_expect(reply.fault.status == STATUS_COMPILE_FAILED || reply.fault.status == STATUS_OK, "%s",
              reply.fault.message);
    cr_expect_eq(test_stats_number(connection, "compiles", "crashes"), 1);
    cr_expect_eq(prewarm(connection, 7), GEMMD_OK);
    expect_served();
    (void)close(fd);
}

Test(compile_elsewhere, a_compiler_that_takes_too_long_is_stopped)
{
    static const char *const arguments[] = {"--compile-time-limit", "0.001", NULL};
    gemmd_status status;

    start_with(arguments);
    status = prewarm(connection, 0);
    cr_expect(status == GEMMD_COMPILE_TIMEOUT || status == GEMMD_COMPILE_FAILED, "%s",
              gemmd_strerror(status));
    if (test_device_is_cpu()) /* a device needs a kernel, and none compiles in that time */
        expect_served();
    else
        cr_expect_geq(test_status_number(connection, "worker", "pid"), 1);
}

Test(compile, a_text_that_is_no_configuration_is_refused)
{
    static const char *const texts[] = {"x",
                                        "sm80",
                                        "cpu.fp32.fp32.nn",
                                        "sm80.bf16.bf16.nt.4096x4096x4096.s9.c9x9.mma.v16",
                                        "../../../../etc/passwd",
                                        "%s%n"};
    double seconds;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        cr_expect_eq(gemmd_cache_prewarm(connection, texts[i], &seconds), GEMMD_INVALID_ARGUMENT,
                     "%s", texts[i]);
        cr_expect_str_eq(gemmd_last_error(connection)->argument, "configuration");
    }
}
