#include "products.h"

#include "../../client/reference.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 64 /* bytes behind each operand that nobody may write */

struct operand {
    size_t size, offset; /* bytes; `size` includes the shift and the margin */
    uint8_t *before, *after;
    gemmd_buffer *buffer;
};

const char *place_name(enum place place)
{
    static const char *const names[] = {"plain", "host", "device"};

    return names[place];
}

/* Small integers are exact in every type; halves and quarters make rounding visible. */
static void fill_random(enum dtype dtype, void *data, size_t elements, unsigned *seed)
{
    for (size_t i = 0; i < elements; i++) {
        int draw = rand_r(seed) % 33 - 16;

        dtype_store(dtype, data, i, dtype == DTYPE_INT8 ? draw : draw / 16.0);
    }
}

static enum dtype dtype_of(const struct problem *problem, int role)
{
    return role == OPERAND_A || role == OPERAND_B ? problem->input : problem->output;
}

static struct problem problem_of(const struct product_case *p)
{
    struct problem problem = {
        .input = p->input,
        .output = p->output == DTYPE_NONE ? dtype_default_output(p->input) : p->output,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .batch = p->batch,
        .trans_a = p->trans_a,
        .trans_b = p->trans_b,
        .alpha = p->alpha,
        .beta = p->beta,
        .bias = p->bias,
        .activation = p->activation,
    };

    if (p->column_major)
        problem_from_column_major(&problem);
    for (int role = 0; role < OPERAND_COUNT; role++) {
        struct problem_operand *operand = &problem.operand[role];
        int64_t rows = problem_rows(&problem, (enum operand_role)role);

        operand->ld = MAX(1, problem_columns(&problem, (enum operand_role)role)) + p->gap;
        operand->stride = rows * operand->ld;
    }
    if (p->has_a_once)
        problem.operand[OPERAND_A].stride = 0;
    if (p->has_bias_once)
        problem.operand[OPERAND_BIAS].stride = 0;
    return problem;
}

static void make_operand(const struct product_case *p,
                         const struct problem *problem,
                         int role,
                         struct operand *ret_operand,
                         unsigned *seed)
{
    enum dtype dtype = dtype_of(problem, role);
    size_t element = dtype_size(dtype);

    ret_operand->offset = (size_t)p->shift * element;
    ret_operand->size =
        ret_operand->offset + problem_span(problem, (enum operand_role)role) + MARGIN;
    ret_operand->before = calloc(1, ret_operand->size + element);
    ret_operand->after = malloc(ret_operand->size + element);
    if (role == OPERAND_D)
        reference_poison(ret_operand->before, ret_operand->size);
    else
        fill_random(dtype, ret_operand->before, ret_operand->size / element, seed);
    (void)memcpy(ret_operand->after, ret_operand->before, ret_operand->size);
}

static void place_operand(gemmd *connection, enum place place, struct operand *operand)
{
    gemmd_memory memory = place == PLACE_HOST ? GEMMD_HOST : GEMMD_DEVICE;
    gemmd_status status;

    if (place == PLACE_PLAIN)
        return;
    status = gemmd_buffer_create(connection, memory, operand->size, NULL, 0, &operand->buffer);
    cr_assert_eq(status, GEMMD_OK, "%s", gemmd_last_error(connection)->message);
    if (place == PLACE_HOST)
        (void)memcpy(gemmd_buffer_data(operand->buffer), operand->before, operand->size);
    else
        status = gemmd_buffer_write(operand->buffer, 0, operand->before, operand->size);
    cr_assert_eq(status, GEMMD_OK, "%s", gemmd_last_error(connection)->message);
}

static void fetch_operand(enum place place, struct operand *operand)
{
    if (place == PLACE_HOST)
        (void)memcpy(operand->after, gemmd_buffer_data(operand->buffer), operand->size);
    else if (place == PLACE_DEVICE)
        cr_assert_eq(gemmd_buffer_read(operand->buffer, 0, operand->after, operand->size),
                     GEMMD_OK);
}

