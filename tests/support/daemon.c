#include "daemon.h"

#include "process.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX   32
#define COMPILE_SECONDS "100" /* a busy machine is no hanging compiler */

const char *test_device(void)
{
    const char *device = getenv("GEMMD_TEST_DEVICE");

    return device && device[0] != '\0' ? device : "cpu";
}

bool test_device_is_cpu(void)
{
    return strcmp(test_device(), "cpu") == 0;
}

bool test_device_is_fake(void)
{
    return !test_device_is_cpu() && getenv("GEMMD_LIBCUDA");
}

unsigned test_kernel_descriptors(void)
{
    return test_device_is_cpu() ? 0 : 250; /* as many configurations as an architecture may have */
}

static const char *binary(void)
{
    const char *path = getenv("GEMMD_TEST_DAEMON");

    return path && path[0] != '\0' ? path : GEMMD_DAEMON;
}

static void prepare(struct test_daemon *daemon)
{
    if (daemon->directory[0] != '\0')
        return; /* a second daemon on the same place */
    (void)strcpy(daemon->directory, "/tmp/gemmd-test-XXXXXX");
    cr_assert_not_null(mkdtemp(daemon->directory));
    (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->directory);
    (void)snprintf(daemon->cache, sizeof(daemon->cache), "%s/cache", daemon->directory);
    (void)snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->directory);
}

static void run_daemon(const struct test_daemon *daemon, int ready_fd, const char *const *arguments)
{
    char number[16], state[sizeof(daemon->directory) + 8];
    const char *argv[ARGUMENTS_MAX] = {
        "gemmd",       "--config", "/dev/null", /* not this machine's */
        "--state",     state,      "--socket",   daemon->socket, "--device", test_device(),
        "--log-level", "debug",    "--ready-fd", number,         "--cache",  daemon->cache,
    };
    size_t count = daemon->has_default_cache ? 13 : 15;
    int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)snprintf(number, sizeof(number), "%d", ready_fd);
    (void)snprintf(state, sizeof(state), "%s/state", daemon->directory);
    argv[count++] = "--compile-time-limit";
    argv[count++] = COMPILE_SECONDS;
    while (arguments && *arguments && count + 1 < ARGUMENTS_MAX)
        argv[count++] = *arguments++;
    argv[count] = NULL;
    (void)dup2(log, STDERR_FILENO);
    for (int fd = STDIN_FILENO; daemon->has_no_streams && fd <= STDERR_FILENO; fd++)
        (void)close(fd);
    (void)execv(binary(), (char *const *)argv);
    _exit(127);
}

int test_daemon_launch(struct test_daemon *daemon, const char *const *arguments)
{
    int ready[2];

    prepare(daemon);
    cr_assert_eq(pipe(ready), 0);
    daemon->pid = fork();
    cr_assert_geq(daemon->pid, 0);
    if (daemon->pid == 0) {
        (void)close(ready[0]);
        run_daemon(daemon, ready[1], arguments);
    }
    (void)close(ready[1]);
    return ready[0];
}

static bool start(struct test_daemon *daemon, const char *const *arguments)
{
    int ready = test_daemon_launch(daemon, arguments);
    char byte;
    ssize_t n = read(ready, &byte, 1);

    (void)close(ready);
    return n == 1;
}

static void show_log(const struct test_daemon *daemon)
{
    char line[512];
    FILE *file = fopen(daemon->log, "r");

    while (file && fgets(line, sizeof(line), file))
        (void)fputs(line, stderr);
    if (file)
        (void)fclose(file);
}

void test_daemon_start(struct test_daemon *daemon, const char *const *arguments)
{
    bool is_ready = start(daemon, arguments);

    if (!is_ready)
        show_log(daemon);
    cr_assert(is_ready, "the daemon did not get ready");
}

int test_daemon_wait(struct test_daemon *daemon)
{
    int status;

    cr_assert_eq(waitpid(daemon->pid, &status, 0), daemon->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        show_log(daemon);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int test_daemon_start_failing(struct test_daemon *daemon, const char *const *arguments)
{
    int status;

    cr_assert_not(start(daemon, arguments), "the daemon got ready");
    cr_assert_eq(waitpid(daemon->pid, &status, 0), daemon->pid);
    cr_assert(WIFEXITED(status), "it died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

void test_daemon_remove(struct test_daemon *daemon)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", daemon->directory);
    (void)!system(command);
    daemon->directory[0] = '\0';
}

void test_daemon_stop(struct test_daemon *daemon)
{
    if (daemon->pid <= 0)
        return; /* it was never started: the test was skipped */
    (void)kill(daemon->pid, SIGTERM);
    cr_assert_eq(test_daemon_wait(daemon), 0, "the daemon did not end in order");
    cr_assert_neq(access(daemon->socket, F_OK), 0, "it left its socket behind");
    test_daemon_remove(daemon);
}

gemmd *test_daemon_connect(const struct test_daemon *daemon)
{
    gemmd *connection = NULL;
    gemmd_error error;

    cr_assert_eq(gemmd_connect(daemon->socket, &connection, &error), GEMMD_OK, "%s", error.message);
    return connection;
}

/* Enough of JSON for what we wrote ourselves: names are unique within their group. */
static double number_in(const char *json, const char *group, const char *name)
{
    char key[64];
    const char *at = json;

    if (group) {
        (void)snprintf(key, sizeof(key), "\"%s\":", group);
        at = strstr(at, key);
        cr_assert_not_null(at, "no %s in %s", group, json);
    }
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(at, key);
    cr_assert_not_null(at, "no %s in %s", name, json);
    return strtod(at + strlen(key), NULL);
}

double test_status_number(gemmd *connection, const char *group, const char *name)
{
    char *json = NULL;
    double number;

    cr_assert_eq(gemmd_status_json(connection, &json), GEMMD_OK);
    number = number_in(json, group, name);
    gemmd_free(json);
    return number;
}

double test_stats_number(gemmd *connection, const char *group, const char *name)
{
    char *json = NULL;
    double number;

    cr_assert_eq(gemmd_stats_json(connection, &json), GEMMD_OK);
    number = number_in(json, group, name);
    gemmd_free(json);
    return number;
}

pid_t test_worker_pid(gemmd *connection)
{
    pid_t worker;

    while ((worker = (pid_t)test_status_number(connection, "worker", "pid")) <= 0)
        (void)usleep(1000);
    return worker;
}

pid_t test_worker_hold(gemmd *connection)
{
    pid_t worker = test_worker_pid(connection);

    cr_assert_eq(kill(worker, SIGSTOP), 0);
    cr_assert(process_await_state(worker, 'T'));
    return worker;
}

void test_worker_release(pid_t worker)
{
    cr_assert_eq(kill(worker, SIGCONT), 0, "it was found to hang meanwhile");
}

bool test_daemon_logged(const struct test_daemon *daemon, const char *text)
{
    char line[1200];
    bool is_found = false;
    FILE *file = fopen(daemon->log, "r");

    while (file && !is_found && fgets(line, sizeof(line), file))
        is_found = strstr(line, text) != NULL;
    if (file)
        (void)fclose(file);
    return is_found;
}
