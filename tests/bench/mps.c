#include "mps.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL           "nvidia-cuda-mps-control"
#define START_SECONDS     10.0
#define STOP_SECONDS      15.0
#define NOT_INSTALLED     127
#define LOOK_MICROSECONDS 10000

/* The control program, as the daemon (-d) or with one line for its standard input. */
static void become_control(const struct mps *mps, const char *line)
{
    int input[2];
    char log[96];
    (void)snprintf(log, sizeof(log), "%s/log", mps->directory);
    (void)setenv("CUDA_MPS_PIPE_DIRECTORY", strchr(mps->pipe, '=') + 1, 1);
    (void)setenv("CUDA_MPS_LOG_DIRECTORY", log, 1);
    if (line) {
        if (pipe(input) < 0 || write(input[1], line, strlen(line)) < 0)
            _exit(1);
        (void)close(input[1]);
        (void)dup2(input[0], STDIN_FILENO);
        (void)close(input[0]);
    }
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(nowhere, STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO);
    (void)execlp(CONTROL, CONTROL, line ? NULL : "-d", NULL);
    _exit(NOT_INSTALLED);
}

/* Its exit status; -1 when it took too long and was killed. */
static int control(const struct mps *mps, const char *line, double timeout)
{
    double end = bench_now() + timeout;
    int status = 0;
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0)
        become_control(mps, line);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (bench_now() > end) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return -1;
        }
        (void)usleep(LOOK_MICROSECONDS);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void remove_directories(struct mps *mps)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", mps->directory);
    (void)!system(command);
    mps->directory[0] = '\0';
}

void mps_join(struct mps *mps, const char *directory)
{
    (void)snprintf(mps->directory, sizeof(mps->directory), "%s", directory);
    (void)snprintf(mps->pipe, sizeof(mps->pipe), "CUDA_MPS_PIPE_DIRECTORY=%s/pipe", directory);
    mps->environment[0] = mps->pipe;
    mps->environment[1] = (char *)"CUDA_VISIBLE_DEVICES";
    mps->environment[2] = NULL;
}

bool mps_start(struct mps *mps, char ret_why[200])
{
    char directory[] = "/tmp/gemmd-mps-XXXXXX", path[96];
    *mps = (struct mps){0};
    if (!mkdtemp(directory)) {
        (void)snprintf(ret_why, 200, "no directory for it: %m");
        return false;
    }
    mps_join(mps, directory);
    (void)snprintf(path, sizeof(path), "%s/pipe", directory);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof(path), "%s/log", directory);
    (void)mkdir(path, 0700);

    int status = control(mps, NULL, START_SECONDS);
    if (status == 0)
        return true;
    if (status == NOT_INSTALLED)
        (void)snprintf(ret_why, 200, "no " CONTROL " here");
    else if (status < 0)
        (void)snprintf(ret_why, 200, CONTROL " did not start within %.0f s", START_SECONDS);
    else
        (void)snprintf(ret_why, 200, CONTROL " ended with status %d", status);
    remove_directories(mps);
    return false;
}

void mps_stop(struct mps *mps)
{
    if (mps->directory[0] == '\0')
        return;
    if (control(mps, "quit\n", STOP_SECONDS) != 0)
        fprintf(stderr, "gemmd-bench: MPS in %s did not stop in order\n", mps->directory);
    remove_directories(mps);
}
