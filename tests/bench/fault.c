/*
 * The worker dies under load: clients with one product under way each, every result looked at, and
 * the longest time a client waited from one good answer to the next. Killed (SIGKILL), and hung
 * (SIGSTOP), which the daemon must notice by itself.
 *
 * Each product has one of several B, so that a result left over from an earlier one is wrong.
 */
#include <stdio.h>

#include "../../client/reference.h"
#include "ask.h"
#include "shapes.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define CLIENTS      4
#define VARIANTS     8
#define REPEATS_MAX  64
#define LOAD_SECONDS 0.3 /* before each fault */
#define GOOD_AFTER   20  /* answers of each client before it counts as recovered */
#define OPTIONS      "socket size repeat hung timeout"

struct client {
    pthread_t thread;
    gemmd *connection;
    gemmd_buffer *a, *b, *d;
    uint16_t *host_a, *host_b, *expected, *result; /* bf16; b and expected: VARIANTS of them */
    size_t count;                                  /* elements of a matrix */
    int64_t size;
    const atomic_bool *is_over;
    _Atomic double last_good, gap; /* seconds; the longest since the main thread reset it */
    atomic_uint good, errors, wrong, other_bits, is_broken;
};

struct figures {
    double gaps[REPEATS_MAX];
    double errors[REPEATS_MAX]; /* most of one client */
    size_t count;
};

/* --- a client -------------------------------------------------------------------------------- */

static gemmd_product product_of(const struct client *c, size_t variant)
{
    gemmd_product product = bench_product(c->size);
    product.a.buffer = c->a;
    product.b.buffer = c->b;
    product.b.offset = variant * c->count * 2;
    product.d.buffer = c->d;
    return product;
}

/* Two right results of one product differ by the rounding of the output at most. */
static bool is_close(const uint16_t *got, const uint16_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = float_from_bf16(got[i]), y = float_from_bf16(expected[i]);
        if (!(fabsf(x - y) <= fabsf(y) * 0x1p-7f + 1e-3f))
            return false;
    }
    return true;
}

static void judge(struct client *c, size_t variant)
{
    const uint16_t *expected = c->expected + variant * c->count;
    if (memcmp(c->result, expected, c->count * 2) == 0)
        return;
    if (is_close(c->result, expected, c->count))
        atomic_fetch_add(&c->other_bits, 1);
    else
        atomic_fetch_add(&c->wrong, 1);
}

static void *client_main(void *argument)
{
    struct client *c = argument;
    for (size_t i = 0; !atomic_load(c->is_over); i++) {
        size_t variant = i % VARIANTS;
        gemmd_product product = product_of(c, variant);
        gemmd_status status = gemmd_gemm(c->connection, &product, NULL);
        if (status == GEMMD_OK)
            status = gemmd_buffer_read(c->d, 0, c->result, c->count * 2);
        if (status == GEMMD_DISCONNECTED) {
            atomic_store(&c->is_broken, 1);
            return NULL;
        }
        if (status != GEMMD_OK) {
            atomic_fetch_add(&c->errors, 1);
            continue;
        }
        double now = bench_now(), waited = now - atomic_load(&c->last_good);
        if (waited > atomic_load(&c->gap))
            atomic_store(&c->gap, waited);
        atomic_store(&c->last_good, now);
        judge(c, variant);
        atomic_fetch_add(&c->good, 1);
    }
    return NULL;
}

/* What each variant must give, held against the reference once. */
static int expect(struct client *c, size_t variant)
{
    struct shape shape = {
        .dtype = DTYPE_BF16, .trans_b = true, .m = c->size, .n = c->size, .k = c->size};
    struct problem problem = shape_problem(&shape);
    uint16_t *expected = c->expected + variant * c->count;
    struct reference_operands operands = {
        .a = c->host_a, .b = c->host_b + variant * c->count, .d = expected};
    struct reference_report report;
    gemmd_product product = product_of(c, variant);
    if (gemmd_gemm(c->connection, &product, NULL) ||
        gemmd_buffer_read(c->d, 0, expected, c->count * 2))
        return bench_client_failed(c->connection, "the product");
    if (reference_check(&problem, &operands, (uint64_t)1 << 24, &report) < 0)
        return 1;
    if (!reference_is_right(&report))
        fprintf(stderr, "gemmd-bench: a wrong product before any fault\n");
    return !reference_is_right(&report);
}

