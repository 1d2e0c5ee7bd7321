#include "fault_load.h"

#include "../../client/reference.h"
#include "ask.h"
#include "shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIANTS   8
#define GOOD_AFTER 20 /* answers of each client before it counts as recovered */

/* --- a client -------------------------------------------------------------------------------- */

static gemmd_product product_of(const struct load_client *c, size_t variant)
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

static void judge(struct load_client *c, size_t variant)
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
    struct load_client *c = argument;
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
static int expect(struct load_client *c, size_t variant)
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

static int open_client(struct load_client *c, const char *socket, int64_t size, size_t number)
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

static void close_client(struct load_client *c)
{
    gemmd_close(c->connection);
    free(c->host_a);
    free(c->host_b);
    free(c->expected);
    free(c->result);
}

void load_reset(struct load *load)
{
    for (int i = 0; i < LOAD_CLIENTS; i++) {
        atomic_store(&load->clients[i].gap, 0);
        atomic_store(&load->clients[i].errors, 0);
    }
}

bool load_has_recovered(struct load *load, double timeout)
{
    unsigned before[LOAD_CLIENTS];
    double end = bench_now() + timeout;
    for (int i = 0; i < LOAD_CLIENTS; i++)
        before[i] = atomic_load(&load->clients[i].good);
    while (bench_now() < end) {
        bool is_done = true;
        for (int i = 0; i < LOAD_CLIENTS; i++) {
            if (atomic_load(&load->clients[i].is_broken))
                return false;
            is_done = is_done && atomic_load(&load->clients[i].good) >= before[i] + GOOD_AFTER;
        }
        if (is_done)
            return true;
        (void)usleep(2000);
    }
    return false;
}

int load_start(struct load *load, const char *socket, int64_t size)
{
    int r = 0;
    *load = (struct load){.started = 0};
    for (size_t i = 0; i < LOAD_CLIENTS && !r; i++) {
        load->clients[i].is_over = &load->is_over;
        r = open_client(&load->clients[i], socket, size, i);
    }
    while (load->started < LOAD_CLIENTS && !r) {
        struct load_client *client = &load->clients[load->started];
        atomic_store(&client->last_good, bench_now());
        r = pthread_create(&client->thread, NULL, client_main, client);
        load->started += r == 0;
    }
    return r;
}

void load_stop(struct load *load)
{
    atomic_store(&load->is_over, true);
    for (size_t i = 0; i < load->started; i++)
        (void)pthread_join(load->clients[i].thread, NULL);
    for (size_t i = 0; i < LOAD_CLIENTS; i++)
        close_client(&load->clients[i]);
}
