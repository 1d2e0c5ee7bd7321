/*
 * Client processes of mixed shapes and dtypes over a daemon of their own, one of them killed every
 * moment and started again, the worker killed, stopped or faulted every few seconds: no result is
 * wrong, none is lost but by the rules, and at the end the daemon holds what it held at the start.
 *
 * What is compared at the end, and what may differ:
 * - what is charged to uids: nothing may;
 * - the front's descriptors, but for one of each kernel that was asked for: none more;
 * - the front's own memory: what malloc keeps in its free lists when 16 clients' largest moments
 *   fall together, SOAK_ANONYMOUS_KIB;
 * - memory that it shares with the worker: one staging chunk, which it keeps;
 * - memory of the device: what allocations of 2 MiB leave of the context's own, SOAK_DEVICE_BYTES.
 *   Before each weighing the worker is killed, so that contexts are compared that did nothing.
 */
#include <stdio.h>

#include "../support/faults.h"
#include "../support/process.h"
#include "ask.h"
#include "power.h"
#include "private_daemon.h"
#include "soak.h"
#include "soak_quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS            "seconds warmup clients device daemon kill-client-ms fault-worker-s seed"
#define SOAK_ANONYMOUS_KIB 2048
#define SOAK_SHARED_KIB    (16 << 10)
#define SOAK_DEVICE_BYTES  (8ull << 20)
#define STUCK_SECONDS      60 /* without an answer of anybody: more than any worker is waited for */
/* An endless product has the daemon's limit of 2 s twice, and two workers die of it. On a CPU,
 * which clients and workers share, the bound of the whole must do. */
#define GAP_SECONDS_CUDA 6
#define FAULT_SIZE       64
#define WARMUP_ROUNDS    8

/* In this order, again and again. */
enum blow { BLOW_KILL, BLOW_ADDRESS, BLOW_STOP, BLOW_MISALIGNED, BLOW_TRAP, BLOW_ENDLESS, BLOWS };

/* What must come back. */
struct holdings {
    double descriptors, anonymous_kib, shared_kib, device_bytes, charged;
};

struct soak {
    struct private_daemon daemon;
    struct soak_page *page;
    int page_fd;
    size_t clients;
    pid_t pids[SOAK_CLIENTS_MAX];
    gemmd *connection;    /* asks for status, and for faults */
    gemmd_buffer *memory; /* of those */
    gemmd_job fault;
    bool is_cuda, is_faulting;
    char kernels[64], uuid[96];
    double kill_seconds, fault_seconds, next_kill, next_blow, last_progress;
    unsigned seed;
    double worst_gap; /* seconds without an answer of anybody */
    unsigned long kills, blows[BLOWS], unjust, answers_seen;
};

/* --- clients --------------------------------------------------------------------------------- */

static void become_client(const struct soak *soak, size_t seat)
{
    char number[24];
    const char *argv[] = {"gemmd-bench", "soak-client", "--socket", soak->daemon.socket,
                          "--seat",      number,        NULL,       NULL};

    (void)snprintf(number, sizeof(number), "%zu", seat);
    if (soak->is_cuda && seat < 4)
        argv[6] = "--large";
    /* dup2() onto itself would keep close-on-exec */
    int copy = dup(soak->page_fd);
    if (copy >= 0 && dup2(copy, SOAK_FD) == SOAK_FD)
        (void)execv("/proc/self/exe", (char *const *)argv);
    _exit(127);
}

static void start_client(struct soak *soak, size_t seat)
{
    (void)fflush(stdout);
    soak->pids[seat] = process_fork();
    if (soak->pids[seat] == 0)
        become_client(soak, seat);
}

static void start_clients(struct soak *soak)
{
    atomic_store(&soak->page->is_over, false);
    for (size_t i = 0; i < soak->clients; i++)
        start_client(soak, i);
}

/* They finish what is under way. One that waits for ever is lost, and so is its answer. */
static void stop_clients(struct soak *soak)
{
    double end = bench_now() + STUCK_SECONDS;

    atomic_store(&soak->page->is_over, true);
    for (size_t i = 0; i < soak->clients; i++) {
        while (soak->pids[i] > 0 && waitpid(soak->pids[i], NULL, WNOHANG) == 0) {
            (void)usleep(2000);
            if (bench_now() < end)
                continue;
            printf("# client %zu still waits for an answer\n", i);
            atomic_fetch_add(&soak->page->seats[i].lost, 1);
            (void)kill(soak->pids[i], SIGKILL);
            (void)waitpid(soak->pids[i], NULL, 0);
            break;
        }
        soak->pids[i] = 0;
    }
}

