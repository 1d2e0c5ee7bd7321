/*
 * One client of the soak, until it is killed or the page says that it is over: products from the
 * list in random order, several under way, each result held against the reference. It keeps nothing
 * that it could not lose; what it saw stands on the page.
 */
#include <stdio.h>

#include "../../client/reference.h"
#include "client.h"
#include "soak.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS           4
#define MULTIPLICATIONS ((uint64_t)1 << 19) /* of a check: a millisecond */
#define POOL_MORE       4096                /* elements by which two draws from a pool may differ */
#define LARGE_PERCENT   2

struct slot {
    const struct soak_case *what;
    gemmd_buffer *host, *device, *large; /* each with three regions: A, B, D (and C) */
    const uint8_t *a, *b, *c;            /* in the pools; c: D's old content */
    uint8_t *result;
    size_t region;
    gemmd_job job;
    bool is_under_way;
};

struct pool {
    uint8_t *bytes;
    size_t elements;
};

struct soak_client {
    struct soak_seat *seat;
    const struct soak_page *page;
    gemmd *connection;
    struct soak_case cases[SOAK_CASES_MAX];
    size_t count, region; /* region: bytes of the largest operand but the large case's */
    bool has_large;
    struct pool pools[DTYPE_COUNT], large; /* of random elements */
    struct slot slots[SLOTS];
    unsigned seed;
};

/* --- telling --------------------------------------------------------------------------------- */

printf_like(3,
            4) static void note(struct soak_client *c, atomic_ulong *what, const char *format, ...)
{
    va_list arguments;

    if (atomic_fetch_add(what, 1) > 0 && c->seat->why[0] != '\0')
        return;
    va_start(arguments, format);
    (void)vsnprintf(c->seat->why, SOAK_WHY, format, arguments);
    va_end(arguments);
}

static void note_error(struct soak_client *c, const struct slot *slot, gemmd_status status)
{
    const struct problem *p = &slot->what->problem;

    if (status == GEMMD_GPU_FAULT && slot->what->is_in_place) {
        atomic_fetch_add(&c->seat->in_place, 1);
        return;
    }
    note(c, &c->seat->lost, "%s: %.100s (%s %dx%dx%d place %d%s)", gemmd_strerror(status),
         gemmd_last_error(c->connection)->message, dtype_name(p->input), (int)p->m, (int)p->n,
         (int)p->k, slot->what->place, slot->what->is_in_place ? " in place" : "");
}

/* --- operands -------------------------------------------------------------------------------- */

/* Room for draws of so many bytes; before anything points into the pool. */
static void
fill_pool(const struct soak_client *c, struct pool *pool, enum dtype dtype, size_t bytes)
{
    size_t elements = bytes / dtype_size(dtype) + POOL_MORE;

    if (pool->elements >= elements)
        return;
    free(pool->bytes);
    pool->bytes = malloc(elements * dtype_size(dtype));
    pool->elements = elements;
    if (!pool->bytes)
        exit(1);
    bench_fill(dtype, pool->bytes, elements, c->seed);
}

/* Random elements, from another place each time: a result left over from before is wrong. */
static const uint8_t *draw(struct soak_client *c, const struct slot *slot, enum dtype dtype)
{
    const struct pool *pool = slot->large ? &c->large : &c->pools[dtype];

    return pool->bytes + (size_t)rand_r(&c->seed) % POOL_MORE * dtype_size(dtype);
}

static gemmd_buffer *buffer_of(const struct slot *slot)
{
    return slot->large ? slot->large : slot->what->place == SOAK_HOST ? slot->host : slot->device;
}

static gemmd_status put(const struct slot *slot, size_t region, const uint8_t *data, size_t bytes)
{
    if (slot->what->place == SOAK_HOST) {
        memcpy((uint8_t *)gemmd_buffer_data(slot->host) + region * slot->region, data, bytes);
        return GEMMD_OK;
    }
    return gemmd_buffer_write(buffer_of(slot), region * slot->region, data, bytes);
}

