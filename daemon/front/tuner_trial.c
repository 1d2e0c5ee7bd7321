/*
 * The jobs of a tuning run: random numbers into its memory, and the trials.
 */
#include "tuner.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "server.h"

#include <inttypes.h>
#include <string.h>

#define ALIGNMENT     256
#define SEED_BYTES    (256u << 10) /* random numbers that are made; the device copies the rest */
#define FILL_BYTES    (64u << 20)  /* of one copy on the device: 50 us */
#define TRIAL_SECONDS (0.75 * QUEUE_HORIZON_SECONDS)
#define REPEATS_MAX   64

static void job_freep(struct job **job)
{
    *job = job_free(*job);
}

/* --- memory ---------------------------------------------------------------------------------- */

static uint64_t lay_out(struct tuner_run *run)
{
    static const enum operand_role roles[] = {OPERAND_A, OPERAND_B, OPERAND_D};

    uint64_t end = 0;

    for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
        uint64_t span = problem_span(&run->problem, roles[i]);

        run->offset[roles[i]] = end;
        if (add_overflows(end, span, &end) || end > UINT64_MAX - ALIGNMENT)
            return UINT64_MAX;
        end = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return end;
}

/* As many sets as together exceed three times the L2: a model's weights are not in it either. */
int tuner_take_memory(struct server *server, struct tuner_run *run, struct fault *ret_fault)
{
    uint64_t most = run->is_idle ? TUNER_IDLE_BYTES_MAX : TUNER_BYTES_MAX;
    struct buffer_request wanted = {
        .kind = BUFFER_DEVICE, .mode = 0600, .is_writable = true, .uid = run->uid, .fd = -1};
    double seconds;
    int r;

    run->set_bytes = lay_out(run);
    if (run->set_bytes > most) {
        (void)fault_set(ret_fault, STATUS_LIMIT, "m",
                        "the operands take %" PRIu64 " bytes; at most %" PRIu64 " are tuned for",
                        run->set_bytes, most);
        return SESSION_E_FAULT;
    }
    run->sets = MIN(3 * server->device.l2_cache / run->set_bytes + 1, TUNER_SETS_MAX);
    wanted.size = MAX(run->sets * run->set_bytes, SEED_BYTES);
    seconds = MAX(run->ranking.plan[0].predicted_seconds, 1e-7);
    run->repeats = (uint32_t)MIN(MAX(TRIAL_SECONDS / seconds, 1), REPEATS_MAX);
    r = buffer_new(&server->buffers, &wanted, tuner_memory_changed, &run->memory, ret_fault);
    if (r == BUFFER_E_FAULT)
        return SESSION_E_FAULT;
    if (r < 0)
        return error_trace(r);
    run->memory->is_made = true; /* no request of a client waits for it */
    if (buffer_memory(run->memory)->state == MEMORY_MAPPED)
        tuner_memory_changed(run->memory);
    return 0;
}

/* --- jobs ------------------------------------------------------------------------------------ */

static int
make_job(struct server *server, struct tuner_run *run, struct job **ret_job, struct fault *fault)
{
    cleanup(job_freep) struct job *job = job_new();
    int r;

    if (!job)
        return error_origin(-ENOMEM);
    r = quota_charge(&server->quota, run->uid, QUOTA_JOBS, 1, &job->charge, fault);
    if (r != 0)
        return r == QUOTA_E_LIMIT ? SESSION_E_FAULT : error_trace(r);
    job->received_ns = clock_now_ns();
    job->method = METHOD_TUNE;
    job->priority = -1;
    job->ended = tuner_ended;
    job->context = &server->tuner;
    *ret_job = steal(job, NULL);
    return 0;
}

static void submit(struct server *server, struct tuner_run *run, struct job *job)
{
    run->is_in_flight = true;
    queue_submit(&server->queue, job, &server->tuner.stream);
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static void make_numbers(enum dtype dtype, void *memory, size_t size)
{
    uint64_t state = 1;
    size_t count = size / dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        double unit = (double)(draw(&state) >> 11) * 0x1p-52 - 1;

        dtype_store(dtype, memory, i, dtype == DTYPE_INT8 ? (double)(int)(unit * 127) : unit);
    }
}

/* What the device multiplies decides how much power that takes, and so its clock. */
static int stage_numbers(struct server *server, struct tuner_run *run, struct job *job)
{
    struct job_operand *from = &job->operand[OPERAND_A];
    int r = staging_take(&server->staging, SEED_BYTES, &from->staging);

    if (r < 0)
        return error_trace(r);
    from->is_used = true;
    from->span = SEED_BYTES;
    make_numbers(run->problem.input, staging_data(&from->staging), SEED_BYTES);
    return 0;
}

int tuner_fill(struct server *server, struct tuner_run *run, struct fault *ret_fault)
{
    cleanup(job_freep) struct job *job = NULL;
    uint64_t size =
        MIN(run->memory->size - run->filled, MIN(MAX(run->filled, SEED_BYTES), FILL_BYTES));
    int r = make_job(server, run, &job, ret_fault);

    if (r != 0)
        return r;
    job->kind = JOB_COPY;
    job->predicted_seconds = 2e-6 + (double)size / 1e12;
    if (run->filled == 0)
        r = stage_numbers(server, run, job);
    else
        job_use_buffer(job, OPERAND_A, buffer_ref(run->memory), 0, size);
    if (r < 0)
        return error_trace(r);
    job_use_buffer(job, OPERAND_D, buffer_ref(run->memory), run->filled, size);
    run->filled += size;
    submit(server, run, steal(job, NULL));
    return 0;
}

/* Trials take the sets in groups, one after the other: none finds what the one before it left in
 * the L2. */
static void place_operands(struct tuner_run *run, struct job *job)
{
    static const enum operand_role roles[] = {OPERAND_A, OPERAND_B, OPERAND_D};

    uint64_t group = MIN(run->repeats, run->sets);
    uint64_t trial = run->round * run->keep + run->candidate;
    uint64_t first = trial % (run->sets / group) * group * run->set_bytes;

    for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
        uint64_t span = problem_span(&run->problem, roles[i]);

        if (span > 0)
            job_use_buffer(job, roles[i], buffer_ref(run->memory), first + run->offset[roles[i]],
                           span);
    }
    if (run->repeats == 1)
        return;
    job->repeats = run->repeats;
    job->repeat_sets = (uint32_t)group;
    job->repeat_step = run->set_bytes;
}

int tuner_try(struct server *server, struct tuner_run *run, struct fault *ret_fault)
{
    const struct plan *plan = &run->ranking.plan[run->candidate];
    cleanup(job_freep) struct job *job = NULL;
    int r = make_job(server, run, &job, ret_fault);

    if (r != 0)
        return r;
    job->kind = JOB_PRODUCT;
    job->problem = run->problem;
    job->config = plan->config;
    job->splits = plan->splits;
    job->predicted_seconds = plan->predicted_seconds * run->repeats;
    place_operands(run, job);
    if (run->repeats == 1)
        job_count_tiles(job, plan->tiles, server->device.multiprocessors);
    r = kernels_want(&server->kernels, &plan->config, &job->kernel);
    if (r < 0)
        return error_trace(r);
    submit(server, run, steal(job, NULL));
    return 0;
}
