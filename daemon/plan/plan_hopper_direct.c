/*
 * Cost model of the hopper family's kernels whose threads load, after measurements on an H200:
 * products in which the root of the mean square of log(predicted / measured) is 0.11 (OUTER, 46,
 * and DOT, 157, of several random draws) and 0.18 (STRIP, 42).
 *
 * What they take is a launch, instructions, and memory's rate. A grid that leaves room runs beside
 * those before and behind it (GEMMD_JOB_NEXT_AT_ONCE), and takes a part of what one alone does. Not
 * of DOT's loop: an element has 256 threads at most, so a long K is a long wait for loads, however
 * few multiprocessors have anything to do, and a product by itself has all of it.
 * OUTER has a thread for each aligned chunk of D in some rows, DOT one to 256 for each element of
 * D. STRIP has two CTAs to a multiprocessor, which take 128 x 112 of D in turns, and one where A is
 * transposed: of that nothing was measured.
 */
#include "plan_hopper_direct.h"
#include "plan_hopper.h"

#include <math.h>

#define WARP         32
#define ISSUED_CLOCK 4.0 /* instructions of warps, of a multiprocessor */
#define NORM         3.0
#define LEAST_SHARE  0.5 /* of a loop's latency: a product by itself has all of it */

#define DOT_THREADS        256       /* of a CTA, at most for an element */
#define DOT_TOGETHER       (1 << 15) /* threads in all that twice as many share: abi/job.h */
#define DOT_LAUNCH_SECONDS 0.69e-6
#define DOT_BESIDE_SECONDS 0.34e-6 /* of a grid that just leaves room for another */
#define DOT_ALONE_SECONDS  1.73e-6
#define DOT_SHORT_K        8     /* by elements, else by chunks */
#define DOT_THREAD_ISSUES  223.0 /* to find an element, to wait, to store it */
#define DOT_SHORT_ISSUES   2.5   /* of a multiplication */
#define DOT_ISSUES         11.0
#define DOT_TURN_CHUNKS    16    /* K that a thread fetches at once: by chunks of both rows, */
#define DOT_TURN_ELEMENTS  8     /* and by elements (kernels_src/mma/dot.cuh) */
#define DOT_TURN_CLOCKS    500.0 /* until they are there, from memory */
#define DOT_TURN_NORM      4.0   /* of them and the instructions of other warps meanwhile */
#define DOT_HBM_EFFICIENCY 0.85

#define OUTER_LAUNCH_SECONDS 0.76e-6
#define OUTER_HBM_EFFICIENCY 0.575   /* of whole sectors */
#define OUTER_SECTOR         32.0    /* bytes; rows of a tile begin and end within some */
#define OUTER_ROWS           64.0    /* of a CTA, when all threads of a row have all they may */
#define OUTER_ROWS_SECONDS   0.37e-6 /* of a tile that has as many */
#define OUTER_EDGES_SECONDS  0.33e-6 /* of as many that start anywhere, and end by elements */
#define OUTER_TURN_K         8       /* K that are fetched at once */
#define OUTER_TURN_CLOCKS    680.0   /* until they are there */
#define OUTER_RUN_CLOCKS     2000.0 /* of a wide tile that is one run, until its panels are there */
#define OUTER_TILE_ISSUES    1900.0 /* instructions of warps */
#define OUTER_K_ISSUES       1353.0 /* for each K */

#define STRIP_BESIDE_SECONDS  1.3e-6 /* of a grid that leaves room; less, the more it fills */
#define STRIP_FULL_SECONDS    0.5e-6
#define STRIP_EDGES_SECONDS   0.5e-6 /* of rows that start anywhere, and end by pieces */
#define STRIP_HBM_EFFICIENCY  0.75
#define STRIP_IDLE_SHARE      0.7     /* of a round, that CTAs without a tile in it cost */
#define STRIP_TILE_ISSUES     12400.0 /* instructions of warps, and what they wait */
#define STRIP_K_ISSUES        67.0
#define STRIP_TURN_CLOCKS     1800.0 /* of a further K tile, from memory to the products, */
#define STRIP_TURN_ALL_CLOCKS 7000.0 /* and more where all multiprocessors wait for theirs */

bool plan_hopper_direct_can(const struct problem *problem)
{
    double elements = (double)problem->m * (double)problem->n * (double)problem->batch;

    return plan_hopper_can(problem) && elements < 0x1p31;
}

struct work {
    double issued;         /* instructions of warps */
    double loop;           /* clocks that a thread waits for loads, while others have those */
    double latency;        /* clocks that all wait, of one CTA after the other */
    double share;          /* of the device, that the grid fills */
    double fixed;          /* seconds */
    double hbm_efficiency; /* of memory's rate */
};

static double dot_threads(double k, double elements)
{
    double threads = 1;

    while (threads < DOT_THREADS && threads * 8 < k && elements * threads <= DOT_TOGETHER)
        threads *= 2;
    return threads;
}

static struct work dot_work(const struct problem *problem, double elements, double at_once)
{
    double k = (double)problem->k, together = dot_threads(k, elements);
    double threads = elements * together, share = 2 * threads / at_once;
    double each = k > DOT_SHORT_K ? DOT_ISSUES : DOT_SHORT_ISSUES;
    bool has_chunks = !problem->trans_a && problem->trans_b && k > DOT_SHORT_K;
    double turns = ceil(k / together / (has_chunks ? DOT_TURN_CHUNKS : DOT_TURN_ELEMENTS));

