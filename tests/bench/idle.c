/*
 * What the daemon costs while nobody asks for anything: context switches of each of its processes
 * (a process that sleeps makes none), the front's memory, and device memory per further client.
 */
#include <stdio.h>

#include "../support/process.h"
#include "ask.h"
#include "power.h"

#define PROCESSES_MAX  64
#define SETTLE_SECONDS 3.0  /* after the last product: spinning and parking have an end */
#define PARKED_SECONDS 30.0 /* then compile children are gone, which rest for 10 s */
#define CLIENTS        8
#define OPTIONS        "socket seconds settle"

#include <string.h>
#include <time.h>
#include <unistd.h>

struct process {
    pid_t pid;
    const char *role;
    unsigned long switches;
};

static void sleep_seconds(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&time, NULL);
}

static const char *role_of(pid_t pid, pid_t worker)
{
    if (pid == worker)
        return "worker";
    return process_was_told(pid, "worker") ? "spare worker" : "compile";
}

static size_t processes_of(pid_t front, pid_t worker, struct process processes[PROCESSES_MAX])
{
    pid_t pids[PROCESSES_MAX];
    size_t children = process_children(front, pids, PROCESSES_MAX - 1), count = 0;
    processes[count++] = (struct process){.pid = front, .role = "front"};
    for (size_t i = 0; i < children; i++)
        processes[count++] = (struct process){.pid = pids[i], .role = role_of(pids[i], worker)};
    return count;
}

/* Workers are parked by then; what compiled for the products above has still to go, and its end
 * wakes the front. */
static void await_parked(pid_t front, pid_t worker, double settle)
{
    struct process processes[PROCESSES_MAX];
    double end = bench_now() + PARKED_SECONDS;
    bool is_any = true;

    sleep_seconds(settle);
    while (is_any && bench_now() < end) {
        size_t count = processes_of(front, worker, processes);

        is_any = false;
        for (size_t i = 0; i < count; i++)
            is_any |= strcmp(processes[i].role, "compile") == 0;
        if (is_any)
            sleep_seconds(0.1);
    }
}

static unsigned long watch(struct process *processes, size_t count, double seconds)
{
    unsigned long all = 0;
    for (size_t i = 0; i < count; i++)
        processes[i].switches = process_switches(processes[i].pid);
    sleep_seconds(seconds);
    for (size_t i = 0; i < count; i++) {
        unsigned long now = process_switches(processes[i].pid);
        /* A compile child ends by its own idle rule; what is gone has no count left. */
        bool has_ended = now < processes[i].switches;
        unsigned long switches = has_ended ? 0 : now - processes[i].switches;
        if (has_ended)
            printf("# %s %d ended meanwhile\n", processes[i].role, (int)processes[i].pid);
        else
            printf("# %s %d: %lu context switches in %.0f s\n", processes[i].role,
                   (int)processes[i].pid, switches, seconds);
        all += switches;
    }
    return all;
}

static int ask_once(gemmd *connection)
{
    static uint16_t a[64 * 64], b[64 * 64], d[64 * 64];
    gemmd_product product = bench_product(64);
    bench_fill(DTYPE_BF16, a, ARRAY_SIZE(a), 1);
    bench_fill(DTYPE_BF16, b, ARRAY_SIZE(b), 2);
    product.a.data = a;
    product.b.data = b;
    product.d.data = d;
    if (gemmd_gemm(connection, &product, NULL))
        return bench_client_failed(connection, "the product");
    return 0;
}

/* Device memory before and after more clients came, each with a product: -1 when nobody knows. */
static int64_t memory_of_clients(const char *socket, const char *uuid)
{
    gemmd *connections[CLIENTS] = {0};
    uint64_t before = power_memory_used(uuid), after;
    bool has_failed = uuid[0] == '\0' || before == 0;
    for (size_t i = 0; i < CLIENTS && !has_failed; i++)
        has_failed = gemmd_connect(socket, &connections[i], NULL) || ask_once(connections[i]);
    after = power_memory_used(uuid);
    for (size_t i = 0; i < CLIENTS; i++)
        gemmd_close(connections[i]);
    return has_failed ? -1 : (int64_t)(after - before) / CLIENTS;
}

int bench_idle(int argc, char **argv)
{
    struct process processes[PROCESSES_MAX];
    char uuid[96];
    gemmd *connection;
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    const char *socket = bench_option(argc, argv, "--socket", NULL);
    double seconds = bench_option_number(argc, argv, "--seconds", 10);
    int r = ask_connect(socket, &connection);
    if (r)
        return r;
    r = ask_once(connection);
    ask_print_facts(connection);
    ask_text(connection, "device", "uuid", uuid);
    pid_t front = (pid_t)ask_number(connection, NULL, "pid");
    pid_t worker = (pid_t)ask_number(connection, "worker", "pid");
    int64_t client_bytes = memory_of_clients(socket, uuid);
    gemmd_close(connection);
    if (r || front <= 0)
        return 1;

    await_parked(front, worker, bench_option_number(argc, argv, "--settle", SETTLE_SECONDS));
    size_t count = processes_of(front, worker, processes);
    unsigned long switches = watch(processes, count, seconds);
    printf("measurement,seconds,processes,switches,front_rss_mib,clients,device_mib_per_client\n");
    printf("idle,%.1f,%zu,%lu,%.1f,%d,", seconds, count, switches,
           (double)process_resident_kib(front) / 1024, CLIENTS);
    if (client_bytes < 0)
        printf("\n# no device memory to look at, or no NVML\n");
    else
        printf("%.3f\n", (double)client_bytes / (1 << 20));
    return 0;
}
