/*
 * Cold process: from the moment before exec to the moment the first product is there, with
 * everything in between (loader, connection, memfd, registration, product). The daemon has seen
 * the configuration before: the first process warms it up and is not counted.
 *
 * The client is a program of its own (cold_client.c), as an application is: what it takes to load
 * this one, with all that it measures other things by, is not asked.
 *
 * The stages' medians stand beside the whole's: what the client stamps, and of the product what the
 * daemon says of it.
 */
#include <stdio.h>

#include "bench.h"
#include "cold_stamps.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS "socket size count"

extern char **environ;

/* Columns of the table, in seconds; the first one is the whole. */
enum column { WHOLE, EXEC, MEMORY, CONNECT, REGISTER, PRODUCT, QUEUED, DEVICE, COLUMNS };

static void fill_columns(const struct cold_stamps *stamps, double start, double ret[COLUMNS])
{
    const double *over = stamps->over;
    ret[WHOLE] = over[COLD_PRODUCT] - start;
    ret[EXEC] = over[COLD_START] - start;
    ret[MEMORY] = over[COLD_MEMORY] - over[COLD_START];
    ret[CONNECT] = over[COLD_CONNECT] - over[COLD_MEMORY];
    ret[REGISTER] = over[COLD_REGISTER] - over[COLD_CONNECT];
    ret[PRODUCT] = over[COLD_PRODUCT] - over[COLD_REGISTER];
    ret[QUEUED] = stamps->queued;
    ret[DEVICE] = stamps->device;
}

/* Beside this program. */
static bool find_client(char ret_path[PATH_MAX + 32])
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        return false;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    (void)snprintf(ret_path, PATH_MAX + 32, "%s/gemmd-cold-client", self);
    return access(ret_path, X_OK) == 0;
}

/* One client, from before its spawn; false when it failed. */
static bool run(char **argv, double ret[COLUMNS])
{
    int ends[2], status;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    struct cold_stamps stamps;
    bool is_told = false;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], COLD_FD);
    double start = bench_now();
    int r = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (r == 0) {
        is_told = read(ends[0], &stamps, sizeof(stamps)) == (ssize_t)sizeof(stamps);
        waitpid(pid, &status, 0);
    }
    close(ends[0]);
    if (is_told)
        fill_columns(&stamps, start, ret);
    return is_told;
}

static void print(struct samples samples[COLUMNS], double first)
{
    printf("measurement,count,first_ms,p50_ms,p99_ms,min_ms\n");
    printf("cold,%zu,%.3f,%.3f,%.3f,%.3f\n", samples[WHOLE].count, first * 1e3,
           samples_percentile(&samples[WHOLE], 50), samples_percentile(&samples[WHOLE], 99),
           samples_percentile(&samples[WHOLE], 0));
    printf("measurement,exec_ms,memory_ms,connect_ms,register_ms,product_ms,of_it_queued_ms,"
           "of_it_device_ms\ncold-stages");
    for (int i = EXEC; i < COLUMNS; i++)
        printf(",%.3f", samples_percentile(&samples[i], 50));
    printf("\n");
}

int bench_cold(int argc, char **argv)
{
    struct samples samples[COLUMNS];
    double first[COLUMNS], columns[COLUMNS];
    size_t count = (size_t)bench_option_number(argc, argv, "--count", 50);
    char client[PATH_MAX + 32];
    char *child[] = {client, (char *)bench_option(argc, argv, "--socket", ""),
                     (char *)bench_option(argc, argv, "--size", "256"), NULL};
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    if (!find_client(client)) {
        printf("no %s\n", client);
        return EXIT_ABSENT;
    }
    double *values = calloc(COLUMNS * (count + 1), sizeof(double));
    if (!values)
        return 1;
    for (size_t i = 0; i < COLUMNS; i++)
        samples[i] = (struct samples){values + i * count, count};

    bench_print_facts(NULL, NULL);
    bool is_well = run(child, first);
    for (size_t i = 0; i < count && is_well; i++) {
        is_well = run(child, columns);
        for (size_t j = 0; j < COLUMNS && is_well; j++)
            samples[j].values[i] = columns[j] * 1e3;
    }
    if (is_well)
        print(samples, first[WHOLE]);
    free(values);
    return !is_well;
}