static gemmd_status prepare(struct soak_client *c, struct slot *slot)
{
    const struct soak_case *one = slot->what;
    size_t bytes_a = soak_operand_bytes(one, OPERAND_A),
           bytes_b = soak_operand_bytes(one, OPERAND_B),
           bytes_d = soak_operand_bytes(one, OPERAND_D);
    gemmd_status status = GEMMD_OK;

    slot->large = NULL;
    slot->region = MAX(c->region, MAX(MAX(bytes_a, bytes_b), bytes_d));
    if (slot->region > c->region) {
        fill_pool(c, &c->large, one->problem.input, slot->region);
        status = gemmd_buffer_create(c->connection, GEMMD_DEVICE, 3 * slot->region, NULL, 0,
                                     &slot->large);
    }
    slot->result = realloc(slot->result, slot->region);
    slot->a = draw(c, slot, one->problem.input);
    slot->b = draw(c, slot, one->problem.input);
    slot->c = one->is_in_place ? draw(c, slot, one->problem.output) : NULL;
    if (one->place == SOAK_PLAIN) {
        if (slot->c)
            memcpy(slot->result, slot->c, bytes_d);
        return status;
    }
    if (status == GEMMD_OK)
        status = put(slot, 0, slot->a, bytes_a);
    if (status == GEMMD_OK)
        status = put(slot, 1, slot->b, bytes_b);
    if (status == GEMMD_OK && slot->c)
        status = put(slot, 2, slot->c, bytes_d);
    return status;
}

static void fill_pools(struct soak_client *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct soak_case *one = &c->cases[i];
        size_t inputs = MAX(soak_operand_bytes(one, OPERAND_A), soak_operand_bytes(one, OPERAND_B));

        if (c->has_large && i == c->count - 1)
            break;
        c->region = MAX(c->region, MAX(inputs, soak_operand_bytes(one, OPERAND_D)));
        fill_pool(c, &c->pools[one->problem.input], one->problem.input, inputs);
        fill_pool(c, &c->pools[one->problem.output], one->problem.output,
                  soak_operand_bytes(one, OPERAND_D));
    }
    c->region = (c->region + 255) & ~(size_t)255;
}

/* --- products -------------------------------------------------------------------------------- */

static gemmd_product product_of(const struct slot *slot)
{
    const struct problem *p = &slot->what->problem;
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = (gemmd_dtype)p->input;
    product.output = (gemmd_dtype)p->output;
    product.trans_a = p->trans_a;
    product.trans_b = p->trans_b;
    product.m = p->m;
    product.n = p->n;
    product.k = p->k;
    product.batch = p->batch;
    product.beta = p->beta;
    if (slot->what->place == SOAK_PLAIN) {
        product.a.data = (void *)slot->a;
        product.b.data = (void *)slot->b;
        product.d.data = slot->result;
    } else {
        product.a.buffer = product.b.buffer = product.d.buffer = buffer_of(slot);
        product.b.offset = slot->region;
        product.d.offset = 2 * slot->region;
    }
    if (slot->what->is_in_place)
        product.c = product.d;
    return product;
}

static void submit(struct soak_client *c, struct slot *slot)
{
    bool is_large = c->has_large && rand_r(&c->seed) % 100 < LARGE_PERCENT;
    size_t last = c->has_large ? c->count - 1 : c->count;
    gemmd_product product;
    gemmd_status status;

    slot->what = &c->cases[is_large ? last : (size_t)rand_r(&c->seed) % last];
    status = prepare(c, slot);
    product = product_of(slot);
    if (status == GEMMD_OK)
        status = gemmd_submit(c->connection, &product, &slot->job);
    slot->is_under_way = status == GEMMD_OK;
    if (status != GEMMD_OK)
        note_error(c, slot, status);
}

