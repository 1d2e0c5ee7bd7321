/*
 * A product that a configuration computes: its operands, in memory of their own.
 */
#pragma once

#include "../../daemon/link/link_job.h"
#include "emulate_matrix.h"
#include "emulate_shapes.h"
#include "emulate_workspace.h"

struct run {
    const struct config *config;
    const struct shape *shape;
    struct problem problem;
    struct matrix operand[OPERAND_COUNT];
    struct workspaces workspaces;
    struct matrix before; /* D's bytes before the run: what C was when it is D, and what stays */
};

static void operand_init(struct run *run, enum operand_role role)
{
    const struct shape *shape = run->shape;
    struct problem *problem = &run->problem;
    struct matrix *matrix = &run->operand[role];
    bool is_input = role == OPERAND_A || role == OPERAND_B;
    bool is_shared = (role == OPERAND_A && shape->one_a) || (role == OPERAND_B && shape->one_b) ||
                     (role == OPERAND_BIAS && shape->one_bias);
    bool is_on_16 = (is_aligned(run->config) && role != OPERAND_BIAS) ||
                    (role == OPERAND_D && shape->is_d_aligned);
    size_t size;

    matrix->dtype = is_input ? problem->input : problem->output;
    matrix->rows = problem_rows(problem, role);
    matrix->cols = problem_columns(problem, role);
    matrix->ld = padded(run->config, matrix->cols, matrix->dtype, shape->pad);
    matrix->stride = is_shared ? 0 : matrix->ld * (matrix->rows + 1);
    matrix->batch = is_shared ? 1 : problem->batch;
    problem->operand[role] = (struct problem_operand){matrix->ld, matrix->stride};
    if (role != OPERAND_D && !problem_reads(problem, role))
        return;
    size = dtype_size(matrix->dtype);
    /* A bias may start at any element whatever the copies of the others ask for. */
    matrix_allocate(matrix, is_on_16 ? 16 : size);
    if (role != OPERAND_D)
        matrix_fill(matrix);
}

static void specials_add(struct run *run)
{
    struct matrix *a = &run->operand[OPERAND_A], *b = &run->operand[OPERAND_B];

    if (!run->shape->specials || run->problem.input == DTYPE_INT8)
        return;
    dtype_store(a->dtype, a->data, at(a, 0, 1, 2), NAN);
    dtype_store(a->dtype, a->data, at(a, 0, a->rows - 1, a->cols - 1), INFINITY);
    dtype_store(b->dtype, b->data, at(b, 0, b->rows - 1, 0), -INFINITY);
}

/* Two large products that cancel: what is added between them loses its last bits, so that the order
 * of a sum shows, also in elements of 16 bits. */
static void order_show(struct run *run)
{
    const struct problem *p = &run->problem;
    const struct matrix *a = &run->operand[OPERAND_A], *b = &run->operand[OPERAND_B];

    if (!run->shape->blocks || p->input == DTYPE_INT8)
        return;
    for (int64_t i = 0; i < p->m; i++) {
        matrix_set(a, p->trans_a, i, 1, 0x1p15);
        matrix_set(a, p->trans_a, i, p->k - 1, -0x1p15);
    }
    for (int64_t j = 0; j < p->n; j++) {
        matrix_set(b, p->trans_b, 1, j, 1);
        matrix_set(b, p->trans_b, p->k - 1, j, 1);
    }
}

/* What shapes count in: tiles, or what a CTA may have at once of tiles that are elements. */
static int64_t unit_of(uint32_t tile, uint32_t cluster)
{
    return tile > 1 ? (int64_t)tile * cluster : 16;
}

static uint64_t units_of(const struct problem *problem, const struct config *config)
{
    int64_t unit_m = unit_of(config->tile_m, config->cluster_m);
    int64_t unit_n = unit_of(config->tile_n, config->cluster_n);
    int64_t item = (problem->m + unit_m - 1) / unit_m * ((problem->n + unit_n - 1) / unit_n);

    return (uint64_t)(item * problem->batch);
}

/* Kernels with tensor copies have no bias and no activation; those that are not split have no C,
 * and whole chunks of D's rows. Of a shape they compute the rest: left out, it would be one that
 * looks tried and is not. */
