#include "part.h"

#include "bench.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 40
#define LINE_LENGTH   1024
#define GRACE_SECONDS 3.0 /* between SIGTERM and SIGKILL */

struct reader {
    char line[LINE_LENGTH], last_words[PART_WHY];
    size_t length;
    FILE *copy;
    struct figures *figures;
};

static void become_part(char *const *arguments, int output)
{
    char *argv[ARGUMENTS_MAX] = {(char *)"gemmd-bench"};
    for (size_t i = 0; arguments[i] && i + 2 < ARGUMENTS_MAX; i++)
        argv[i + 1] = arguments[i];
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    (void)execv("/proc/self/exe", argv);
    _exit(127);
}

static void take(struct reader *reader, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            if (reader->length + 1 < sizeof(reader->line))
                reader->line[reader->length++] = bytes[i];
            continue;
        }
        reader->line[reader->length] = '\0';
        reader->length = 0;
        fprintf(reader->copy, "%s\n", reader->line);
        figures_take(reader->figures, reader->line);
        if (reader->line[0] != '\0')
            (void)snprintf(reader->last_words, PART_WHY, "%.140s", reader->line);
    }
}

/* Until its end or the time's; true when it has closed its output. */
static bool listen_to(int fd, struct reader *reader, double end)
{
    char bytes[4096];
    for (;;) {
        double left = end - bench_now();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&wait, 1, (int)(left * 1000) + 1) <= 0)
            return false;
        ssize_t n = read(fd, bytes, sizeof(bytes));
        if (n <= 0)
            return true;
        take(reader, bytes, (size_t)n);
    }
}

static int end_of(pid_t pid, bool is_over)
{
    int status = 0;
    double end = bench_now() + GRACE_SECONDS;
    if (!is_over)
        (void)kill(pid, SIGTERM);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (bench_now() > end)
            (void)kill(pid, SIGKILL);
        (void)usleep(1000);
    }
    return status;
}

int part_run(char *const *arguments,
             double limit,
             FILE *copy,
             struct figures *figures,
             char ret_why[PART_WHY])
{
    struct reader reader = {.copy = copy, .figures = figures};
    int output[2];
    (void)fflush(NULL);
    if (pipe2(output, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become_part(arguments, output[1]);
    (void)close(output[1]);
    bool is_over = pid > 0 && listen_to(output[0], &reader, bench_now() + limit);
    int status = pid > 0 ? end_of(pid, is_over) : -1;
    (void)close(output[0]);
    (void)fflush(copy);

    if (!is_over)
        (void)snprintf(ret_why, PART_WHY, "not done after %.0f s", limit);
    else
        (void)snprintf(ret_why, PART_WHY, "%.158s", reader.last_words);
    return is_over && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