static gemmd_status fetch(const struct slot *slot)
{
    size_t bytes = soak_operand_bytes(slot->what, OPERAND_D);

    if (slot->what->place == SOAK_HOST)
        memcpy(slot->result, (uint8_t *)gemmd_buffer_data(slot->host) + 2 * slot->region, bytes);
    if (slot->what->place != SOAK_DEVICE)
        return GEMMD_OK;
    return gemmd_buffer_read(buffer_of(slot), 2 * slot->region, slot->result, bytes);
}

static void judge(struct soak_client *c, const struct slot *slot)
{
    const struct problem *p = &slot->what->problem;
    struct reference_operands operands = {
        .a = slot->a, .b = slot->b, .c = slot->c, .d = slot->result};
    struct reference_report report;
    char text[160];

    if (reference_check(p, &operands, MULTIPLICATIONS, &report) < 0)
        exit(1);
    if (reference_is_right(&report)) {
        atomic_fetch_add(&c->seat->answers, 1);
        return;
    }
    reference_describe(&report, text, sizeof(text));
    note(c, &c->seat->wrong, "%s %dx%dx%d place %d%s: %.120s", dtype_name(p->input), (int)p->m,
         (int)p->n, (int)p->k, slot->what->place, slot->what->is_in_place ? " in place" : "", text);
}

static void finish(struct soak_client *c, struct slot *slot)
{
    gemmd_status status = GEMMD_OK;

    if (slot->is_under_way) {
        status = gemmd_wait(c->connection, slot->job, -1, NULL);
        if (status == GEMMD_OK)
            status = fetch(slot);
        if (status == GEMMD_OK)
            judge(c, slot);
        else
            note_error(c, slot, status);
    }
    gemmd_buffer_free(slot->large);
    slot->large = NULL;
    if (status == GEMMD_DISCONNECTED)
        exit(1);
}

static bool make_buffers(struct soak_client *c, struct slot *slot)
{
    return gemmd_buffer_create(c->connection, GEMMD_HOST, 3 * c->region, NULL, 0, &slot->host) ==
               GEMMD_OK &&
           gemmd_buffer_create(c->connection, GEMMD_DEVICE, 3 * c->region, NULL, 0,
                               &slot->device) == GEMMD_OK;
}

/* Every so often a slot gets new buffers. */
static void renew(struct soak_client *c, struct slot *slot)
{
    gemmd_buffer_free(slot->host);
    gemmd_buffer_free(slot->device);
    slot->host = slot->device = NULL;
    if (!make_buffers(c, slot)) {
        note(c, &c->seat->lost, "buffers: %.150s", gemmd_last_error(c->connection)->message);
        exit(1);
    }
}

static void work(struct soak_client *c)
{
    for (unsigned round = 0; !atomic_load(&c->page->is_over); round++) {
        if (round % 16 == 0)
            renew(c, &c->slots[round / 16 % SLOTS]);
        for (size_t i = 0; i < SLOTS; i++)
            submit(c, &c->slots[i]);
        for (size_t i = 0; i < SLOTS; i++)
            finish(c, &c->slots[i]);
    }
}

int bench_soak_client(int argc, char **argv)
{
    static struct soak_client c;
    size_t seat = (size_t)bench_option_number(argc, argv, "--seat", 0);
    struct soak_page *page =
        mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, SOAK_FD, 0);
    gemmd_error error;

    if (page == MAP_FAILED || seat >= SOAK_CLIENTS_MAX)
        return 1;
    c.page = page;
    c.seat = &page->seats[seat];
    c.seed = (unsigned)getpid() * 2654435761u;
    c.has_large = bench_flag(argc, argv, "--large");
    c.count = soak_cases(c.has_large, c.cases);
    fill_pools(&c);
    if (gemmd_connect(bench_option(argc, argv, "--socket", NULL), &c.connection, &error)) {
        note(&c, &c.seat->lost, "connecting: %.150s", error.message);
        return 1;
    }
    for (size_t i = 0; i < SLOTS; i++)
        renew(&c, &c.slots[i]);
    work(&c);
    gemmd_close(c.connection);
    return 0;
}