static void kill_one(struct soak *soak)
{
    size_t seat = (size_t)rand_r(&soak->seed) % soak->clients;

    (void)kill(soak->pids[seat], SIGKILL);
    (void)waitpid(soak->pids[seat], NULL, 0);
    start_client(soak, seat);
    soak->kills++;
}

/* --- the worker ------------------------------------------------------------------------------ */

static gemmd_product fault_product(const struct soak *soak, double alpha)
{
    const uint64_t bytes = FAULT_SIZE * FAULT_SIZE * sizeof(float);
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = FAULT_SIZE;
    product.alpha = alpha;
    product.a.buffer = product.b.buffer = product.d.buffer = soak->memory;
    product.b.offset = bytes;
    product.d.offset = 2 * bytes;
    return product;
}

static void ask_for_fault(struct soak *soak, enum test_fault kind)
{
    gemmd_product product = fault_product(soak, TEST_FAULT_ALPHA + kind);

    if (!soak->is_faulting)
        soak->is_faulting = gemmd_submit(soak->connection, &product, &soak->fault) == GEMMD_OK;
}

/* The product that faulted is the one that is told so. */
static void look_for_fault(struct soak *soak, bool must_end)
{
    gemmd_status status;
    bool is_done = must_end;

    if (!soak->is_faulting ||
        (!must_end && (gemmd_poll(soak->connection, soak->fault, &is_done) || !is_done)))
        return;
    status = gemmd_wait(soak->connection, soak->fault, -1, NULL);
    soak->is_faulting = false;
    if (status == GEMMD_GPU_FAULT)
        return;
    printf("# a product that faults was answered %s\n", gemmd_strerror(status));
    soak->unjust++;
}

static void strike(struct soak *soak, enum blow blow)
{
    pid_t worker = (pid_t)ask_number(soak->connection, "worker", "pid");

    soak->blows[blow]++;
    switch (blow) {
    case BLOW_KILL:
    case BLOW_STOP:
        if (worker > 0)
            (void)kill(worker, blow == BLOW_KILL ? SIGKILL : SIGSTOP);
        break;
    case BLOW_ADDRESS:
        ask_for_fault(soak, TEST_FAULT_ADDRESS);
        break;
    case BLOW_MISALIGNED:
        ask_for_fault(soak, TEST_FAULT_MISALIGNED);
        break;
    case BLOW_TRAP:
        ask_for_fault(soak, TEST_FAULT_TRAP);
        break;
    case BLOW_ENDLESS:
    case BLOWS:
        ask_for_fault(soak, TEST_FAULT_ENDLESS);
        break;
    }
}

/* --- the course ------------------------------------------------------------------------------ */

static unsigned long sum_of(const struct soak *soak, size_t offset)
{
    unsigned long sum = 0;

    for (size_t i = 0; i < soak->clients; i++)
        sum += atomic_load((const atomic_ulong *)((const char *)&soak->page->seats[i] + offset));
    return sum;
}

#define SUM_OF(soak, member) sum_of(soak, offsetof(struct soak_seat, member))

static bool is_stuck(struct soak *soak)
{
    unsigned long answers = SUM_OF(soak, answers);
    double now = bench_now();

    soak->worst_gap = MAX(soak->worst_gap, now - soak->last_progress);
    if (answers != soak->answers_seen) {
        soak->answers_seen = answers;
        soak->last_progress = now;
    }
    return now - soak->last_progress > STUCK_SECONDS;
}

static int run_for(struct soak *soak, double seconds, bool has_blows)
{
    double now = bench_now(), end = now + seconds;
    unsigned blow = 0;

    soak->next_kill = now + soak->kill_seconds;
    soak->next_blow = now + soak->fault_seconds;
    soak->last_progress = now;
    start_clients(soak);
    for (; now < end; now = bench_now()) {
        if (is_stuck(soak)) {
            printf("# no answers for %d s, %.0f s before the end\n", STUCK_SECONDS, end - now);
            soak_print_unrest(soak->connection, soak->daemon.pid);
            return 1;
        }
        if (now >= soak->next_kill) {
            kill_one(soak);
            soak->next_kill += soak->kill_seconds;
        }
        if (has_blows && now >= soak->next_blow) {
            strike(soak, (enum blow)(blow++ % BLOWS));
            soak->next_blow += soak->fault_seconds;
        }
        look_for_fault(soak, false);
        (void)usleep(2000);
    }
    stop_clients(soak);
    look_for_fault(soak, true);
    return 0;
}

