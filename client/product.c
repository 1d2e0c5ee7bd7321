/*
 * Products: from the caller's description to a request, and from the answer to the caller's memory.
 *
 * Operands in buffers pass through as they are. Plain ones travel together: in the message when
 * inputs and result are small, else in one staging block. The rows on the way may lie closer than
 * the caller's (matrix_for_wire), so leading dimensions and strides of the request are the wire's.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_internal.h"

#define DEADLINE_SECONDS_MAX 1e9  /* a generation: its microseconds are counted exactly */
#define STAGING_ALIGNMENT    256u /* of each operand: what every load of every kernel asks for */

/* --- translation ----------------------------------------------------------------------------- */

static const gemmd_operand *operand_of(const gemmd_product *product, int role)
{
    const gemmd_operand *const operands[OPERAND_COUNT] = {
        [OPERAND_A] = &product->a,       [OPERAND_B] = &product->b, [OPERAND_C] = &product->c,
        [OPERAND_BIAS] = &product->bias, [OPERAND_D] = &product->d,
    };

    return operands[role];
}

/* What gemmd_product ended with before it had a bias. */
#define PRODUCT_SIZE_FIRST offsetof(gemmd_product, bias)

/* Members that the caller's header does not have are as GEMMD_PRODUCT_INIT leaves them. */
static gemmd_status
read_product(gemmd *connection, const gemmd_product *given, gemmd_product *ret_product)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    if (!given)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "product",
                               "the product is NULL");
    if (given->size != sizeof(product) && given->size != PRODUCT_SIZE_FIRST)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "size",
                               "size is %zu; this library's gemmd_product has %zu bytes "
                               "(start from GEMMD_PRODUCT_INIT)",
                               given->size, sizeof(product));
    memcpy(&product, given, given->size);
    *ret_product = product;
    return GEMMD_OK;
}

static gemmd_status check_members(gemmd *connection, const gemmd_product *product)
{
    if (product->order != GEMMD_ROW_MAJOR && product->order != GEMMD_COLUMN_MAJOR)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "order",
                               "order is %d; GEMMD_ROW_MAJOR (0) and GEMMD_COLUMN_MAJOR (1) are "
                               "allowed",
                               (int)product->order);
    if (!(product->deadline_seconds >= 0) || product->deadline_seconds > DEADLINE_SECONDS_MAX)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "deadline_seconds",
                               "deadline_seconds is %g; allowed: 0 for none, up to %g",
                               product->deadline_seconds, DEADLINE_SECONDS_MAX);
    if (product->priority < -REQUEST_PRIORITY_MAX || product->priority > REQUEST_PRIORITY_MAX)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "priority",
                               "priority is %d; allowed: -1, 0 and 1", product->priority);
    if (product->bias_kind == GEMMD_BIAS_NONE && (product->bias.buffer || product->bias.data))
        return connection_fail(
            connection, GEMMD_INVALID_ARGUMENT, "bias_kind",
            "bias_kind is GEMMD_BIAS_NONE and there is a bias; allowed with one: "
            "GEMMD_BIAS_PER_ROW, GEMMD_BIAS_PER_COLUMN");
    return GEMMD_OK;
}

/* A deadline that is there stays one, however short. */
static uint64_t deadline_us(double seconds)
{
    return seconds > 0 ? MAX((uint64_t)(seconds * 1e6), 1u) : 0;
}

static void describe(const gemmd_product *product, struct request_gemm *ret_request)
{
    struct problem *problem = &ret_request->problem;

    *ret_request = (struct request_gemm){
        .column_major = product->order == GEMMD_COLUMN_MAJOR,
        .deadline_us = deadline_us(product->deadline_seconds),
        .priority = product->priority,
    };
    *problem = (struct problem){
        .input = (enum dtype)product->input,
        .output = product->output == GEMMD_DTYPE_DEFAULT
                      ? dtype_default_output((enum dtype)product->input)
                      : (enum dtype)product->output,
        .bias = (enum bias)product->bias_kind,
        .activation = (enum activation)product->activation,
        .m = product->m,
        .n = product->n,
        .k = product->k,
        .batch = product->batch,
        .trans_a = product->trans_a,
        .trans_b = product->trans_b,
        .alpha = product->alpha,
        .beta = product->beta,
    };
    for (int i = 0; i < OPERAND_COUNT; i++) {
        problem->operand[i].ld = operand_of(product, i)->ld;
        problem->operand[i].stride = operand_of(product, i)->stride;
    }
}

