#include "job.h"
#include "../plan/plan_hopper_split.h"

#include "../link/link_job.h"

#include <math.h>
#include <stdlib.h>

_Static_assert(PLAN_SPLIT_WORKSPACE == GEMMD_SPLIT_WORKSPACE &&
                   PLAN_SPLIT_COUNTERS == GEMMD_SPLIT_COUNTERS &&
                   PLAN_SPLIT_WARPS == GEMMD_SPLIT_WARPS,
               "the plan counts with the kernels' room");

struct job *job_new(void)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    list_init(&job->stream_link);
    list_init(&job->queue_link);
    list_init(&job->deadline_link);
    return job;
}

struct job *job_free(struct job *job)
{
    if (!job)
        return NULL;
    list_unlink(&job->stream_link);
    list_unlink(&job->queue_link);
    list_unlink(&job->deadline_link);
    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        staging_give(&job->operand[i].staging);
        job->operand[i].buffer = buffer_unref(job->operand[i].buffer);
    }
    job->made = buffer_unref(job->made);
    charge_release(&job->charge_inline);
    charge_release(&job->charge);
    free(job);
    return NULL;
}

void job_use_buffer(
    struct job *job, enum operand_role role, struct buffer *buffer, uint64_t offset, uint64_t span)
{
    struct job_operand *operand = &job->operand[role];

    operand->is_used = true;
    operand->buffer = buffer;
    operand->offset = offset;
    operand->span = span;
}

struct memory *job_memory(const struct job *job, enum operand_role role)
{
    const struct job_operand *operand = &job->operand[role];

    if (!operand->is_used)
        return NULL;
    return operand->buffer ? buffer_memory(operand->buffer) : staging_memory(&operand->staging);
}

/* --- order ----------------------------------------------------------------------------------- */

static bool touches(const struct job *a, enum operand_role in_a, const struct job *b, size_t in_b)
{
    const struct job_operand *left = &a->operand[in_a];
    const struct job_operand *right = &b->operand[in_b];

    /* Staged bytes belong to one job. The bytes are compared first: of many jobs on parts of the
     * same buffers that decides nearly all. */
    return left->is_used && right->is_used && left->buffer && right->buffer &&
           left->offset < right->offset + right->span &&
           right->offset < left->offset + left->span &&
           buffer_is_same_memory(left->buffer, right->buffer);
}

bool job_reads_from(const struct job *job, const struct job *writer)
{
    for (size_t role = 0; role < OPERAND_D; role++) {
        if (touches(writer, OPERAND_D, job, role))
            return true;
    }
    return false;
}

bool job_conflicts(const struct job *a, const struct job *b)
{
    return job_reads_from(a, b) || job_reads_from(b, a) || touches(a, OPERAND_D, b, OPERAND_D);
}

/* Whether `writer` writes what `job` touches under another address: memory may have two buffers. */
static bool writes_unseen(const struct job *writer, const struct job *job)
{
    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        if (writer->operand[OPERAND_D].buffer != job->operand[i].buffer &&
            touches(writer, OPERAND_D, job, i))
            return true;
    }
    return false;
}

bool job_blocks(const struct job *earlier, const struct job *job)
{
    if (earlier->state == JOB_COMMITTED && earlier->track == job->track &&
        job->track != GEMMD_TRACK_STREAM)
        return writes_unseen(earlier, job) || writes_unseen(job, earlier);
    return job_conflicts(earlier, job);
}

enum job_verdict job_verdict(const struct job *job, struct fault *ret_fault)
{
    enum job_verdict verdict = JOB_GO;

    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        const struct memory *memory = job_memory(job, (enum operand_role)i);

        if (memory && memory->state == MEMORY_LOST) {
            (void)fault_set(ret_fault, memory->lost_status, operand_name((enum operand_role)i),
                            "the memory is gone: %s", memory->lost_reason);
            return JOB_FAIL;
        }
        if (memory && memory->state == MEMORY_WANTED)
            verdict = JOB_WAIT;
    }
    if (job->kernel && job->kernel->state == KERNEL_FAILED) {
        *ret_fault = job->kernel->fault;
        return JOB_FAIL;
    }
    if (job->kernel && job->kernel->state != KERNEL_LOADED)
        verdict = JOB_WAIT;
    return verdict;
}

/* --- the command ----------------------------------------------------------------------------- */

static uint64_t address(const struct job *job, enum operand_role role)
{
    const struct job_operand *operand = &job->operand[role];

    if (!operand->is_used)
        return 0;
    if (operand->buffer)
        return buffer_address(operand->buffer) + operand->offset;
    return staging_memory(&operand->staging)->address + operand->offset + operand->staging.offset;
}

