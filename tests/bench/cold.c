/*
 * Cold process: from the moment before exec to the moment the first product is there, with
 * everything in between (loader, connection, memfd, registration, product). The daemon has seen
 * the configuration before: the first process warms it up and is not counted.
 */
#include <stdio.h>

#include "client.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_SIZE (1u << 20)

extern char **environ;

/* The client writes the time of its first result, a double, to descriptor 3. */
#define RESULT_FD 3

int bench_cold_client(int argc, char **argv)
{
    int64_t size = (int64_t)bench_option_number(argc, argv, "--size", 256);
    size_t bytes = (size_t)(size * size) * 2;
    gemmd *connection;
    gemmd_error error;
    gemmd_buffer *buffer;
    int fd = memfd_create("operands", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || 3 * bytes > MEMORY_SIZE || ftruncate(fd, MEMORY_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return 1;
    char *memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return 1;
    memset(memory, 0x3c, 2 * bytes); /* filling is the application's time, not ours: one memset */

    if (gemmd_connect(bench_option(argc, argv, "--socket", NULL), &connection, &error)) {
        fprintf(stderr, "gemmd-bench: %s\n", error.message);
        return 3;
    }
    if (gemmd_buffer_register(connection, fd, MEMORY_SIZE, true, &buffer))
        return bench_client_failed(connection, "registering memory");
    gemmd_product product = bench_product(size);
    product.a.buffer = product.b.buffer = product.d.buffer = buffer;
    product.b.offset = bytes;
    product.d.offset = 2 * bytes;
    if (gemmd_gemm(connection, &product, NULL))
        return bench_client_failed(connection, "the product");

    double done = bench_now();
    bool is_told = write(RESULT_FD, &done, sizeof(done)) == (ssize_t)sizeof(done);
    gemmd_close(connection);
    return !is_told;
}

/* Seconds from before the spawn to the client's first result; negative when it failed. */
static double run(char **argv)
{
    int ends[2], status;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    double done = -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], RESULT_FD);
    double start = bench_now();
    int r = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (r == 0) {
        if (read(ends[0], &done, sizeof(done)) != (ssize_t)sizeof(done))
            done = -1;
        waitpid(pid, &status, 0);
    }
    close(ends[0]);
    return done < 0 ? -1 : done - start;
}

int bench_cold(int argc, char **argv)
{
    struct samples samples = {.count = (size_t)bench_option_number(argc, argv, "--count", 50)};
    char *child[16] = {"gemmd-bench", "cold-client"};
    if (argc > 13)
        return EXIT_USAGE;
    for (int i = 1; i < argc; i++)
        child[i + 1] = argv[i];
    samples.values = calloc(samples.count + 1, sizeof(double));
    if (!samples.values)
        return 1;

    bench_print_facts(NULL, NULL);
    double first = run(child);
    for (size_t i = 0; i < samples.count && first >= 0; i++) {
        samples.values[i] = run(child) * 1e3;
        if (samples.values[i] < 0)
            first = -1;
    }
    if (first >= 0) {
        printf("measurement,count,first_ms,p50_ms,p99_ms,min_ms\n");
        printf("cold,%zu,%.3f,%.3f,%.3f,%.3f\n", samples.count, first * 1e3,
               samples_percentile(&samples, 50), samples_percentile(&samples, 99),
               samples_percentile(&samples, 0));
    }
    free(samples.values);
    return first < 0;
}