void product_name_fault(struct fault *fault)
{
    if (strcmp(fault->argument, "dtype") == 0)
        (void)snprintf(fault->argument, sizeof(fault->argument), "input");
    else if (strcmp(fault->argument, "dtype_out") == 0)
        (void)snprintf(fault->argument, sizeof(fault->argument), "output");
    else if (strcmp(fault->argument, "bias") == 0)
        (void)snprintf(fault->argument, sizeof(fault->argument), "bias_kind");
    else if (strcmp(fault->argument, "deadline_us") == 0)
        (void)snprintf(fault->argument, sizeof(fault->argument), "deadline_seconds");
}

gemmd_status product_translate(gemmd *connection,
                               const gemmd_product *given,
                               gemmd_product *ret_product,
                               struct request_gemm *ret_request)
{
    struct fault fault = FAULT_NONE;
    gemmd_status status;

    static_assert(GEMMD_DEFAULT == PROBLEM_DEFAULT, "passed on as it is");
    static_assert((int)GEMMD_BIAS_PER_COLUMN == (int)BIAS_PER_COLUMN, "passed on as it is");
    static_assert((int)GEMMD_SILU == (int)ACTIVATION_SILU, "passed on as it is");
    status = read_product(connection, given, ret_product);
    if (status == GEMMD_OK)
        status = check_members(connection, ret_product);
    if (status != GEMMD_OK)
        return status;
    describe(ret_product, ret_request);
    if (problem_check(&ret_request->problem, ret_request->column_major, &fault) != STATUS_OK) {
        product_name_fault(&fault);
        return connection_fail_fault(connection, &fault);
    }
    return GEMMD_OK;
}

/* --- plain operands -------------------------------------------------------------------------- */

/* One plain operand on its way. */
struct parcel {
    struct matrix caller, wire;
    uint64_t size;   /* bytes on the way; 0: this operand does not travel */
    uint64_t offset; /* in the staging block, or in the gathered inline bytes */
};

/* A submission as it is put together. */
struct shipment {
    gemmd *connection;
    const gemmd_product *given;
    struct request_gemm *request;
    gemmd_product product;
    struct parcel parcels[OPERAND_COUNT];
    uint64_t input_size, total_size; /* of the parcels, aligned; D is last */
    struct staging_block *block;
    uint8_t *bytes; /* owned: gathered inline inputs */
};

static void shipment_deinit(struct shipment *shipment)
{
    if (shipment->block)
        staging_give(shipment->connection, shipment->block);
    free(shipment->bytes);
}

/* The memory pattern of one operand: `row_major` has the defaults filled. */
static struct matrix matrix_of(const struct problem *row_major, enum operand_role role)
{
    bool is_input = role == OPERAND_A || role == OPERAND_B;
    const struct problem_operand *operand = &row_major->operand[role];

    return (struct matrix){
        .rows = (uint64_t)problem_rows(row_major, role),
        .columns = (uint64_t)problem_columns(row_major, role),
        .items = operand->stride == 0 ? 1 : (uint64_t)row_major->batch,
        .ld = (uint64_t)operand->ld,
        .stride = (uint64_t)operand->stride,
        .element = dtype_size(is_input ? row_major->input : row_major->output),
    };
}

static gemmd_status check_buffer(const struct shipment *shipment, int role)
{
    const gemmd_buffer *buffer = operand_of(&shipment->product, role)->buffer;
    const char *name = operand_name((enum operand_role)role);

    if (buffer->connection == shipment->connection)
        return GEMMD_OK;
    return connection_fail(shipment->connection, GEMMD_INVALID_ARGUMENT, name,
                           "the buffer of %s was made on another connection; open it by name on "
                           "this one",
                           name);
}

static gemmd_status absent(const struct shipment *shipment, int role, uint64_t span)
{
    const char *name = operand_name((enum operand_role)role);

    return connection_fail(shipment->connection, GEMMD_INVALID_ARGUMENT, name,
                           "%s has neither a buffer nor memory; %llu bytes are %s", name,
                           (unsigned long long)span, role == OPERAND_D ? "written" : "read");
}

/* Columns of a column-major A are rows of the row-major problem's B, and the other way round. */
static enum operand_role role_in_memory(const struct request_gemm *request, int role)
{
    if (request->column_major && role == OPERAND_A)
        return OPERAND_B;
    if (request->column_major && role == OPERAND_B)
        return OPERAND_A;
    return (enum operand_role)role;
}

