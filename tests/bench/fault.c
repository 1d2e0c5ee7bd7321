/*
 * The worker dies under load: the longest time a client waited from one good answer to the next.
 * Killed (SIGKILL) and hung (SIGSTOP), which the daemon must notice by itself; and, in a daemon of
 * the bench's own whose kernels (on the CPU: BLAS) can be asked to fault, of a product of another
 * client that writes to a bad address, to a misaligned one, traps, or never ends.
 */
#include <stdio.h>

#include "../support/faults.h"
#include "ask.h"
#include "fault_load.h"
#include "fault_stages.h"
#include "private_daemon.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPEATS_MAX  64
#define LOAD_SECONDS 0.3 /* before each fault */
#define GUILTY_SIZE  64
#define OPTIONS      "socket size repeat hung inject endless timeout"

enum strike {
    STRIKE_KILLED,
    STRIKE_HUNG,
    STRIKE_FAULT, /* and one for each kind after it */
    STRIKE_COUNT = STRIKE_FAULT + TEST_FAULT_COUNT,
};

struct figures {
    double gaps[REPEATS_MAX * TEST_FAULT_COUNT];
    double errors[REPEATS_MAX * TEST_FAULT_COUNT]; /* most of one client */
    size_t count;
};

struct fault_run {
    gemmd *connection; /* to the daemon that is struck */
    struct load load;
    struct stages_watch stages;
    gemmd *guilty; /* asks for faults */
    gemmd_buffer *memory;
    double timeout;
    struct figures figures[STRIKE_COUNT];
    size_t deaths_seen; /* of the daemon that is struck */
    size_t repeats[TEST_FAULT_COUNT];
    unsigned wrong, other_bits, broken, unjust; /* of all loads; faults that were not told */
};

/* --- one strike ------------------------------------------------------------------------------ */

/* Whether the worker died of it; an answer that was under way does not count as recovery. */
static bool await_death(const struct fault_run *run, double deaths)
{
    double end = bench_now() + run->timeout;
    while (bench_now() < end) {
        if (ask_number(run->connection, NULL, "deaths") > deaths)
            return true;
        (void)usleep(2000);
    }
    return false;
}

static void note(struct fault_run *run, const char *what, struct figures *figures)
{
    run->deaths_seen = stages_print(&run->stages, what, run->deaths_seen);
    for (int i = 0; i < LOAD_CLIENTS; i++) {
        double *gap = &figures->gaps[figures->count], *errors = &figures->errors[figures->count];
        *gap = MAX(*gap, atomic_load(&run->load.clients[i].gap));
        *errors = MAX(*errors, (double)atomic_load(&run->load.clients[i].errors));
    }
    figures->count++;
}

/* The load runs, and a worker stands by again if one is to: blows that come faster than that are
 * the soak's. */
static void await_calm(const struct fault_run *run)
{
    double end = bench_now() + run->timeout;
    char spare[96];
    do {
        (void)usleep((useconds_t)(LOAD_SECONDS * 1e6));
        ask_text(run->connection, "worker", "spare", spare);
    } while (strcmp(spare, "starting") == 0 && bench_now() < end);
}

static int strike_signal(struct fault_run *run, int signal_number, struct figures *figures)
{
    await_calm(run);
    pid_t worker = (pid_t)ask_number(run->connection, "worker", "pid");
    double deaths = ask_number(run->connection, NULL, "deaths");
    if (worker <= 0)
        return 1;
    load_reset(&run->load);
    if (kill(worker, signal_number) < 0) {
        fprintf(stderr, "gemmd-bench: the worker cannot be sent a signal: %m\n");
        return 1;
    }
    if (!await_death(run, deaths)) {
        printf("# signal %d: the daemon did not notice within %.0f s\n", signal_number,
               run->timeout);
        (void)kill(worker, SIGCONT);
        (void)load_has_recovered(&run->load, run->timeout);
        return 1;
    }
    if (!load_has_recovered(&run->load, run->timeout)) {
        printf("# signal %d: no answers again within %.0f s\n", signal_number, run->timeout);
        return 1;
    }
    note(run, signal_number == SIGKILL ? "killed" : "hung", figures);
    return 0;
}