static uint32_t host_flags(const struct job *job)
{
    static const uint32_t flags[OPERAND_COUNT] = {
        [OPERAND_A] = GEMMD_JOB_HOST_A, [OPERAND_B] = GEMMD_JOB_HOST_B,
        [OPERAND_C] = GEMMD_JOB_HOST_C, [OPERAND_BIAS] = GEMMD_JOB_HOST_BIAS,
        [OPERAND_D] = GEMMD_JOB_HOST_D,
    };
    uint32_t result = 0;

    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        const struct memory *memory = job_memory(job, (enum operand_role)i);

        if (memory && memory->kind == LINK_MEMORY_HOST)
            result |= flags[i];
    }
    return result;
}

static void product_command(const struct job *job, struct gemmd_job *ret_gemm)
{
    uint64_t at[OPERAND_COUNT];

    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        at[role] = address(job, role);
    link_job_describe(&job->problem, at, ret_gemm);
    ret_gemm->flags |= host_flags(job);
    ret_gemm->repeats = job->repeats;
    ret_gemm->repeat_sets = job->repeat_sets;
    ret_gemm->repeat_step = job->repeat_step;
    ret_gemm->splits = job->splits;
}

/* The last slice says "all the rest": should the kernel ever number more tiles than the plan
 * counted, they are computed. */
static void slice_command(const struct job *job, struct gemmd_job *gemm)
{
    uint64_t end = job_slice_end(job);

    gemm->first_tile = job->tiles_committed;
    gemm->tile_count = end < job->tiles ? end - job->tiles_committed : 0;
}

void job_command(const struct job *job, struct gemmd_command *ret_command)
{
    *ret_command = (struct gemmd_command){
        .track = job->track,
        .is_quick = job->is_quick,
        .job = job->number,
        .kernel = job->kernel ? job->kernel->id : 0,
    };
    if (job->kind == JOB_PRODUCT) {
        ret_command->kind = GEMMD_COMMAND_GEMM;
        product_command(job, &ret_command->body.gemm);
        slice_command(job, &ret_command->body.gemm);
        return;
    }
    ret_command->kind = job->kind == JOB_COPY ? GEMMD_COMMAND_COPY : GEMMD_COMMAND_ZERO;
    ret_command->body.copy = (struct gemmd_copy){
        .destination = address(job, OPERAND_D),
        .source = address(job, OPERAND_A),
        .size = job->operand[OPERAND_D].span,
        .flags = host_flags(job) & (GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_D),
    };
}

/* --- slices ---------------------------------------------------------------------------------- */

void job_count_tiles(struct job *job, uint64_t tiles, uint32_t multiprocessors)
{
    uint64_t cluster = MAX(config_cluster(&job->config), 1u);
    uint64_t tiles_of_cluster = cluster / MAX(job->config.cluster_k, 1u);
    struct config_resources resources;

    config_resources(&job->config, &resources);
    job->tiles = tiles / tiles_of_cluster + (tiles % tiles_of_cluster != 0);
    job->wave_tiles = MAX((uint64_t)multiprocessors * resources.ctas_per_multiprocessor / cluster /
                              MAX(job->splits, 1u),
                          1u);
}

void job_slice(struct job *job, double seconds)
{
    double waves;

    job->slice_tiles = 0;
    if (job->tiles == 0 || job->wave_tiles == 0 || !(job->estimate_seconds > seconds) ||
        host_flags(job) != 0 || job->is_suspect)
        return;
    if (job->estimate_seconds <= JOB_WHOLE_SLICES * seconds) {
        job->slice_tiles = job->tiles;
        return;
    }
    waves = (double)job->tiles / (double)job->wave_tiles * seconds / job->estimate_seconds;
    job->slice_tiles = MAX((uint64_t)waves, 1u) * job->wave_tiles;
}

uint64_t job_slice_end(const struct job *job)
{
    if (job->slice_tiles == 0 || job->is_suspect)
        return job->tiles;
    return MIN(job->tiles, job->tiles_committed + job->slice_tiles);
}

double job_slice_seconds(const struct job *job)
{
    if (job->tiles == 0)
        return job->estimate_seconds;
    return job->estimate_seconds * (double)(job_slice_end(job) - job->tiles_committed) /
           (double)job->tiles;
}

static void mix(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 1099511628211u; /* FNV-1a's prime, a word at a time */
    *hash ^= *hash >> 29;
}

uint64_t job_estimate_class(const struct job *job)
{
    const struct config *c = &job->config;
    const uint64_t parts[] = {
        job->kind,    c->family,         c->arch,
        c->input,     c->output,         c->trans_a,
        c->trans_b,   c->tile_m,         c->tile_n,
        c->tile_k,    c->stages,         c->cluster_m,
        c->cluster_n, c->cluster_k,      c->is_swapped,
        c->schedule,  (uint64_t)c->copy, host_flags(job),
        job->track,   job->problem.bias, job->problem.activation,
    };
    uint64_t hash = 14695981039346656037u;
    int octave;

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        mix(&hash, parts[i]);
    /* Predictions err with size, too: small jobs by what is fixed, large ones by what is not. */
    (void)frexp(job->predicted_seconds, &octave);
    mix(&hash, (uint64_t)(octave + 2000));
    return hash;
}
