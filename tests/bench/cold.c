/*
 * Cold process: from the moment before exec to the moment the first product is there, with
 * everything in between (loader, connection, memfd, registration, product). The daemon has seen
 * the configuration before: the first process warms it up and is not counted.
 *
 * The stages' medians stand beside the whole's: what the client stamps, and of the product what the
 * daemon says of it.
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

/* What the client writes to descriptor 3: when each stage was over, of which the first is the
 * start of main(), and of the product's what the daemon reports. */
#define RESULT_FD 3

enum stage { STAGE_START, STAGE_MEMORY, STAGE_CONNECT, STAGE_REGISTER, STAGE_PRODUCT, STAGES };

struct stamps {
    double over[STAGES];
    double queued, device; /* seconds */
};

int bench_cold_client(int argc, char **argv)
{
    struct stamps stamps = {.over[STAGE_START] = bench_now()};
    gemmd_result result = {.size = sizeof(result)};
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
    stamps.over[STAGE_MEMORY] = bench_now();

    if (gemmd_connect(bench_option(argc, argv, "--socket", NULL), &connection, &error)) {
        fprintf(stderr, "gemmd-bench: %s\n", error.message);
        return 3;
    }
    stamps.over[STAGE_CONNECT] = bench_now();
    if (gemmd_buffer_register(connection, fd, MEMORY_SIZE, true, &buffer))
        return bench_client_failed(connection, "registering memory");
    stamps.over[STAGE_REGISTER] = bench_now();
    gemmd_product product = bench_product(size);
    product.a.buffer = product.b.buffer = product.d.buffer = buffer;
    product.b.offset = bytes;
    product.d.offset = 2 * bytes;
    if (gemmd_gemm(connection, &product, &result))
        return bench_client_failed(connection, "the product");

    stamps.over[STAGE_PRODUCT] = bench_now();
    stamps.queued = result.queued_seconds;
    stamps.device = result.device_seconds;
    bool is_told = write(RESULT_FD, &stamps, sizeof(stamps)) == (ssize_t)sizeof(stamps);
    gemmd_close(connection);
    return !is_told;
}

/* Columns of the table, in seconds; the first one is the whole. */
enum column { WHOLE, EXEC, MEMORY, CONNECT, REGISTER, PRODUCT, QUEUED, DEVICE, COLUMNS };

static void fill_columns(const struct stamps *stamps, double start, double ret[COLUMNS])
{
    const double *over = stamps->over;
    ret[WHOLE] = over[STAGE_PRODUCT] - start;
    ret[EXEC] = over[STAGE_START] - start;
    ret[MEMORY] = over[STAGE_MEMORY] - over[STAGE_START];
    ret[CONNECT] = over[STAGE_CONNECT] - over[STAGE_MEMORY];
    ret[REGISTER] = over[STAGE_REGISTER] - over[STAGE_CONNECT];
    ret[PRODUCT] = over[STAGE_PRODUCT] - over[STAGE_REGISTER];
    ret[QUEUED] = stamps->queued;
    ret[DEVICE] = stamps->device;
}

/* One client, from before its spawn; false when it failed. */
static bool run(char **argv, double ret[COLUMNS])
{
    int ends[2], status;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    struct stamps stamps;
    bool is_told = false;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], RESULT_FD);
    double start = bench_now();
    int r = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
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
    char *child[16] = {"gemmd-bench", "cold-client"};
    if (argc > 13)
        return EXIT_USAGE;
    for (int i = 1; i < argc; i++)
        child[i + 1] = argv[i];
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
