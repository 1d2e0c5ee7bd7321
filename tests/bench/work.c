#include <stdio.h>

#include "../../client/reference.h"
#include "ask.h"
#include "work.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_MULTIPLICATIONS ((uint64_t)1 << 27)
#define L2_BYTES              ((size_t)60 << 20)
#define SETS_MAX              ((size_t)256)

size_t work_sets(const struct shape *shape, size_t processes)
{
    size_t bytes[3];
    shape_bytes(shape, bytes);
    size_t one = (bytes[0] + bytes[1] + bytes[2]) * processes;
    return MIN(3 * L2_BYTES / one + 1, SETS_MAX);
}

static int fill(struct work *work, int operand)
{
    size_t bytes = work->bytes[operand];
    enum dtype dtype = work->options.shape.dtype;
    bench_fill(dtype, work->host[operand], bytes / dtype_size(dtype), (uint64_t)operand + 1);
    uint8_t *mapped = gemmd_buffer_data(work->buffers[operand]); /* host memory */
    for (size_t i = 0; i < work->places[operand]; i++) {
        if (mapped)
            memcpy(mapped + i * bytes, work->host[operand], bytes);
        else if (gemmd_buffer_write(work->buffers[operand], i * bytes, work->host[operand], bytes))
            return bench_client_failed(work->connection, "writing operands");
    }
    return 0;
}

int work_open(struct work *work, const struct work_options *options)
{
    *work = (struct work){.options = *options};
    shape_bytes(&options->shape, work->bytes);
    work->places[0] = work->places[1] = MAX(options->sets, 1u);
    work->places[2] = MAX(work->places[0], options->in_flight);
    if (ask_connect(options->socket, &work->connection))
        return 1;
    for (int i = 0; i < 3; i++) {
        work->host[i] = malloc(work->bytes[i]);
        if (!work->host[i] ||
            gemmd_buffer_create(work->connection, options->memory, work->bytes[i] * work->places[i],
                                NULL, 0, &work->buffers[i]))
            return bench_client_failed(work->connection, "creating a buffer");
    }
    return fill(work, 0) || fill(work, 1);
}

void work_close(struct work *work)
{
    gemmd_close(work->connection);
    for (int i = 0; i < 3; i++)
        free(work->host[i]);
    *work = (struct work){0};
}

gemmd_product work_product(const struct work *work, uint64_t number)
{
    const struct shape *shape = &work->options.shape;
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_operand *operands[] = {&product.a, &product.b, &product.d};
    product.input = (gemmd_dtype)shape->dtype;
    product.trans_a = shape->trans_a;
    product.trans_b = shape->trans_b;
    product.m = shape->m;
    product.n = shape->n;
    product.k = shape->k;
    for (int i = 0; i < 3; i++) {
        operands[i]->buffer = work->buffers[i];
        operands[i]->offset = number % work->places[i] * work->bytes[i];
    }
    return product;
}

int work_warm(struct work *work)
{
    gemmd_result result = {.size = sizeof(result)};
    gemmd_product product = work_product(work, 0);
    if (gemmd_gemm(work->connection, &product, &result))
        return bench_client_failed(work->connection, "the product");
    return 0;
}

int work_check(struct work *work)
{
    char text[256];
    struct problem problem = shape_problem(&work->options.shape);
    struct reference_operands operands = {
        .a = work->host[0], .b = work->host[1], .d = work->host[2]};
    struct reference_report report;
    gemmd_result result = {.size = sizeof(result)};
    gemmd_product product = work_product(work, 0);
    reference_poison(work->host[2], work->bytes[2]);
    if (gemmd_buffer_write(work->buffers[2], 0, work->host[2], work->bytes[2]) ||
        gemmd_gemm(work->connection, &product, &result) ||
        gemmd_buffer_read(work->buffers[2], 0, work->host[2], work->bytes[2]))
        return bench_client_failed(work->connection, "the product");
    if (reference_check(&problem, &operands, CHECK_MULTIPLICATIONS, &report) < 0)
        return 1;
    (void)snprintf(work->configuration, sizeof(work->configuration), "%s", result.configuration);
    if (reference_is_right(&report))
        return 0;
    reference_describe(&report, text, sizeof(text));
    fprintf(stderr, "gemmd-bench: %s: %s\n", result.configuration, text);
    return 1;
}

static int send_waiting(struct work *work)
{
    gemmd_product products[GEMMD_SUBMIT_MANY_MAX];
    gemmd_job jobs[GEMMD_SUBMIT_MANY_MAX];
    size_t count = work->waiting_count;
    for (size_t i = 0; i < count; i++)
        products[i] = work_product(work, work->next++);
    gemmd_status status = count == 1 ? gemmd_submit(work->connection, products, jobs)
                                     : gemmd_submit_many(work->connection, products, count, jobs);
    if (status)
        return bench_client_failed(work->connection, "submitting products");
    for (size_t i = 0; i < count; i++)
        work->jobs[work->waiting[i]] = jobs[i];
    work->sent += count;
    work->waiting_count = 0;
    return 0;
}

static int start(void *context, size_t slot)
{
    struct work *work = context;
    work->waiting[work->waiting_count++] = slot;
    return work->waiting_count < work->options.batch ? 0 : send_waiting(work);
}

/* Products are finished in the order of their starts: one that still waits for its message comes
 * when no more are started. */
static int finish(void *context, size_t slot, double *ret_device_seconds)
{
    struct work *work = context;
    gemmd_result result = {.size = sizeof(result)};
    if (work->finished++ == work->sent && send_waiting(work))
        return 1;
    if (gemmd_wait(work->connection, work->jobs[slot], -1, &result))
        return bench_client_failed(work->connection, "a product");
    *ret_device_seconds = result.device_seconds;
    return 0;
}

struct flow_engine work_engine(struct work *work)
{
    return (struct flow_engine){
        .context = work, .start = start, .finish = finish, .now = bench_now};
}