static gemmd_status
measure_operand(struct shipment *shipment, const struct problem *row_major, int role)
{
    const gemmd_operand *operand = operand_of(&shipment->product, role);
    enum operand_role in_memory = role_in_memory(shipment->request, role);
    struct problem_operand *sent = &shipment->request->problem.operand[role];
    struct parcel *parcel = &shipment->parcels[role];
    uint64_t span;

    if (operand->buffer)
        return check_buffer(shipment, role);
    span = problem_span(row_major, in_memory);
    if (span == 0)
        return GEMMD_OK;
    if (!operand->data)
        return absent(shipment, role, span);
    parcel->caller = matrix_of(row_major, in_memory);
    parcel->wire = matrix_for_wire(&parcel->caller);
    parcel->size = matrix_span(&parcel->wire);
    sent->ld = (int64_t)parcel->wire.ld;
    sent->stride = (int64_t)parcel->wire.stride;
    return GEMMD_OK;
}

static gemmd_status place_parcel(struct shipment *shipment, int role)
{
    struct parcel *parcel = &shipment->parcels[role];
    uint64_t end;

    parcel->offset = shipment->total_size;
    if (add_overflows(shipment->total_size, parcel->size, &end) ||
        add_overflows(end, STAGING_ALIGNMENT - 1, &end))
        return connection_fail(shipment->connection, GEMMD_OUT_OF_MEMORY,
                               operand_name((enum operand_role)role),
                               "the plain operands exceed what 64-bit sizes can name");
    shipment->total_size = end / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
    if (role != OPERAND_D)
        shipment->input_size = shipment->total_size;
    return GEMMD_OK;
}

static gemmd_status measure(struct shipment *shipment)
{
    struct problem row_major = shipment->request->problem;
    gemmd_status status = GEMMD_OK;

    if (shipment->request->column_major)
        problem_from_column_major(&row_major);
    problem_fill_defaults(&row_major);
    for (int i = 0; i < OPERAND_COUNT && status == GEMMD_OK; i++) {
        status = measure_operand(shipment, &row_major, i);
        if (status == GEMMD_OK)
            status = place_parcel(shipment, i);
    }
    return status;
}

/* --- packing --------------------------------------------------------------------------------- */

static bool travels_inline(const struct shipment *shipment)
{
    uint64_t limit = connection_inline_max(shipment->connection);

    return shipment->input_size <= limit && shipment->parcels[OPERAND_D].size <= limit;
}

static gemmd_status take_room(struct shipment *shipment)
{
    if (!travels_inline(shipment))
        return staging_take(shipment->connection, shipment->total_size, &shipment->block);
    if (shipment->input_size == 0)
        return GEMMD_OK;
    shipment->bytes = malloc(shipment->input_size);
    if (!shipment->bytes)
        return connection_fail(shipment->connection, GEMMD_OUT_OF_MEMORY, "",
                               "this process has no memory left");
    /* Gaps between rows travel too: they must not carry this process's old memory. */
    memset(shipment->bytes, 0, shipment->input_size);
    return GEMMD_OK;
}

static void pack_operand(struct shipment *shipment, int role)
{
    const gemmd_operand *operand = operand_of(&shipment->product, role);
    const struct parcel *parcel = &shipment->parcels[role];
    struct request_operand *sent = &shipment->request->operand[role];
    uint8_t *room = shipment->block ? shipment->block->buffer->data : shipment->bytes;

    if (operand->buffer) {
        sent->kind = OPERAND_BUFFER;
        sent->buffer = operand->buffer->id;
        sent->offset = operand->offset;
        return;
    }
    /* A plain D that travels in the answer is absent from the request. */
    if (parcel->size == 0 || (role == OPERAND_D && !shipment->block))
        return;
    if (role != OPERAND_D)
        matrix_gather(&parcel->wire, room + parcel->offset, &parcel->caller, operand->data);
    if (shipment->block) {
        sent->kind = OPERAND_BUFFER;
        sent->buffer = shipment->block->buffer->id;
        sent->offset = parcel->offset;
    } else {
        sent->kind = OPERAND_INLINE;
        sent->data = room + parcel->offset;
        sent->size = parcel->size;
    }
}

/* Hands what the job needs until it is taken over to its call. */
static void entrust(struct shipment *shipment, struct call *call)
{
    const struct parcel *d = &shipment->parcels[OPERAND_D];

    call_make_job(shipment->connection, call);
    for (int i = 0; i < OPERAND_COUNT; i++) {
        call->uses[i] = shipment->request->operand[i].kind == OPERAND_BUFFER;
        call->buffer[i] = shipment->request->operand[i].buffer;
    }
    if (d->size > 0)
        call->delivery = (struct delivery){
            .to = shipment->product.d.data,
            .caller = d->caller,
            .wire = d->wire,
            .offset = d->offset,
        };
    call->block = steal(shipment->block, NULL);
}