static int open_client(struct client *c, const char *socket, int64_t size, size_t number)
{
    c->size = size;
    c->count = (size_t)(size * size);
    c->host_a = malloc(c->count * 2);
    c->host_b = malloc(c->count * 2 * VARIANTS);
    c->expected = malloc(c->count * 2 * VARIANTS);
    c->result = malloc(c->count * 2);
    if (!c->host_a || !c->host_b || !c->expected || !c->result)
        return 1;
    if (ask_connect(socket, &c->connection))
        return 1;
    bench_fill(DTYPE_BF16, c->host_a, c->count, 2 * number + 1);
    bench_fill(DTYPE_BF16, c->host_b, c->count * VARIANTS, 2 * number + 2);
    if (gemmd_buffer_create(c->connection, GEMMD_DEVICE, c->count * 2, NULL, 0, &c->a) ||
        gemmd_buffer_create(c->connection, GEMMD_DEVICE, c->count * 2 * VARIANTS, NULL, 0, &c->b) ||
        gemmd_buffer_create(c->connection, GEMMD_DEVICE, c->count * 2, NULL, 0, &c->d) ||
        gemmd_buffer_write(c->a, 0, c->host_a, c->count * 2) ||
        gemmd_buffer_write(c->b, 0, c->host_b, c->count * 2 * VARIANTS))
        return bench_client_failed(c->connection, "making operands");
    int r = 0;
    for (size_t i = 0; i < VARIANTS && !r; i++)
        r = expect(c, i);
    return r;
}

static void close_client(struct client *c)
{
    gemmd_close(c->connection);
    free(c->host_a);
    free(c->host_b);
    free(c->expected);
    free(c->result);
}

/* --- a fault --------------------------------------------------------------------------------- */

static void begin(struct client clients[CLIENTS])
{
    for (int i = 0; i < CLIENTS; i++) {
        atomic_store(&clients[i].gap, 0);
        atomic_store(&clients[i].errors, 0);
    }
}

static bool have_recovered(struct client clients[CLIENTS], double timeout)
{
    unsigned before[CLIENTS];
    double end = bench_now() + timeout;
    for (int i = 0; i < CLIENTS; i++)
        before[i] = atomic_load(&clients[i].good);
    while (bench_now() < end) {
        bool is_done = true;
        for (int i = 0; i < CLIENTS; i++) {
            if (atomic_load(&clients[i].is_broken))
                return false;
            is_done = is_done && atomic_load(&clients[i].good) >= before[i] + GOOD_AFTER;
        }
        if (is_done)
            return true;
        (void)usleep(2000);
    }
    return false;
}

/* Whether the worker died of it; an answer that was under way does not count as recovery. */
static bool await_death(gemmd *connection, double deaths, double timeout)
{
    double end = bench_now() + timeout;
    while (bench_now() < end) {
        if (ask_number(connection, NULL, "deaths") > deaths)
            return true;
        (void)usleep(2000);
    }
    return false;
}

static int strike(gemmd *connection,
                  struct client clients[CLIENTS],
                  int signal_number,
                  double timeout,
                  struct figures *figures)
{
    (void)usleep((useconds_t)(LOAD_SECONDS * 1e6));
    pid_t worker = (pid_t)ask_number(connection, "worker", "pid");
    double deaths = ask_number(connection, NULL, "deaths");
    if (worker <= 0)
        return 1;
    begin(clients);
    if (kill(worker, signal_number) < 0) {
        fprintf(stderr, "gemmd-bench: the worker cannot be sent a signal: %m\n");
        return 1;
    }
    if (!await_death(connection, deaths, timeout)) {
        printf("# signal %d: the daemon did not notice within %.0f s\n", signal_number, timeout);
        (void)kill(worker, SIGCONT);
        (void)have_recovered(clients, timeout);
        return 1;
    }
    if (!have_recovered(clients, timeout)) {
        printf("# signal %d: no answers again within %.0f s\n", signal_number, timeout);
        return 1;
    }
    for (int i = 0; i < CLIENTS; i++) {
        double *gap = &figures->gaps[figures->count], *errors = &figures->errors[figures->count];
        *gap = MAX(*gap, atomic_load(&clients[i].gap));
        *errors = MAX(*errors, (double)atomic_load(&clients[i].errors));
    }
    figures->count++;
    return 0;
}