/* fp32 on device memory; alpha decides whether it is a fault. */
static gemmd_status ask_for(struct fault_run *run, double alpha)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    const uint64_t bytes = GUILTY_SIZE * GUILTY_SIZE * sizeof(float);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = GUILTY_SIZE;
    product.alpha = alpha;
    product.a.buffer = product.b.buffer = product.d.buffer = run->memory;
    product.b.offset = bytes;
    product.d.offset = 2 * bytes;
    return gemmd_gemm(run->guilty, &product, NULL);
}

static int strike_fault(struct fault_run *run, enum test_fault kind)
{
    await_calm(run);
    load_reset(&run->load);
    gemmd_status status = ask_for(run, TEST_FAULT_ALPHA + kind);
    if (status != GEMMD_GPU_FAULT) {
        printf("# %s: the product that faults was answered %s\n", test_fault_name(kind),
               gemmd_strerror(status));
        run->unjust++;
    }
    if (!load_has_recovered(&run->load, run->timeout)) {
        printf("# %s: no answers again within %.0f s\n", test_fault_name(kind), run->timeout);
        return 1;
    }
    note(run, test_fault_name(kind), &run->figures[STRIKE_FAULT + kind]);
    return 0;
}

/* --- a daemon under load --------------------------------------------------------------------- */

static int begin(struct fault_run *run, const char *socket, int64_t size)
{
    int r = ask_connect(socket, &run->connection);
    run->deaths_seen = 0;
    r = r ? r : stages_start(&run->stages, socket);
    return r ? r : load_start(&run->load, socket, size);
}

static void end(struct fault_run *run)
{
    load_stop(&run->load);
    stages_stop(&run->stages);
    for (int i = 0; i < LOAD_CLIENTS; i++) {
        const struct load_client *client = &run->load.clients[i];
        run->wrong += atomic_load(&client->wrong);
        run->other_bits += atomic_load(&client->other_bits);
        run->broken += atomic_load(&client->is_broken);
    }
    gemmd_close(run->connection);
    run->connection = NULL;
}

static bool is_cuda(const struct fault_run *run)
{
    char kind[96];
    ask_text(run->connection, "device", "kind", kind);
    return strcmp(kind, "cuda") == 0;
}

static int strike_signals(struct fault_run *run, size_t repeats, size_t hangs)
{
    int r = 0;
    for (size_t i = 0; i < repeats && !r; i++)
        r = strike_signal(run, SIGKILL, &run->figures[STRIKE_KILLED]);
    if (hangs > 0 && !is_cuda(run)) {
        printf("# a CPU worker computes in its loop, so nobody watches its heart: none is hung\n");
        hangs = 0;
    }
    for (size_t i = 0; i < hangs && !r; i++) {
        if (strike_signal(run, SIGSTOP, &run->figures[STRIKE_HUNG]))
            break; /* not noticed: a figure that is missing, not a failure of the others */
    }
    return r;
}

static int open_guilty(struct fault_run *run, const char *socket)
{
    int r = ask_connect(socket, &run->guilty);
    if (r)
        return r;
    if (gemmd_buffer_create(run->guilty, GEMMD_DEVICE,
                            3 * GUILTY_SIZE * GUILTY_SIZE * sizeof(float), NULL, 0, &run->memory) ||
        ask_for(run, 1))
        return bench_client_failed(run->guilty, "a product before any fault");
    return 0;
}

/* An endless product costs the daemon's limit of time twice: once with others, once alone. */
static int strike_faults(struct fault_run *run, const char *socket, int64_t size)
{
    int r = begin(run, socket, size);
    if (!r)
        r = open_guilty(run, socket);
    for (enum test_fault kind = 0; kind < TEST_FAULT_COUNT && !r; kind++) {
        for (size_t i = 0; i < run->repeats[kind] && !r; i++)
            r = strike_fault(run, kind);
    }
    gemmd_close(run->guilty);
    end(run);
    return r;
}

/* --- the daemon that can fault --------------------------------------------------------------- */

/* The same program on the same device as the one that is running. */
struct twin {
    char binary[PATH_MAX], device[96], kernels[64];
    bool is_cuda;
};

static bool learn(const struct fault_run *run, struct twin *twin)
{
    char link[64];
    (void)snprintf(link, sizeof(link), "/proc/%d/exe",
                   (int)ask_number(run->connection, NULL, "pid"));
    ssize_t length = readlink(link, twin->binary, sizeof(twin->binary) - 1);
    twin->binary[MAX(length, 0)] = '\0';
    ask_text(run->connection, "device", "selected_by", twin->device);
    twin->is_cuda = is_cuda(run);
    return length > 0;
}