/* Everything but the sending. */
static gemmd_status prepare(struct shipment *shipment)
{
    gemmd_status status = product_translate(shipment->connection, shipment->given,
                                            &shipment->product, shipment->request);

    if (status == GEMMD_OK)
        status = measure(shipment);
    if (status == GEMMD_OK)
        status = take_room(shipment);
    for (int i = 0; i < OPERAND_COUNT && status == GEMMD_OK; i++)
        pack_operand(shipment, i);
    return status;
}

static gemmd_status check_submission(gemmd *connection, size_t count, const gemmd_job *ret_job)
{
    gemmd_status status = connection_check(connection);

    if (status != GEMMD_OK)
        return status;
    if (!ret_job)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "ret_job",
                               "there is no place for the job: ret_job is NULL");
    if (connection->jobs + count > connection->in_flight_max)
        return connection_fail(connection, GEMMD_LIMIT, "",
                               "%u products are under way or not yet taken, %u is the most a "
                               "connection may have: wait for one first",
                               connection->jobs, connection->in_flight_max);
    return GEMMD_OK;
}

gemmd_status gemmd_submit(gemmd *connection, const gemmd_product *product, gemmd_job *ret_job)
{
    struct request request = {.method = METHOD_GEMM};
    cleanup(shipment_deinit) struct shipment shipment = {
        .connection = connection, .given = product, .request = &request.body.gemm};
    struct call *call;
    gemmd_status status = check_submission(connection, 1, ret_job);

    if (status == GEMMD_OK)
        status = prepare(&shipment);
    if (status == GEMMD_OK)
        status = call_start(connection, &request, -1, &call);
    if (status != GEMMD_OK)
        return status;
    entrust(&shipment, call);
    *ret_job = call->id;
    return GEMMD_OK;
}

/* --- many in one message --------------------------------------------------------------------- */

struct convoy {
    struct request_product requests[REQUEST_PRODUCTS_MAX];
    struct shipment shipments[REQUEST_PRODUCTS_MAX];
    size_t count;
};

static void convoy_freep(struct convoy **convoy)
{
    for (size_t i = 0; *convoy && i < (*convoy)->count; i++)
        shipment_deinit(&(*convoy)->shipments[i]);
    free(*convoy);
}

static gemmd_status
load(gemmd *connection, const gemmd_product *products, size_t count, struct convoy *convoy)
{
    gemmd_status status = GEMMD_OK;

    /* The caller's array has elements of the caller's size. */
    for (; convoy->count < count && status == GEMMD_OK; convoy->count++) {
        struct shipment *shipment = &convoy->shipments[convoy->count];
        const char *given = (const char *)products + convoy->count * products->size;

        *shipment = (struct shipment){
            .connection = connection,
            .given = (const gemmd_product *)(const void *)given,
            .request = &convoy->requests[convoy->count].gemm,
        };
        status = prepare(shipment);
    }
    return status;
}

gemmd_status gemmd_submit_many(gemmd *connection,
                               const gemmd_product *products,
                               size_t count,
                               gemmd_job *ret_jobs)
{
    cleanup(convoy_freep) struct convoy *convoy = NULL;
    struct request request = {.method = METHOD_GEMM_MANY};
    struct call *calls[REQUEST_PRODUCTS_MAX];
    gemmd_status status = check_submission(connection, count, ret_jobs);

    static_assert(GEMMD_SUBMIT_MANY_MAX == REQUEST_PRODUCTS_MAX, "as the daemon takes them");
    if (status != GEMMD_OK || count == 0)
        return status;
    if (!products || count > REQUEST_PRODUCTS_MAX)
        return connection_fail(connection, GEMMD_INVALID_ARGUMENT, "count",
                               "%zu products at %p; allowed are up to %d", count,
                               (const void *)products, REQUEST_PRODUCTS_MAX);
    convoy = calloc(1, sizeof(*convoy));
    if (!convoy)
        return connection_fail(connection, GEMMD_OUT_OF_MEMORY, "",
                               "this process has no memory left");
    status = load(connection, products, count, convoy);
    if (status != GEMMD_OK)
        return status;
    request.body.many = (struct request_many){.products = convoy->requests, .count = count};
    status = call_start_many(connection, &request, calls);
    if (status != GEMMD_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        entrust(&convoy->shipments[i], calls[i]);
        ret_jobs[i] = calls[i]->id;
    }
    return GEMMD_OK;
}
