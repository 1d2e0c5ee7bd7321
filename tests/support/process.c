#include "process.h"

#include "../../daemon/core/std.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

unsigned process_descriptors(pid_t pid)
{
    unsigned count = 0;
    char path[64];
    DIR *entries;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    entries = opendir(path);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        count += entry->d_name[0] != '.';
    if (entries)
        (void)closedir(entries);
    return count;
}

static FILE *open_of(pid_t pid, const char *name)
{
    char path[300];

    (void)snprintf(path, sizeof(path), "/proc/%d/%.200s", (int)pid, name);
    return fopen(path, "re");
}

unsigned process_mappings(pid_t pid)
{
    FILE *file = open_of(pid, "maps");
    unsigned lines = 0;
    char line[512];

    while (file && fgets(line, sizeof(line), file))
        lines += strchr(line, '\n') != NULL;
    if (file)
        (void)fclose(file);
    return lines;
}

bool process_maps(pid_t pid, const char *name)
{
    FILE *file = open_of(pid, "maps");
    bool is_found = false;
    char line[512];

    while (file && fgets(line, sizeof(line), file))
        is_found = is_found || strstr(line, name);
    if (file)
        (void)fclose(file);
    return is_found;
}

/* The sum of the lines of a status file that begin with one of these. */
static unsigned long status_sum(FILE *file, const char *first, const char *second)
{
    unsigned long sum = 0;
    char line[256];

    while (file && fgets(line, sizeof(line), file)) {
        const char *colon = strchr(line, ':');

        if (colon && (strncmp(line, first, strlen(first)) == 0 ||
                      strncmp(line, second, strlen(second)) == 0))
            sum += strtoul(colon + 1, NULL, 10);
    }
    if (file)
        (void)fclose(file);
    return sum;
}

unsigned long process_resident_kib(pid_t pid)
{
    return status_sum(open_of(pid, "status"), "VmRSS:", "VmRSS:");
}

unsigned long process_memory_kib(pid_t pid, const char *line)
{
    return status_sum(open_of(pid, "status"), line, line);
}

unsigned long process_switches(pid_t pid)
{
    unsigned long sum = 0;
    char path[300];
    DIR *tasks;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "task/%.32s/status", entry->d_name);
        sum += status_sum(open_of(pid, path),
                          "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:");
    }
    if (tasks)
        (void)closedir(tasks);
    return sum;
}

bool process_was_told(pid_t pid, const char *word)
{
    FILE *file = open_of(pid, "cmdline");
    char line[512] = "";
    size_t size = file ? fread(line, 1, sizeof(line) - 1, file) : 0;

    if (file)
        (void)fclose(file);
    return memmem(line, size, word, strlen(word)) != NULL;
}

bool process_is_named(pid_t pid, const char *name)
{
    FILE *file = open_of(pid, "comm");
    char line[32] = "";

    if (file && fgets(line, sizeof(line), file))
        line[strcspn(line, "\n")] = 0;
    if (file)
        (void)fclose(file);
    return strcmp(line, name) == 0;
}

char process_state(pid_t pid)
{
    FILE *file = open_of(pid, "stat");
    char state = 0;

    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (file)
        (void)fclose(file);
    return state;
}

bool process_await_state(pid_t pid, char state)
{
    char now;

    while ((now = process_state(pid)) != state && now != 0)
        (void)usleep(1000);
    return now == state;
}

pid_t process_fork(void)
{
    pid_t parent = getpid(), child = fork();

    if (child != 0)
        return child;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it was gone before that held */
        _exit(1);
    return 0;
}

static bool is_child(pid_t pid, pid_t parent, const char *word)
{
    return process_was_told(pid, word) &&
           status_sum(open_of(pid, "status"), "PPid:", "PPid:") == (unsigned long)parent;
}

size_t process_children(pid_t parent, pid_t *ret_pids, size_t max)
{
    DIR *processes = opendir("/proc");
    size_t count = 0;

    for (struct dirent *entry; processes && count < max && (entry = readdir(processes));) {
        pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid > 0 &&
            status_sum(open_of(pid, "status"), "PPid:", "PPid:") == (unsigned long)parent)
            ret_pids[count++] = pid;
    }
    if (processes)
        (void)closedir(processes);
    return count;
}

pid_t process_child(pid_t parent, const char *word)
{
    DIR *processes = opendir("/proc");
    pid_t found = 0;

    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid > 0 && is_child(pid, parent, word))
            found = pid;
    }
    if (processes)
        (void)closedir(processes);
    return found;
}
