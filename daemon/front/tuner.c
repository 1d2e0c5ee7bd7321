#include "tuner.h"

#include "../core/clock.h"
#include "../core/error.h"
#include "../core/log.h"
#include "handlers.h"
#include "server.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct server *server_of(struct tuner *tuner)
{
    return container_of(tuner, struct server, tuner);
}

static void step(uv_timer_t *timer);

/* From the loop, never from within the queue: what ends a job may stand in one of its lists. */
static void step_in(struct tuner *tuner, uint64_t milliseconds)
{
    (void)uv_timer_start(&tuner->timer, step, milliseconds, 0);
}

/* --- a run's end ----------------------------------------------------------------------------- */

static void run_free(struct tuner_run *run)
{
    list_unlink(&run->link);
    run->memory = buffer_unref(run->memory);
    charge_release(&run->charge);
    free(run);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* INFINITY: it could not be timed. */
static double median(struct tuner_candidate *candidate)
{
    if (candidate->fault.status != STATUS_OK || candidate->count == 0)
        return INFINITY;
    qsort(candidate->seconds, candidate->count, sizeof(double), compare);
    return candidate->seconds[candidate->count / 2];
}

struct verdict {
    double seconds[PLAN_RANKED_MAX];
    size_t winner;
};

static struct verdict judge(struct tuner_run *run)
{
    struct verdict verdict = {.winner = 0};

    for (size_t i = 0; i < run->keep; i++)
        verdict.seconds[i] = median(&run->candidates[i]);
    verdict.winner = tuning_winner(verdict.seconds, run->keep);
    return verdict;
}

static int keep(struct tuner *tuner, const struct tuner_run *run, const struct verdict *verdict)
{
    static const uint64_t aligned[OPERAND_COUNT];
    uint32_t before = tuner->tuning.epoch;
    struct tuning_entry entry = {
        .class = tuning_classify(&run->problem, plan_rows_are_aligned(&run->problem, aligned, 16)),
        .config = run->ranking.plan[verdict->winner].config,
        .seconds = verdict->seconds[verdict->winner],
        .first_seconds =
            isfinite(verdict->seconds[0]) ? verdict->seconds[0] : verdict->seconds[verdict->winner],
    };
    char class[TUNING_CLASS_MAX], config[CONFIG_TEXT_MAX];
    int r = tuning_set(&tuner->tuning, &entry);

    if (r < 0)
        return error_trace(r);
    plans_forget(&server_of(tuner)->plans);
    tuning_store_save(&tuner->store, &tuner->tuning);
    tuning_class_to_text(&entry.class, class);
    config_to_text(&entry.config, config);
    log_info("tuned=%s configuration=%s microseconds=%.2f first=%.2f epoch=%u%s", class, config,
             entry.seconds * 1e6, entry.first_seconds * 1e6, tuner->tuning.epoch,
             tuner->tuning.epoch == before ? "" : " changed=yes");
    return 0;
}

/* Everybody is told the same; nobody when nobody waits. */
static void end_run(struct tuner *tuner, struct tuner_run *run)
{
    struct session *session = run->session;
    struct verdict verdict = {0};
    int r = 0;

    tuner->run = NULL;
    tuner->runs++;
    if (run->fault.status == STATUS_OK) {
        verdict = judge(run);
        if (!isfinite(verdict.seconds[verdict.winner]))
            run->fault = run->candidates[0].fault;
    }
    if (run->fault.status == STATUS_OK)
        r = keep(tuner, run, &verdict);
    else
        tuner->failed++;
    if (session && r == 0 && run->fault.status == STATUS_OK)
        r = report_tuned(session, run, verdict.seconds, verdict.winner);
    else if (session && r == 0)
        session_answer_fault(session, run->id, &run->fault);
    if (session && r < 0) {
        session->in_flight--;
        session_close(session, "no memory for an answer");
    }
    run_free(run);
}

/* --- idle runs ------------------------------------------------------------------------------- */

static struct tuner_use *find_use(struct tuner *tuner, const struct tuning_class *class)
{
    struct tuner_use *least = &tuner->uses[0];

    for (size_t i = 0; i < TUNER_USES; i++) {
        struct tuner_use *use = &tuner->uses[i];

        if (use->count > 0 && tuning_class_equal(&use->class, class))
            return use;
        if (use->count < least->count)
            least = use;
    }
    *least = (struct tuner_use){.class = *class};
    return least;
}

static struct tuner_use *most_used(struct tuner *tuner)
{
    struct tuner_use *most = NULL;

    for (size_t i = 0; i < TUNER_USES; i++) {
        struct tuner_use *use = &tuner->uses[i];

        if (use->count >= TUNER_USES_LEAST && !use->is_given_up &&
            (!most || use->count > most->count))
            most = use;
    }
    return most;
}

void tuner_note_use(struct tuner *tuner, const struct problem *problem, const struct plan *plan)
{
    static const uint64_t aligned[OPERAND_COUNT];
    struct tuning_class class;
    struct tuner_use *use;

    if (tuner->mode == TUNER_OFF || plan->config.family == CONFIG_CPU)
        return;
    tuner->used_ns = clock_now_ns();
    if (plan->measured_seconds > 0)
        return;
    class = tuning_classify(problem, plan_rows_are_aligned(problem, aligned, 16));
    use = find_use(tuner, &class);
    use->problem = *problem;
    if (++use->count == TUNER_USES_LEAST && !tuner->run &&
        !uv_is_active((uv_handle_t *)&tuner->timer))
        step_in(tuner, TUNER_QUIET_MS);
}

static bool is_quiet(struct tuner *tuner)
{
    return server_of(tuner)->queue.count == 0 && server_of(tuner)->state == SERVER_RUNNING &&
           clock_now_ns() - tuner->used_ns > TUNER_QUIET_MS * 1000000ull;
}

/* Shapes, types and layout decide the class; scalars and what the epilogue reads do not. */
static struct problem trial_problem(const struct problem *problem)
{
    struct problem trial = {.input = problem->input,
                            .output = problem->output,
                            .m = problem->m,
                            .n = problem->n,
                            .k = problem->k,
                            .batch = problem->batch,
                            .trans_a = problem->trans_a,
                            .trans_b = problem->trans_b,
                            .alpha = 1};

    memcpy(trial.operand, problem->operand, sizeof(trial.operand));
    return trial;
}

static struct tuner_run *
make_run(struct tuner *tuner, const struct problem *problem, size_t wanted, struct fault *ret_fault)
{
    static const uint64_t aligned[OPERAND_COUNT];
    struct tuner_run *run = calloc(1, sizeof(*run));

    if (!run)
        return NULL;
    list_init(&run->link);
    run->uid = geteuid();
    run->problem = trial_problem(problem);
    *ret_fault = FAULT_NONE;
    if (plan_rank(&run->problem, aligned, &server_of(tuner)->device, &run->ranking, ret_fault) !=
        STATUS_OK)
        run->fault = *ret_fault;
    run->keep = MIN(wanted, run->ranking.count);
    return run;
}

static struct tuner_run *begin_idle_run(struct tuner *tuner)
{
    struct tuner_use *use = tuner->mode == TUNER_IDLE ? most_used(tuner) : NULL;
    struct fault fault;
    struct tuner_run *run;

    if (!use)
        return NULL;
    if (!is_quiet(tuner)) {
        step_in(tuner, TUNER_QUIET_MS);
        return NULL;
    }
    /* Tuned, it is not counted again; should the run fail, neither. */
    use->is_given_up = true;
    run = make_run(tuner, &use->problem, REQUEST_KEEP_DEFAULT, &fault);
    if (run)
        run->is_idle = true;
    return run;
}

/* --- steps ----------------------------------------------------------------------------------- */

void tuner_memory_changed(struct buffer *buffer)
{
    struct server *server = container_of(buffer->table, struct server, buffers);

    if (server->tuner.run && server->tuner.run->memory == buffer)
        step_in(&server->tuner, 0);
}

static bool is_lost(struct tuner_run *run)
{
    const struct memory *memory = buffer_memory(run->memory);

    if (memory->state != MEMORY_LOST)
        return false;
    (void)fault_set(&run->fault, memory->lost_status, "m", "%s", memory->lost_reason);
    return true;
}

/* The next trial: a candidate that failed is passed over. False when all are through. */
static bool next_trial(struct tuner_run *run)
{
    while (run->round <= TUNER_ROUNDS) {
        if (run->candidate == run->keep) {
            run->candidate = 0;
            run->round++;
        } else if (run->candidates[run->candidate].fault.status != STATUS_OK) {
            run->candidate++;
        } else {
            return true;
        }
    }
    return false;
}

/* Round 0 is not counted: kernels are compiled and loaded in it, and the clock rises. */
void tuner_ended(struct job *job, const struct fault *fault)
{
    struct tuner *tuner = job->context;
    struct tuner_run *run = tuner->run;
    struct tuner_candidate *candidate;

    if (!run)
        return;
    run->is_in_flight = false;
    if (job->kind == JOB_COPY && run->fault.status == STATUS_OK) {
        run->fault = *fault;
    } else if (job->kind != JOB_COPY) {
        candidate = &run->candidates[run->candidate++];
        candidate->fault = *fault;
        if (fault->status == STATUS_OK && run->round > 0)
            candidate->seconds[candidate->count++] = job->measured_seconds / run->repeats;
    }
    step_in(tuner, 0);
}

/* One job, or none when the run is over or waits for something that calls. */
static int advance(struct server *server, struct tuner_run *run, bool *ret_is_over)
{
    *ret_is_over = run->fault.status != STATUS_OK;
    if (*ret_is_over)
        return 0;
    if (!run->memory)
        return tuner_take_memory(server, run, &run->fault);
    *ret_is_over = is_lost(run);
    if (*ret_is_over || buffer_memory(run->memory)->state == MEMORY_WANTED)
        return 0;
    if (run->filled < run->memory->size)
        return tuner_fill(server, run, &run->fault);
    *ret_is_over = !next_trial(run);
    return *ret_is_over ? 0 : tuner_try(server, run, &run->fault);
}

static struct tuner_run *next_run(struct tuner *tuner)
{
    struct tuner_run *run;

    if (list_is_empty(&tuner->waiting))
        return begin_idle_run(tuner);
    run = container_of(tuner->waiting.next, struct tuner_run, link);
    list_unlink(&run->link);
    return run;
}

static void step(uv_timer_t *timer)
{
    struct tuner *tuner = container_of(timer, struct tuner, timer);
    struct server *server = server_of(tuner);
    struct tuner_run *run;
    bool is_over = false;
    int r;

    if (server->state == SERVER_CLOSING)
        return;
    if (!tuner->run && server->state == SERVER_RUNNING)
        tuner->run = next_run(tuner);
    run = tuner->run;
    if (!run || run->is_in_flight)
        return;
    if (run->is_idle && server->queue.count > 0) {
        step_in(tuner, TUNER_BUSY_MS);
        return;
    }
    r = advance(server, run, &is_over);
    if (r < 0)
        (void)fault_set(&run->fault, STATUS_OUT_OF_MEMORY, "", "the daemon has no memory to tune");
    if (r == 0 && !is_over)
        return;
    end_run(tuner, run);
    step_in(tuner, 0);
}

/* --- orders ---------------------------------------------------------------------------------- */

/* What is tuned changes what everybody gets. */
static bool is_operator(const struct session *session)
{
    return session->uid == 0 || session->uid == geteuid();
}

int tuner_order(struct session *session,
                uint32_t id,
                const struct problem *problem,
                uint32_t wanted,
                struct fault *ret_fault)
{
    struct server *server = session->server;
    struct tuner_run *run;
    int r;

    if (!is_operator(session)) {
        (void)fault_set(ret_fault, STATUS_PERMISSION, "",
                        "uid %u may not tune; allowed are root and the daemon's own uid %u",
                        (unsigned)session->uid, (unsigned)geteuid());
        return SESSION_E_FAULT;
    }
    if (server->device.is_cpu) {
        (void)fault_set(ret_fault, STATUS_UNSUPPORTED, "",
                        "there is nothing to tune: the device is the CPU, whose BLAS computes "
                        "every product");
        return SESSION_E_FAULT;
    }
    run = make_run(&server->tuner, problem, wanted, ret_fault);
    if (!run)
        return error_origin(-ENOMEM);
    r = run->fault.status != STATUS_OK
            ? SESSION_E_FAULT
            : quota_charge(&server->quota, session->uid, QUOTA_JOBS, 1, &run->charge, ret_fault);
    if (r != 0) {
        run_free(run);
        return r < 0 ? error_trace(r) : SESSION_E_FAULT;
    }
    run->session = session;
    run->id = id;
    run->uid = session->uid;
    list_append(&server->tuner.waiting, &run->link);
    if (!server->tuner.run)
        step_in(&server->tuner, 0);
    return 0;
}

/* What waits is dropped; what runs ends unseen, its result is as good. */
void tuner_forget(struct tuner *tuner, struct session *session)
{
    if (tuner->run && tuner->run->session == session)
        tuner->run->session = NULL;
    list_for_each_safe(cursor, following, &tuner->waiting)
    {
        struct tuner_run *run = container_of(cursor, struct tuner_run, link);

        if (run->session == session)
            run_free(run);
    }
}

/* --- the daemon's end ------------------------------------------------------------------------ */

static void tell_stopped(struct tuner_run *run)
{
    struct session *session = steal(run->session, NULL);

    (void)fault_set(&run->fault, STATUS_SHUTTING_DOWN, "",
                    "the daemon ends, and its tuning with it: nothing was kept for this shape");
    if (session)
        session_answer_fault(session, run->id, &run->fault);
}

void tuner_stop(struct tuner *tuner)
{
    list_for_each_safe(cursor, following, &tuner->waiting)
    {
        struct tuner_run *run = container_of(cursor, struct tuner_run, link);

        tell_stopped(run);
        run_free(run);
    }
    if (tuner->run) {
        tell_stopped(tuner->run);
        step_in(tuner, 0);
    }
}

bool tuner_works_for_nobody(const struct tuner *tuner)
{
    return tuner->run && tuner->run->is_in_flight && !tuner->run->session;
}

/* --- life ------------------------------------------------------------------------------------ */

void tuner_init(struct tuner *tuner, uv_loop_t *loop, enum tuner_mode mode, const char *directory)
{
    *tuner = (struct tuner){.mode = mode};
    list_init(&tuner->waiting);
    stream_init(&tuner->stream);
    tuning_init(&tuner->tuning);
    tuning_store_open(&tuner->store, loop, directory);
    (void)uv_timer_init(loop, &tuner->timer);
}

void tuner_close(struct tuner *tuner)
{
    list_for_each_safe(cursor, following, &tuner->waiting)
    {
        run_free(container_of(cursor, struct tuner_run, link));
    }
    if (tuner->run)
        run_free(steal(tuner->run, NULL));
    uv_close((uv_handle_t *)&tuner->timer, NULL);
}

void tuner_deinit(struct tuner *tuner)
{
    assert(!tuner->run && list_is_empty(&tuner->waiting));
    tuning_store_close(&tuner->store);
    tuning_deinit(&tuner->tuning);
}

void tuner_note_device(struct tuner *tuner, const struct link_device *device)
{
    tuning_store_load(&tuner->store, &tuner->tuning, device);
}
