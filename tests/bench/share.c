/*
 * N processes on one GPU: clients of the daemon, and the same processes with a context and cuBLASLt
 * of their own, time-sliced and under MPS. Every side is a crew that is ready before the first
 * round; the sides take turns, each round starts all processes of a side at once, and the first
 * round of each, the warm-up, does not count.
 */
#include <stdio.h>

#include "ask.h"
#include "crew.h"
#include "mps.h"
#include "power.h"
#include "work.h"

#include <stdlib.h>
#include <string.h>

#define START_SECONDS                                                                              \
    35.0 /* 16 contexts take 10; an MPS without a server lets them wait for ever */
#define ROUNDS_MAX 32
#define OPTIONS    "socket device shape dtype layout procs in-flight batch seconds rounds mps alone?"

enum side_kind { SIDE_OURS, SIDE_SLICED, SIDE_MPS, SIDE_COUNT };

static const char *const side_names[SIDE_COUNT] = {"share", "share-sliced", "share-mps"};

struct side {
    enum side_kind kind;
    struct crew crew;
    bool is_there;
    double p50[ROUNDS_MAX], p99[ROUNDS_MAX], rate[ROUNDS_MAX];
    double first_result, device_bytes; /* of one process: seconds; beyond its operands */
};

struct setting {
    const char *socket, *size, *dtype, *layout, *device, *batch;
    char in_flight[16], sets[16];
    struct shape shape;
    size_t procs, rounds;
    double seconds;
    char uuid[96];
    struct mps mps;
    bool owns_mps;
    struct side sides[SIDE_COUNT];
};

static int add_all(struct setting *s, struct side *side)
{
    bool is_ours = side->kind == SIDE_OURS;
    const char *argv[] = {"gemmd-bench",
                          is_ours ? "member" : "peer-member",
                          "--shape",
                          s->size,
                          "--dtype",
                          s->dtype,
                          "--layout",
                          s->layout,
                          "--in-flight",
                          s->in_flight,
                          "--sets",
                          s->sets,
                          is_ours ? "--batch" : "--device",
                          is_ours ? s->batch : s->device,
                          is_ours && s->socket ? "--socket" : NULL,
                          s->socket,
                          NULL};
    int r = 0;
    for (size_t i = 0; i < s->procs && !r; i++)
        r = crew_add(&side->crew, argv, side->kind == SIDE_MPS ? s->mps.environment : NULL);
    return r;
}

/* What a process of the peer costs before it has computed anything much. */
static void account(struct setting *s, struct side *side, uint64_t before)
{
    const struct crew_page *page = side->crew.page;
    uint64_t after = power_memory_used(s->uuid), operands = 0;
    for (size_t i = 0; i < s->procs; i++) {
        operands += page->members[i].device_bytes;
        side->first_result =
            MAX(side->first_result, page->members[i].first_result - page->members[i].spawned);
    }
    if (before > 0 && after > before + operands)
        side->device_bytes = (double)(after - before - operands) / (double)s->procs;
}

static bool open_side(struct setting *s, enum side_kind kind)
{
    struct side *side = &s->sides[kind];
    uint64_t before = kind == SIDE_OURS ? 0 : power_memory_used(s->uuid);
    side->kind = kind;
    if (crew_init(&side->crew) < 0 || add_all(s, side) < 0) {
        printf("# %s is left out: %m\n", side_names[kind]);
        return false;
    }
    side->is_there = crew_await(&side->crew, START_SECONDS);
    if (!side->is_there) {
        printf("# %s is left out: %s\n", side_names[kind], side->crew.page->why);
        crew_deinit(&side->crew);
    } else if (kind != SIDE_OURS) {
        account(s, side, before);
    }
    return side->is_there;
}

static void open_peers(struct setting *s, const char *mps_directory)
{
    char why[200];
    if (!open_side(s, SIDE_SLICED))
        return;
    if (strcmp(mps_directory, "none") == 0 || s->procs == 1)
        return;
    if (mps_directory[0])
        mps_join(&s->mps, mps_directory);
    else
        s->owns_mps = mps_start(&s->mps, why);
    if (mps_directory[0] || s->owns_mps)
        (void)open_side(s, SIDE_MPS);
    else
        printf("# share-mps is left out: %s\n", why);
}

static bool run_round(struct setting *s, struct side *side, size_t round)
{
    const struct crew_page *page = side->crew.page;
    double p50 = 0, p99 = 0, rate = 0;
    if (!crew_round(&side->crew, s->seconds, UINT64_MAX)) {
        printf("# %s failed: %s\n", side_names[side->kind], page->why);
        return false;
    }
    for (size_t i = 0; i < s->procs; i++) {
        p50 = MAX(p50, page->members[i].report.p50);
        p99 = MAX(p99, page->members[i].report.p99);
        rate += page->members[i].report.rate;
    }
    if (round > 0) {
        side->p50[round - 1] = p50;
        side->p99[round - 1] = p99;
        side->rate[round - 1] = rate;
    }
    return true;
}