static bool prepare(struct twin *twin)
{
    if (!twin->is_cuda) {
        faulty_blas_choose(NULL);
        (void)setenv("GEMMD_JOB_TIME_LIMIT", "2", 1); /* as on a GPU */
        return true;
    }
    (void)strcpy(twin->kernels, "/tmp/gemmd-bench-faults-XXXXXX");
    if (!mkdtemp(twin->kernels) || !faulty_kernels_write(twin->kernels))
        return false;
    (void)setenv("GEMMD_KERNELS_DIR", twin->kernels, 1);
    return true;
}

static int inject(struct fault_run *run, struct twin *twin, int64_t size)
{
    struct private_daemon daemon;
    char command[128];
    int r = !prepare(twin) || private_daemon_start(&daemon, twin->binary, twin->device);
    if (!r) {
        r = strike_faults(run, daemon.socket, size);
        private_daemon_stop(&daemon);
    }
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", twin->kernels);
    if (twin->kernels[0])
        (void)!system(command);
    return r;
}

/* --- the report ------------------------------------------------------------------------------ */

static void print(const struct fault_run *run, const char *name, struct figures *figures)
{
    struct samples gaps = {figures->gaps, figures->count},
                   errors = {figures->errors, figures->count};
    if (figures->count == 0)
        return;
    printf("%s,%zu,%d,%.4f,%.4f,%.0f,%u,%u\n", name, figures->count, LOAD_CLIENTS,
           samples_median(&gaps), samples_percentile(&gaps, 100), samples_percentile(&errors, 100),
           run->wrong, run->other_bits);
}

static void print_all(struct fault_run *run)
{
    static struct figures device;
    char name[64];
    printf("measurement,faults,clients,median_s,worst_s,errors_per_client,wrong,other_bits\n");
    print(run, "fault-killed", &run->figures[STRIKE_KILLED]);
    print(run, "fault-hung", &run->figures[STRIKE_HUNG]);
    for (enum test_fault kind = 0; kind < TEST_FAULT_COUNT; kind++) {
        struct figures *figures = &run->figures[STRIKE_FAULT + kind];
        (void)snprintf(name, sizeof(name), "fault-%s", test_fault_name(kind));
        print(run, name, figures);
        for (size_t i = 0; i < figures->count && kind != TEST_FAULT_ENDLESS; i++) {
            device.gaps[device.count] = figures->gaps[i];
            device.errors[device.count++] = figures->errors[i];
        }
    }
    print(run, "fault-device", &device); /* those of the service table */
    if (run->broken > 0)
        printf("# %u clients lost their connection\n", run->broken);
}

int bench_fault(int argc, char **argv)
{
    static struct fault_run run;
    static struct twin twin;
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    int64_t size = MAX((int64_t)bench_option_number(argc, argv, "--size", 256), 1);
    size_t repeats = MIN((size_t)bench_option_number(argc, argv, "--repeat", 5), REPEATS_MAX);
    size_t hangs = MIN((size_t)bench_option_number(argc, argv, "--hung", 1), REPEATS_MAX);
    size_t faults = MIN((size_t)bench_option_number(argc, argv, "--inject", 3), REPEATS_MAX);
    size_t endless = MIN((size_t)bench_option_number(argc, argv, "--endless", 1), REPEATS_MAX);
    for (enum test_fault kind = 0; kind < TEST_FAULT_COUNT; kind++)
        run.repeats[kind] = kind == TEST_FAULT_ENDLESS ? endless : faults;
    run.timeout = bench_option_number(argc, argv, "--timeout", 20);
    int r = begin(&run, bench_option(argc, argv, "--socket", NULL), size);
    if (run.connection)
        ask_print_facts(run.connection);
    bool has_twin = !r && learn(&run, &twin);
    r = r ? r : strike_signals(&run, repeats, hangs);
    end(&run);
    if (!r && faults > 0 && has_twin)
        r = inject(&run, &twin, size);
    else if (faults > 0)
        printf("# no faults are injected: the daemon's program cannot be started again\n");
    print_all(&run);
    return r || run.wrong > 0 || run.broken > 0 || run.unjust > 0;
}