    return (struct work){
        .issued = (threads * DOT_THREAD_ISSUES + elements * k * each) / WARP,
        .loop = ceil(threads / at_once) * fmax(turns - 1, 0) * DOT_TURN_CLOCKS,
        .share = fmin(share, 1),
        .fixed = DOT_LAUNCH_SECONDS + (share <= 1 ? share * DOT_BESIDE_SECONDS : DOT_ALONE_SECONDS),
        .hbm_efficiency = DOT_HBM_EFFICIENCY,
    };
}

/* D is one run of memory, and leaves by whole chunks if it starts on one, which only the job says
 * (kernels_src/epi/store_run.cuh). */
static bool is_run(const struct problem *problem, const struct config *config)
{
    const struct problem_operand *d = &problem->operand[OPERAND_D];
    bool are_items_alike =
        problem->batch == 1 || d->stride * (int64_t)dtype_size(problem->output) % 16 == 0;

    return are_items_alike && problem->n <= config->tile_n && d->ld == problem->n &&
           problem->beta == 0 && problem->bias == BIAS_NONE &&
           problem->activation == ACTIVATION_NONE;
}

static struct work
outer_work(const struct problem *problem, const struct config *config, double tiles, double at_once)
{
    double k = (double)problem->k, m = (double)problem->m;
    double rows = fmin(m / OUTER_ROWS, 1), tile_rows = fmin(m, config->tile_m) / OUTER_ROWS;
    double row_bytes = config->tile_n * (double)dtype_size(problem->output);
    bool has_edges =
        problem->operand[OPERAND_D].ld * (int64_t)dtype_size(problem->output) % 16 != 0;
    bool has_run = is_run(problem, config);
    double edges = has_edges && !has_run ? OUTER_EDGES_SECONDS * tile_rows : 0;
    double turns = fmax(ceil(k / OUTER_TURN_K) - 1, 0) * OUTER_TURN_CLOCKS +
                   (has_run && config->tile_m == OUTER_ROWS ? OUTER_RUN_CLOCKS : 0);

    return (struct work){
        .issued = tiles * (OUTER_TILE_ISSUES + k * OUTER_K_ISSUES * fmax(rows, 0.5)),
        .latency = ceil(tiles / at_once) * turns,
        .share = fmin(2 * tiles / at_once, 1),
        .fixed = OUTER_LAUNCH_SECONDS + rows * OUTER_ROWS_SECONDS + edges,
        .hbm_efficiency = OUTER_HBM_EFFICIENCY * row_bytes / (row_bytes + OUTER_SECTOR),
    };
}

/* Where there are more tiles than CTAs at once, the last round takes nearly as long as the others.
 */
static struct work
strip_work(const struct problem *problem, const struct config *config, double tiles, double at_once)
{
    double k = (double)problem->k, rounds = ceil(tiles / at_once);
    double idle = tiles <= at_once ? 0 : rounds * at_once - tiles;
    double computed = tiles + STRIP_IDLE_SHARE * idle;
    bool has_edges =
        problem->operand[OPERAND_D].ld * (int64_t)dtype_size(problem->output) % 16 != 0 &&
        !is_run(problem, config);
    double share = fmin(2 * tiles / at_once, 1), turns = fmax(ceil(k / config->tile_k) - 1, 0);

    return (struct work){
        .issued = computed * (STRIP_TILE_ISSUES + fmin(k, config->tile_k) * STRIP_K_ISSUES),
        .latency =
            rounds * turns * (STRIP_TURN_CLOCKS + fmin(tiles / at_once, 1) * STRIP_TURN_ALL_CLOCKS),
        .share = share,
        .fixed = STRIP_BESIDE_SECONDS + share * (STRIP_FULL_SECONDS - STRIP_BESIDE_SECONDS) +
                 (has_edges ? STRIP_EDGES_SECONDS : 0),
        .hbm_efficiency = STRIP_HBM_EFFICIENCY,
    };
}

void plan_hopper_direct_predict(const struct problem *problem,
                                const struct config *config,
                                const struct plan_device *device,
                                double memory_bytes,
                                struct plan *ret_plan)
{
    double clock = plan_hopper_clock(device);
    double hbm = plan_hopper_memory_rate(device);
    double tiles = ceil((double)problem->m / config->tile_m) *
                   ceil((double)problem->n / config->tile_n) * (double)problem->batch;
    double multiprocessors = MAX(device->multiprocessors, 1u);
    struct config_resources resources;
    struct work work;
    double ctas;

    config_resources(config, &resources);
    ctas = multiprocessors * resources.ctas_per_multiprocessor;
    work = config->schedule == CONFIG_SCHEDULE_DOT
               ? dot_work(problem, tiles, ctas * resources.threads)
           : config->schedule == CONFIG_SCHEDULE_STRIP ? strip_work(problem, config, tiles, ctas)
                                                       : outer_work(problem, config, tiles, ctas);
    ret_plan->config = *config;
    ret_plan->splits = 1;
    ret_plan->tiles = tiles < 0x1p63 ? (uint64_t)tiles : UINT64_MAX;
    ret_plan->wave_efficiency = work.share;
    ret_plan->tensor_seconds = work.issued / (ISSUED_CLOCK * multiprocessors) / clock;
    ret_plan->l2_seconds = work.loop / clock;
    ret_plan->memory_seconds = memory_bytes / (hbm * work.hbm_efficiency);
    ret_plan->fixed_seconds = work.fixed + fmax(work.share, LEAST_SHARE) * work.latency / clock;
    ret_plan->predicted_seconds =
        plan_hopper_norm(
            plan_hopper_norm(ret_plan->tensor_seconds, ret_plan->l2_seconds, DOT_TURN_NORM),
            ret_plan->memory_seconds, NORM) +
        ret_plan->fixed_seconds;
}