static void print(const char *name, struct figures *figures, unsigned wrong, unsigned other_bits)
{
    struct samples gaps = {figures->gaps, figures->count},
                   errors = {figures->errors, figures->count};
    printf("%s,%zu,%d,%.4f,%.4f,%.0f,%u,%u\n", name, figures->count, CLIENTS, samples_median(&gaps),
           samples_percentile(&gaps, 100), samples_percentile(&errors, 100), wrong, other_bits);
}

static int measure(gemmd *connection, struct client clients[CLIENTS], int argc, char **argv)
{
    static struct figures killed, hung;
    double timeout = bench_option_number(argc, argv, "--timeout", 20);
    size_t repeats = MIN((size_t)bench_option_number(argc, argv, "--repeat", 5), REPEATS_MAX);
    size_t hangs = MIN((size_t)bench_option_number(argc, argv, "--hung", 1), REPEATS_MAX);
    char kind[96];
    unsigned wrong = 0, other_bits = 0, broken = 0;
    int r = 0;
    for (size_t i = 0; i < repeats && !r; i++)
        r = strike(connection, clients, SIGKILL, timeout, &killed);
    ask_text(connection, "device", "kind", kind);
    if (hangs > 0 && strcmp(kind, "cuda") != 0) {
        printf("# a CPU worker computes in its loop, so nobody watches its heart: none is hung\n");
        hangs = 0;
    }
    for (size_t i = 0; i < hangs && !r; i++) {
        if (strike(connection, clients, SIGSTOP, timeout, &hung))
            break; /* not noticed: a figure that is missing, not a failure of the others */
    }
    for (int i = 0; i < CLIENTS; i++) {
        wrong += atomic_load(&clients[i].wrong);
        other_bits += atomic_load(&clients[i].other_bits);
        broken += atomic_load(&clients[i].is_broken);
    }
    printf("measurement,faults,clients,median_s,worst_s,errors_per_client,wrong,other_bits\n");
    if (killed.count > 0)
        print("fault-killed", &killed, wrong, other_bits);
    if (hung.count > 0)
        print("fault-hung", &hung, wrong, other_bits);
    if (broken > 0)
        printf("# %u clients lost their connection\n", broken);
    return r || wrong > 0 || broken > 0;
}

int bench_fault(int argc, char **argv)
{
    static struct client clients[CLIENTS];
    atomic_bool is_over = false;
    gemmd *connection;
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    const char *socket = bench_option(argc, argv, "--socket", NULL);
    int64_t size = MAX((int64_t)bench_option_number(argc, argv, "--size", 256), 1);
    int r = ask_connect(socket, &connection);
    if (r)
        return r;
    ask_print_facts(connection);
    size_t started = 0;
    for (size_t i = 0; i < CLIENTS && !r; i++) {
        clients[i].is_over = &is_over;
        r = open_client(&clients[i], socket, size, i);
    }
    while (started < CLIENTS && !r) {
        atomic_store(&clients[started].last_good, bench_now());
        r = pthread_create(&clients[started].thread, NULL, client_main, &clients[started]);
        started += r == 0;
    }
    r = r ? r : measure(connection, clients, argc, argv);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(clients[i].thread, NULL);
    for (size_t i = 0; i < CLIENTS; i++)
        close_client(&clients[i]);
    gemmd_close(connection);
    return r;
}