static void print(const struct setting *s, struct side *side)
{
    struct samples p50 = {side->p50, s->rounds}, p99 = {side->p99, s->rounds},
                   rate = {side->rate, s->rounds};
    double median = samples_median(&rate);
    printf("%s,%zu,%s,%s,%s,%s,%zu,%.1f,%.1f,%.0f,%.2f,%.1f,%.0f\n", side_names[side->kind],
           s->procs, s->size, s->dtype, s->layout, s->in_flight, s->rounds,
           samples_median(&p50) * 1e6, samples_median(&p99) * 1e6, median,
           median * shape_flop(&s->shape) * 1e-12, side->first_result * 1e3,
           side->device_bytes / (1 << 20));
}

static void print_power(const struct setting *s, const char *side)
{
    struct power power = power_now(s->uuid);
    if (power.clock_mhz > 0)
        printf("# %s: %u MHz, %u W just after its last round\n", side, power.clock_mhz,
               power.watts);
}

static int measure(struct setting *s)
{
    int failed = 0;
    for (size_t round = 0; round <= s->rounds; round++) {
        for (int i = 0; i < SIDE_COUNT; i++) {
            struct side *side = &s->sides[i];
            if (!side->is_there)
                continue;
            side->is_there = run_round(s, side, round);
            failed |= !side->is_there;
            if (side->is_there && round == s->rounds)
                print_power(s, side_names[i]);
        }
    }
    printf("measurement,processes,shape,dtype,layout,in_flight,rounds,worst_p50_us,worst_p99_us,"
           "products_per_s,tflops,first_result_ms,device_mib_per_process\n");
    for (int i = 0; i < SIDE_COUNT; i++) {
        if (s->sides[i].is_there)
            print(s, &s->sides[i]);
    }
    return failed;
}

static int facts(struct setting *s)
{
    gemmd *connection;
    int r = ask_connect(s->socket, &connection);
    if (r)
        return r;
    ask_print_facts(connection);
    ask_text(connection, "device", "uuid", s->uuid);
    gemmd_close(connection);
    return 0;
}

/* Without a daemon the first GPU is meant. */
static int peer_facts(void)
{
    char name[96], driver[96];
    power_describe(name, driver);
    bench_print_facts(name, driver);
    return 0;
}

static int run(int argc, char **argv, bool has_ours)
{
    static struct setting setting;
    struct setting *s = &setting;
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    *s = (struct setting){
        .socket = bench_option(argc, argv, "--socket", NULL),
        .size = bench_option(argc, argv, "--shape", "4096x4096x4096"),
        .dtype = bench_option(argc, argv, "--dtype", "bf16"),
        .layout = bench_option(argc, argv, "--layout", "nt"),
        .device = bench_option(argc, argv, "--device", "cuda"),
        .batch = bench_option(argc, argv, "--batch", "1"),
        .shape = shape_from_options(argc, argv, "4096x4096x4096"),
        .procs = (size_t)bench_option_number(argc, argv, "--procs", 16),
        .rounds = (size_t)bench_option_number(argc, argv, "--rounds", 3),
        .seconds = bench_option_number(argc, argv, "--seconds", 2),
    };
    for (int i = 0; i < SIDE_COUNT; i++)
        s->sides[i].crew = CREW_NULL;
    size_t in_flight = (size_t)bench_option_number(argc, argv, "--in-flight", 1);
    if (s->procs < 1 || s->procs > CREW_MAX || s->rounds < 1 || s->rounds > ROUNDS_MAX ||
        in_flight < 1 || in_flight > FLOW_IN_FLIGHT_MAX || s->seconds <= 0) {
        fprintf(stderr,
                "gemmd-bench: allowed are --procs 1 to %d, --rounds 1 to %d, --in-flight 1 to "
                "%d, --seconds over 0\n",
                CREW_MAX, ROUNDS_MAX, FLOW_IN_FLIGHT_MAX);
        return EXIT_USAGE;
    }
    (void)snprintf(s->in_flight, sizeof(s->in_flight), "%zu", in_flight);
    (void)snprintf(s->sets, sizeof(s->sets), "%zu", work_sets(&s->shape, s->procs));

    int r = has_ours ? facts(s) : peer_facts();
    if (!r && has_ours)
        r = !open_side(s, SIDE_OURS);
    if (!r && !bench_flag(argc, argv, "--alone"))
        open_peers(s, bench_option(argc, argv, "--mps", ""));
    r = r ? r : measure(s);
    for (int i = 0; i < SIDE_COUNT; i++)
        crew_deinit(&s->sides[i].crew);
    if (s->owns_mps)
        mps_stop(&s->mps);
    return r;
}

int bench_share(int argc, char **argv)
{
    return run(argc, argv, true);
}

int bench_share_peer(int argc, char **argv)
{
    return run(argc, argv, false);
}