/* --- what it holds --------------------------------------------------------------------------- */

static double charged(const struct soak *soak)
{
    static const char *const names[] = {
        "connections",  "jobs",           "buffers",      "descriptors",   "host_bytes",
        "device_bytes", "imported_bytes", "inline_bytes", "message_bytes", "output_bytes"};
    double sum = 0;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        sum += ask_number(soak->connection, "charged", names[i]);
    return sum;
}

static int renew_worker(const struct soak *soak)
{
    pid_t worker = (pid_t)ask_number(soak->connection, "worker", "pid");
    double deaths = ask_number(soak->connection, NULL, "deaths"),
           end = bench_now() + SOAK_QUIET_SECONDS;

    if (worker <= 0 || kill(worker, SIGKILL) < 0)
        return 1;
    while (ask_number(soak->connection, NULL, "deaths") == deaths && bench_now() < end)
        (void)usleep(5000);
    return soak_await_quiet(soak->connection, soak->daemon.pid);
}

static int weigh(struct soak *soak, struct holdings *ret)
{
    if (soak_await_quiet(soak->connection, soak->daemon.pid) || renew_worker(soak))
        return 1;
    *ret = (struct holdings){
        .descriptors =
            process_descriptors(soak->daemon.pid) - ask_number(soak->connection, NULL, "kernels"),
        .anonymous_kib = (double)process_memory_kib(soak->daemon.pid, "RssAnon:"),
        .shared_kib = (double)process_memory_kib(soak->daemon.pid, "RssShmem:"),
        .device_bytes = soak->is_cuda ? (double)power_memory_used(soak->uuid) : 0,
        .charged = charged(soak),
    };
    return 0;
}

/* How many of these came to more than they may. */
static int
compare(const struct soak *soak, const struct holdings *start, const struct holdings *end)
{
    const struct {
        const char *name;
        double start, end, tolerance;
    } rows[] = {
        {"soak-charged", start->charged, end->charged, 0},
        {"soak-front-descriptors", start->descriptors, end->descriptors, 0},
        {"soak-front-anonymous-kib", start->anonymous_kib, end->anonymous_kib, SOAK_ANONYMOUS_KIB},
        {"soak-front-shared-kib", start->shared_kib, end->shared_kib, SOAK_SHARED_KIB},
        {"soak-device-bytes", start->device_bytes, end->device_bytes, (double)SOAK_DEVICE_BYTES},
        {"soak-worst-gap-ms", 0, soak->worst_gap * 1e3,
         (soak->is_cuda ? GAP_SECONDS_CUDA : STUCK_SECONDS) * 1e3},
    };

    int over = 0;

    printf("measurement,start,end,tolerance,verdict\n");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        bool is_over = rows[i].end > rows[i].start + rows[i].tolerance;

        printf("%s,%.0f,%.0f,%.0f,%s\n", rows[i].name, rows[i].start, rows[i].end,
               rows[i].tolerance, is_over ? "OVER" : "ok");
        over += is_over;
    }
    return over;
}

/* --- the whole ------------------------------------------------------------------------------- */

static int prepare_faults(struct soak *soak, const char *device)
{
    soak->is_cuda = strcmp(device, "cpu") != 0;
    if (!soak->is_cuda) {
        faulty_blas_choose(NULL);
        /* A worker that is stopped is found by this alone; long, since the machine is busy. */
        (void)setenv("GEMMD_JOB_TIME_LIMIT", "4", 1);
        return 0;
    }
    (void)strcpy(soak->kernels, "/tmp/gemmd-bench-faults-XXXXXX");
    if (!mkdtemp(soak->kernels) || !faulty_kernels_write(soak->kernels))
        return 1;
    return setenv("GEMMD_KERNELS_DIR", soak->kernels, 1) != 0;
}

static int open_page(struct soak *soak)
{
    soak->page_fd = memfd_create("soak", MFD_CLOEXEC);
    if (soak->page_fd < 0 || ftruncate(soak->page_fd, sizeof(*soak->page)) < 0)
        return 1;
    soak->page =
        mmap(NULL, sizeof(*soak->page), PROT_READ | PROT_WRITE, MAP_SHARED, soak->page_fd, 0);
    return soak->page == MAP_FAILED;
}