static void problem_suit(struct problem *problem, const struct config *config)
{
    int64_t chunk = 16 / (int64_t)dtype_size(problem->output);

    if (config->copy != CONFIG_COPY_TMA)
        return;
    problem->bias = BIAS_NONE;
    problem->activation = ACTIVATION_NONE;
    if (config_is_split(config))
        return;
    problem->beta = 0;
    problem->n = (problem->n + chunk - 1) / chunk * chunk;
}

static void run_init(struct run *run, const struct config *config, const struct shape *shape)
{
    *run = (struct run){.config = config, .shape = shape};
    run->problem = (struct problem){
        .input = config->input,
        .output = config->output,
        .m = shape->tiles_m * unit_of(config->tile_m, config->cluster_m) + shape->rest_m,
        .n = shape->tiles_n * unit_of(config->tile_n, config->cluster_n) + shape->rest_n,
        .k = shape->tiles_k * (int64_t)config->tile_k + shape->rest_k,
        .batch = shape->batch,
        .trans_a = config->trans_a,
        .trans_b = config->trans_b,
        .alpha = isinf(shape->alpha) && config->input == DTYPE_INT8 ? 1 : shape->alpha,
        .beta = shape->beta,
        .bias = shape->bias,
        .activation = activation_is_valid(shape->activation, config->output) ? shape->activation
                                                                             : ACTIVATION_RELU,
    };
    problem_suit(&run->problem, config);
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        operand_init(run, role);
    specials_add(run);
    order_show(run);
    workspaces_init(&run->workspaces, config, units_of(&run->problem, config), shape->splits);
    if (shape->in_place && problem_reads(&run->problem, OPERAND_C)) {
        memcpy(run->operand[OPERAND_D].data, run->operand[OPERAND_C].data,
               run->operand[OPERAND_D].bytes);
        matrix_free(&run->operand[OPERAND_C]);
        run->operand[OPERAND_C] = run->operand[OPERAND_D];
        run->operand[OPERAND_C].map = NULL;
    }
    run->before = run->operand[OPERAND_D];
    run->before.data = malloc(run->before.bytes);
    memcpy(run->before.data, run->operand[OPERAND_D].data, run->before.bytes);
}

static void run_deinit(struct run *run)
{
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        matrix_free(&run->operand[role]);
    workspaces_deinit(&run->workspaces);
    free(run->before.data);
}

/* Rows of B and D that are longer than 2^31 bytes: their first tile alone. */
#define FAR_COLUMNS ((INT64_C(1) << 30) + 64)

static void far_init(struct run *run)
{
    const struct config *config = run->config;
    int64_t unit = unit_of(config->tile_n, config->cluster_n);

    run->problem = (struct problem){.input = config->input,
                                    .output = config->output,
                                    .m = 1,
                                    .n = FAR_COLUMNS,
                                    .k = 2,
                                    .batch = 1,
                                    .trans_a = config->trans_a,
                                    .alpha = 1};
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++) {
        struct matrix *matrix = &run->operand[role];

        if (role != OPERAND_D && !problem_reads(&run->problem, role))
            continue;
        matrix->dtype = role == OPERAND_D ? config->output : config->input;
        matrix->rows = problem_rows(&run->problem, role);
        matrix->cols = problem_columns(&run->problem, role);
        matrix->ld = padded(config, matrix->cols, matrix->dtype, 0);
        matrix->batch = 1;
        run->problem.operand[role].ld = matrix->ld;
        matrix_reserve(matrix);
        if (role != OPERAND_D)
            matrix_fill_columns(matrix, MIN(matrix->cols, unit));
    }
    workspaces_init(&run->workspaces, config, 1, 1);
}

static struct gemmd_job run_job(const struct run *run)
{
    uint64_t address[OPERAND_COUNT];
    struct gemmd_job job;

    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        address[role] = (uintptr_t)run->operand[role].data;
    link_job_describe(&run->problem, address, &job);
    if (config_leaves_parts(run->config) ||
        (config_is_split(run->config) && run->shape->splits > 1)) {
        job.splits = run->shape->splits;
        job.workspace = workspaces_address(&run->workspaces, 0);
    }
    return job;
}
