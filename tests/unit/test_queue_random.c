/*
 * The queue under a random life: jobs of one connection that read, write and update four buffers,
 * whole and in slices, of three priorities, in all tracks; cancellations; a worker that dies
 * between any two steps, also in the middle of a command. Whatever is answered OK must have
 * computed what it would have computed had the jobs run one after the other; what is answered with
 * a fault leaves its output undefined, and so does what reads that.
 */
#include "queue_fixture.h"

#include <string.h>

enum { CELLS = 8, JOBS = 60, LIVES = 150, GARBAGE = 7 };

/* What the worker took, and which of it has run. */
static struct gemmd_command held[JOBS * CELLS];
static bool is_executed[JOBS * CELLS];
static size_t n_held;

static uint64_t cells[BUFFERS][CELLS];

struct work {
    uint64_t number;
    int from, to;
    bool is_update;
    uint64_t computed[CELLS]; /* by its last execution */
};

static struct work works[JOBS];
static size_t n_works;
static uint64_t random_state;

static uint64_t random_below(uint64_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % bound;
}

static uint64_t compute(uint64_t number, const uint64_t from[CELLS], uint64_t addend)
{
    uint64_t sum = number * 1000003 + addend * 31;

    for (int i = 0; i < CELLS; i++)
        sum = sum * 1099511628211u + from[i];
    return sum;
}

/* --- the worker ------------------------------------------------------------------------------ */

static int buffer_at(uint64_t address)
{
    return (int)(address >> 20) - 1;
}

static struct work *work_find(uint64_t number)
{
    for (size_t i = 0; i < n_works; i++) {
        if (works[i].number == number)
            return &works[i];
    }
    cr_assert_fail("there is no job %lu", (unsigned long)number);
    return NULL;
}

/* Tiles of the command up to `limit` of them; the rest does not happen. */
static void execute(const struct gemmd_command *command, uint64_t limit)
{
    const struct gemmd_job *gemm = &command->body.gemm;
    struct work *work = work_find(command->job);
    uint64_t last = gemm->tile_count ? gemm->first_tile + gemm->tile_count : CELLS;
    int from = buffer_at(gemm->a), to = buffer_at(gemm->d);

    for (uint64_t i = gemm->first_tile; i < last && i - gemm->first_tile < limit; i++) {
        uint64_t addend = gemm->c ? cells[buffer_at(gemm->c)][i] : 0;

        cells[to][i] = work->computed[i] = compute(command->job, cells[from], addend);
    }
}

/* A track's commands run, and end, in their order; all others in any. */
static bool is_behind_another(size_t i, bool among_executed)
{
    for (size_t j = 0; j < i; j++) {
        if (held[j].track == held[i].track && held[i].track != GEMMD_TRACK_STREAM &&
            is_executed[j] == among_executed)
            return true;
    }
    return false;
}

/* One that has run and may end, or that has not and may; n_held when there is none. */
static size_t pick(bool has_run)
{
    size_t start = n_held ? random_below(n_held) : 0;

    for (size_t n = 0; n < n_held; n++) {
        size_t i = (start + n) % n_held;

        if (is_executed[i] == has_run && !is_behind_another(i, has_run))
            return i;
    }
    return n_held;
}

static void run_one(void)
{
    size_t i = pick(false);

    if (i == n_held)
        return;
    execute(&held[i], CELLS);
    is_executed[i] = true;
}

static void publish(void)
{
    size_t i = pick(true);
    uint64_t number;

    if (i == n_held)
        return;
    number = held[i].job;
    n_held--;
    memmove(held + i, held + i + 1, (n_held - i) * sizeof(held[0]));
    memmove(is_executed + i, is_executed + i + 1, (n_held - i) * sizeof(is_executed[0]));
    complete_after(number, 50e-6);
}

static void hold(void)
{
    if (!take())
        return;
    is_executed[n_held] = false;
    held[n_held++] = taken;
}

static void worker_dies(void)
{
    size_t i = pick(false);

    if (i < n_held && random_below(2)) {
        const struct gemmd_command *half = &held[i];

        execute(half, random_below(CELLS));
        cells[buffer_at(half->body.gemm.d)][half->body.gemm.first_tile] = GARBAGE;
    }
    n_held = 0;
    die();
}