static gemmd_operand
describe(const struct problem *problem, int role, const struct operand *operand)
{
    gemmd_operand described = {
        .buffer = operand->buffer,
        .ld = problem->operand[role].ld,
        .stride = problem->operand[role].stride,
    };

    if (operand->buffer)
        described.offset = operand->offset;
    else
        described.data = operand->after + operand->offset;
    return described;
}

/* The reference works on the row-major problem; the request speaks the client's order. */
static gemmd_product
request_of(const struct product_case *p, const struct problem *problem, struct operand *operands)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    int a = p->column_major ? OPERAND_B : OPERAND_A, b = p->column_major ? OPERAND_A : OPERAND_B;

    product.input = (gemmd_dtype)p->input;
    product.output = (gemmd_dtype)p->output;
    product.order = p->column_major ? GEMMD_COLUMN_MAJOR : GEMMD_ROW_MAJOR;
    product.trans_a = p->trans_a;
    product.trans_b = p->trans_b;
    product.m = p->m;
    product.n = p->n;
    product.k = p->k;
    product.batch = p->batch;
    product.alpha = p->alpha;
    product.beta = p->beta;
    product.a = describe(problem, a, &operands[a]);
    product.b = describe(problem, b, &operands[b]);
    product.d = describe(problem, OPERAND_D, &operands[OPERAND_D]);
    if (p->beta != 0)
        product.c = describe(problem, OPERAND_C, &operands[OPERAND_C]);
    if (p->bias != BIAS_NONE)
        product.bias = describe(problem, OPERAND_BIAS, &operands[OPERAND_BIAS]);
    product.bias_kind = (gemmd_bias_kind)p->bias;
    product.activation = (gemmd_activation)p->activation;
    return product;
}

static void judge(const struct product_case *p, const struct problem *problem, struct operand *o)
{
    struct reference_operands operands = {
        .a = o[OPERAND_A].before + o[OPERAND_A].offset,
        .b = o[OPERAND_B].before + o[OPERAND_B].offset,
        .c = o[OPERAND_C].before + o[OPERAND_C].offset,
        .bias = o[OPERAND_BIAS].before + o[OPERAND_BIAS].offset,
        .d = o[OPERAND_D].after + o[OPERAND_D].offset,
    };
    struct reference_report report;
    char text[256], what[160];

    (void)snprintf(
        what, sizeof(what), "%s %c%c %ldx%ldx%ld batch %ld gap %ld shift %ld %s%s bias %d %s",
        dtype_name(p->input), p->trans_a ? 't' : 'n', p->trans_b ? 't' : 'n', (long)p->m,
        (long)p->n, (long)p->k, (long)p->batch, (long)p->gap, (long)p->shift, place_name(p->place),
        p->column_major ? " column-major" : "", (int)p->bias, activation_name(p->activation));
    cr_assert_eq(reference_check(problem, &operands, REFERENCE_ALL, &report), 0);
    reference_describe(&report, text, sizeof(text));
    cr_expect(reference_is_right(&report), "%s: %s", what, text);
    cr_expect_eq(reference_find_spill(problem, operands.d, o[OPERAND_D].size - o[OPERAND_D].offset),
                 -1, "%s: wrote outside of d", what);
    cr_expect_eq(memcmp(o[OPERAND_D].after, o[OPERAND_D].before, o[OPERAND_D].offset), 0,
                 "%s: wrote before d", what);
}

void product_check(gemmd *connection, const struct product_case *p)
{
    struct operand operands[OPERAND_COUNT] = {0};
    struct problem problem = problem_of(p);
    gemmd_product product;
    unsigned seed = 1;

    for (int role = 0; role < OPERAND_COUNT; role++) {
        make_operand(p, &problem, role, &operands[role], &seed);
        place_operand(connection, p->place, &operands[role]);
    }
    product = request_of(p, &problem, operands);
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK, "%s: %s",
                 gemmd_last_error(connection)->argument, gemmd_last_error(connection)->message);
    fetch_operand(p->place, &operands[OPERAND_D]);
    judge(p, &problem, operands);
    for (int role = 0; role < OPERAND_COUNT; role++) {
        gemmd_buffer_free(operands[role].buffer);
        free(operands[role].before);
        free(operands[role].after);
    }
}
