#include "private_daemon.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MILLISECONDS 60000
#define STOP_SECONDS       15.0
#define LOG_LINES          8
#define WARNINGS_SHOWN     20 /* from the start, and from the end */

static bool find_binary(char path[PATH_MAX + 32])
{
    static const char *const places[] = {"/gemmd", "/../../daemon/gemmd", "/../../bin/gemmd"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        return false;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        (void)snprintf(path, PATH_MAX + 32, "%s%s", self, places[i]);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void become_daemon(const struct private_daemon *daemon, int ready)
{
    char number[16];
    /* Nothing tuned before: figures are of the plan's own choices. */
    const char *argv[] = {"gemmd",       "--state",    daemon->cache,  "--config",
                          "/dev/null",   "--socket",   daemon->socket, "--cache",
                          daemon->cache, "--device",   daemon->device, "--mode",
                          "666",         "--ready-fd", number,         NULL};
    int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)snprintf(number, sizeof(number), "%d", ready);
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)execv(daemon->binary, (char *const *)argv);
    _exit(127);
}

static void show_log(const struct private_daemon *daemon)
{
    char command[160];
    (void)snprintf(command, sizeof(command), "tail -n %d '%s' >&2", LOG_LINES, daemon->log);
    (void)!system(command);
}

static int launch(struct private_daemon *daemon)
{
    char byte;
    int ready[2];
    if (pipe(ready) < 0)
        return 1;
    (void)fflush(stdout);
    daemon->pid = fork();
    if (daemon->pid == 0) {
        (void)close(ready[0]);
        become_daemon(daemon, ready[1]);
    }
    (void)close(ready[1]);
    struct pollfd wait = {.fd = ready[0], .events = POLLIN};
    bool is_ready =
        daemon->pid > 0 && poll(&wait, 1, START_MILLISECONDS) == 1 && read(ready[0], &byte, 1) == 1;
    (void)close(ready[0]);
    if (is_ready)
        return 0;
    fprintf(stderr, "gemmd-bench: %s did not get ready\n", daemon->binary);
    show_log(daemon);
    return 1;
}

int private_daemon_start(struct private_daemon *daemon, const char *binary, const char *device)
{
    static char found[PATH_MAX + 32];
    *daemon = (struct private_daemon){.binary = binary, .device = device};
    if (!binary) {
        if (!find_binary(found)) {
            fprintf(stderr, "gemmd-bench: no gemmd beside this program; --daemon PATH names one\n");
            return 1;
        }
        daemon->binary = found;
    }
    (void)strcpy(daemon->directory, "/tmp/gemmd-bench-XXXXXX");
    if (!mkdtemp(daemon->directory) || chmod(daemon->directory, 0755) < 0) {
        fprintf(stderr, "gemmd-bench: no directory for a daemon: %m\n");
        return 1;
    }
    (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->directory);
    (void)snprintf(daemon->cache, sizeof(daemon->cache), "%s/cache", daemon->directory);
    (void)snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->directory);
    return launch(daemon);
}

int private_daemon_ensure(struct private_daemon *daemon, bool *ret_was_dead)
{
    *ret_was_dead = daemon->pid <= 0 || waitpid(daemon->pid, NULL, WNOHANG) == daemon->pid;
    if (!*ret_was_dead)
        return 0;
    daemon->pid = 0;
    show_log(daemon);
    return launch(daemon);
}

static bool is_warning(const char *line)
{
    return line[0] == '<' && line[1] >= '0' && line[1] <= '4' && line[2] == '>';
}

/* One pass over the log: counts, or prints those that are not left out. */
static size_t walk_warnings(FILE *log, FILE *to, size_t count)
{
    char line[400];
    size_t at = 0;
    rewind(log);
    while (fgets(line, sizeof(line), log)) {
        if (!is_warning(line))
            continue;
        if (to && (at < WARNINGS_SHOWN || at + WARNINGS_SHOWN >= count))
            fprintf(to, "# %s%s", line, strchr(line, '\n') ? "" : "\n");
        at++;
    }
    return at;
}

void private_daemon_print_warnings(const struct private_daemon *daemon, FILE *to)
{
    FILE *log = fopen(daemon->log, "re");
    if (!log)
        return;
    size_t count = walk_warnings(log, NULL, 0);
    fprintf(to, "\n## the daemon's log\n# %zu warnings and errors\n", count);
    (void)walk_warnings(log, to, count);
    (void)fclose(log);
}

void private_daemon_stop(struct private_daemon *daemon)
{
    char command[128];
    double end = bench_now() + STOP_SECONDS;
    if (daemon->pid > 0) {
        (void)kill(daemon->pid, SIGTERM);
        while (waitpid(daemon->pid, NULL, WNOHANG) == 0) {
            if (bench_now() > end)
                (void)kill(daemon->pid, SIGKILL);
            (void)usleep(10000);
        }
    }
    if (daemon->directory[0]) {
        (void)snprintf(command, sizeof(command), "rm -rf '%s'", daemon->directory);
        (void)!system(command);
    }
    *daemon = PRIVATE_DAEMON_NULL;
}