/* --- the client ------------------------------------------------------------------------------ */

static void submit_one(void)
{
    static const double seconds[] = {1e-6, 90e-6, 300e-6, 1e-3};
    struct work *work = &works[n_works];
    struct job *job;

    *work = (struct work){.from = (int)random_below(BUFFERS), .is_update = random_below(3) == 0};
    work->to = (work->from + 1 + (int)random_below(BUFFERS - 1)) % BUFFERS;
    job = copy(1, work->from, work->to, seconds[random_below(4)]);
    job->kind = JOB_PRODUCT;
    job->problem = (struct problem){.input = DTYPE_FP32,
                                    .output = DTYPE_FP32,
                                    .m = 1,
                                    .n = 1,
                                    .k = 1,
                                    .batch = 1,
                                    .alpha = 1,
                                    .beta = work->is_update};
    job->priority = (int)random_below(3) - 1;
    job->request = (uint32_t)n_works;
    job->track = (enum gemmd_track)random_below(GEMMD_TRACK_COUNT);
    if (job->track == GEMMD_TRACK_MAIN && random_below(2)) {
        job->tiles = CELLS;
        job->wave_tiles = 1 + random_below(3);
    }
    if (work->is_update)
        job_use_buffer(job, OPERAND_C, buffer_ref(&buffers[work->to]), 0, 100);
    work->number = queue.next_number;
    n_works++;
    (void)submit(&session_a, job);
}

static void step(void)
{
    switch (random_below(16)) {
    case 0:
        worker_dies();
        return;
    case 1:
        if (n_works > 0)
            (void)queue_cancel(&queue, &session_a, (uint32_t)random_below(n_works));
        return;
    case 2 ... 5:
        if (n_works < JOBS)
            submit_one();
        return;
    case 6 ... 9:
        hold();
        return;
    case 10 ... 12:
        run_one();
        return;
    default:
        publish();
        return;
    }
}

/* --- judgement ------------------------------------------------------------------------------- */

static void judge(const uint64_t before[BUFFERS][CELLS], unsigned life)
{
    uint64_t expected[BUFFERS][CELLS];
    bool is_undefined[BUFFERS] = {false};

    memcpy(expected, before, sizeof(expected));
    for (size_t i = 0; i < n_works; i++) {
        const struct work *work = &works[i];
        enum status status = status_of(work->number);

        if (status == STATUS_CANCELLED)
            continue;
        cr_assert(status == STATUS_OK || status == STATUS_GPU_FAULT, "life %u: job %zu: %s", life,
                  i, status_name(status));
        is_undefined[work->to] = status != STATUS_OK || is_undefined[work->from] ||
                                 (work->is_update && is_undefined[work->to]);
        for (int c = 0; c < CELLS; c++)
            expected[work->to][c] = compute(work->number, expected[work->from],
                                            work->is_update ? expected[work->to][c] : 0);
        if (!is_undefined[work->to])
            cr_assert_arr_eq(work->computed, expected[work->to], sizeof(work->computed),
                             "life %u: job %zu computed something else", life, i);
    }
    for (int b = 0; b < BUFFERS; b++) {
        if (!is_undefined[b])
            cr_assert_arr_eq(cells[b], expected[b], sizeof(cells[b]),
                             "life %u: buffer %d was overwritten", life, b);
    }
}

static void live(unsigned life)
{
    uint64_t before[BUFFERS][CELLS];

    random_state = life;
    n_works = ended_count = 0;
    memcpy(before, cells, sizeof(before));
    while (n_works < JOBS)
        step();
    while (queue.count > 0) {
        hold();
        run_one();
        cr_assert(n_held > 0, "life %u: %lu jobs are left and nothing runs", life,
                  (unsigned long)queue.count);
        publish();
    }
    cr_assert_eq(ended_count, JOBS, "life %u: %zu answers to %d jobs", life, ended_count, JOBS);
    judge(before, life);
}

TestSuite(queue_random, .init = start, .fini = stop, .timeout = 60);

Test(queue_random, what_is_answered_ok_was_computed_as_if_in_turn)
{
    for (int i = 0; i < BUFFERS; i++)
        buffers[i].memory.kind = LINK_MEMORY_DEVICE_CREATE;
    for (unsigned life = 1; life <= LIVES; life++)
        live(life);
}