static int open_connection(struct soak *soak)
{
    gemmd_product product;
    int r = ask_connect(soak->daemon.socket, &soak->connection);

    if (r)
        return r;
    ask_print_facts(soak->connection);
    ask_text(soak->connection, "device", "uuid", soak->uuid);
    if (gemmd_buffer_create(soak->connection, GEMMD_DEVICE,
                            3 * FAULT_SIZE * FAULT_SIZE * sizeof(float), NULL, 0, &soak->memory))
        return bench_client_failed(soak->connection, "a buffer");
    product = fault_product(soak, 1);
    if (gemmd_gemm(soak->connection, &product, NULL))
        return bench_client_failed(soak->connection, "a product before any fault");
    return 0;
}

static void print_course(const struct soak *soak, double seconds)
{
    for (size_t i = 0; i < soak->clients; i++) {
        const struct soak_seat *seat = &soak->page->seats[i];

        if (seat->why[0])
            printf("# client %zu: %.*s\n", i, SOAK_WHY, seat->why);
    }
    printf("# the worker: %lu killed, %lu stopped, %lu bad addresses, %lu misaligned, %lu traps, "
           "%lu endless\n",
           soak->blows[BLOW_KILL], soak->blows[BLOW_STOP], soak->blows[BLOW_ADDRESS],
           soak->blows[BLOW_MISALIGNED], soak->blows[BLOW_TRAP], soak->blows[BLOW_ENDLESS]);
    printf("measurement,seconds,clients,answers,wrong,lost,in_place,unjust,client_kills,"
           "worker_deaths,worst_gap_s\n");
    printf("soak,%.0f,%zu,%lu,%lu,%lu,%lu,%lu,%lu,%.0f,%.3f\n", seconds, soak->clients,
           SUM_OF(soak, answers), SUM_OF(soak, wrong), SUM_OF(soak, lost), SUM_OF(soak, in_place),
           soak->unjust, soak->kills, ask_number(soak->connection, NULL, "deaths"),
           soak->worst_gap);
}

/* Until a round asked for no new kernel: those are compiled when they are first needed, and each
 * takes memory of the device. */
static int warm_up(struct soak *soak, double seconds)
{
    double kernels = ask_number(soak->connection, NULL, "kernels"), before;
    int r;

    for (int round = 0; round < WARMUP_ROUNDS; round++) {
        before = kernels;
        r = run_for(soak, seconds, false);
        kernels = ask_number(soak->connection, NULL, "kernels");
        if (r || kernels == before)
            return r;
    }
    printf("# new kernels in each of %d rounds before the start\n", WARMUP_ROUNDS);
    return 0;
}

static int run(struct soak *soak, double warmup, double seconds)
{
    struct holdings start, end;
    int r = open_connection(soak);

    r = r ? r : warm_up(soak, warmup);
    r = r ? r : weigh(soak, &start);
    if (r)
        return r;
    r = run_for(soak, seconds, true);
    print_course(soak, seconds);
    if (r)
        return r;
    r = weigh(soak, &end);
    if (r || compare(soak, &start, &end) > 0)
        return 1;
    return SUM_OF(soak, answers) == 0 ||
           SUM_OF(soak, wrong) + SUM_OF(soak, lost) + soak->unjust > 0;
}

int bench_soak(int argc, char **argv)
{
    static struct soak soak;
    char command[128];

    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    const char *device = bench_option(argc, argv, "--device", "cpu");
    soak.clients = (size_t)bench_option_number(argc, argv, "--clients", 16);
    soak.clients = MIN(MAX(soak.clients, 1u), (size_t)SOAK_CLIENTS_MAX);
    soak.kill_seconds = bench_option_number(argc, argv, "--kill-client-ms", 100) * 1e-3;
    soak.fault_seconds = bench_option_number(argc, argv, "--fault-worker-s", 10);
    soak.seed = (unsigned)bench_option_number(argc, argv, "--seed", 1);
    if (open_page(&soak) || prepare_faults(&soak, device) ||
        private_daemon_start(&soak.daemon, bench_option(argc, argv, "--daemon", NULL), device))
        return 1;
    int r = run(&soak, bench_option_number(argc, argv, "--warmup", 4),
                bench_option_number(argc, argv, "--seconds", 60));
    for (size_t i = 0; i < soak.clients; i++) {
        if (soak.pids[i] > 0)
            (void)kill(soak.pids[i], SIGKILL);
    }
    if (r)
        private_daemon_print_warnings(&soak.daemon, stdout);
    gemmd_close(soak.connection);
    private_daemon_stop(&soak.daemon);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", soak.kernels);
    if (soak.kernels[0])
        (void)!system(command);
    printf("# %s\n", r ? "FAILED" : "passed");
    return r;
}
