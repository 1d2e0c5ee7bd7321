/*
 * The steps of the hopper ladder side by side at one shape. Each is timed as `kernels` times its
 * sides, all in alternation with the peer's best; and once, right behind a run of its own, an
 * instrumented build of the same configuration writes down what happened when (stamps.h).
 */
#include "../../daemon/worker/cuda_launch.h"
#include "kernels_contest.h"
#include "ladder_table.h"
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAMPED_IDS ((uint64_t)1 << 32)
#define TRIAL       0.02 /* seconds of a side, before the rounds */
#define TRACED_CTAS 4    /* of each step: a trace is to be opened, too */

static const char *const instrumented[] = {"-DGEMMD_STAMPS=1", NULL};

/* A step under measurement. */
struct rung {
    struct product_kernel plain, stamped;
    struct side side, stamped_side; /* owned */
    bool is_right, is_stamped;
};

struct ladder {
    struct kernels_setting setting;
    struct kernel_set stamped;
    struct ladder_step steps[LADDER_STEPS];
    struct rung rungs[LADDER_STEPS];
    struct ladder_row rows[LADDER_STEPS];
    struct side peer; /* the best algorithm's */
    struct gemmd_stamps *stamps;
    struct trace trace;
    FILE *trace_file; /* NULL: nobody asked */
};

/* --- kernels --------------------------------------------------------------------------------- */

static void compile(struct ladder *ladder)
{
    struct kernel_set *kernels = &ladder->setting.kernels;

    for (size_t i = 0; i < LADDER_STEPS; i++) {
        kernel_set_add(kernels, &ladder->steps[i].config);
        kernel_set_add(&ladder->stamped, &ladder->steps[i].config);
    }
    kernel_set_build(kernels);
    kernel_set_build(&ladder->stamped);
    for (size_t i = 0; i < LADDER_STEPS; i++) {
        const struct config *config = &ladder->steps[i].config;

        ladder->rows[i] = (struct ladder_row){
            .step = ladder->steps[i].name,
            .config = *config,
            .flop = shape_flop(&ladder->setting.product.shape),
            .registers = kernel_set_made(kernels, config).registers,
            .compile_seconds = kernel_set_made(kernels, config).seconds,
        };
    }
}

/* Checked and captured; false with a line that says why not. */
static bool enter(struct ladder *ladder,
                  size_t step,
                  const struct kernel_set *kernels,
                  struct product_kernel *kernel,
                  struct side *side)
{
    struct product *product = &ladder->setting.product;
    struct fault fault = FAULT_NONE;
    double error;

    *kernel = (struct product_kernel){
        product, kernel_set_find(kernels, &ladder->steps[step].config, &fault), .splits = 1};
    *side = (struct side){.launch = product_launch, .context = kernel};
    if (!kernel->kernel || product_check(product, product_launch, kernel, &error, &fault) ||
        side_capture(&ladder->setting.gpu, side, product->set_count, product->launches) < 0) {
        printf("# failed: %s%s: %s\n", ladder->steps[step].name,
               kernels == &ladder->stamped ? ", instrumented" : "",
               fault.status ? fault.message : "it cannot be captured");
        return false;
    }
    ladder->rows[step].error = MAX(ladder->rows[step].error, error);
    return true;
}

static bool enter_all(struct ladder *ladder)
{
    bool are_right = true;

    for (size_t i = 0; i < LADDER_STEPS; i++) {
        struct rung *rung = &ladder->rungs[i];

        rung->is_right = enter(ladder, i, &ladder->setting.kernels, &rung->plain, &rung->side);
        rung->is_stamped = rung->is_right &&
                           enter(ladder, i, &ladder->stamped, &rung->stamped, &rung->stamped_side);
        are_right &= rung->is_stamped;
    }
    return are_right;
}

/* The fastest of the peer's algorithms, by a trial of each. */
static void enter_peer(struct ladder *ladder)
{
    struct kernels_setting *s = &ladder->setting;
    double best = INFINITY;
    size_t chosen = 0;

    if (!s->has_peer || !peer_begin(&s->peer, &s->product.shape, s->product.sets))
        return;
    for (size_t i = 0; i < s->peer.count; i++) {
        struct side side = {.launch = peer_launch, .context = &s->peer};

        s->peer.chosen = i;
        if (side_capture(&s->gpu, &side, s->product.set_count, s->product.launches) == 0)
            side_try(&s->gpu, &side, TRIAL);
        chosen = side.trial < best ? i : chosen;
        best = MIN(best, side.trial);
        side_free(&s->gpu, &side);
    }
    s->peer.chosen = chosen;
    ladder->peer = (struct side){.launch = peer_launch, .context = &s->peer};
    if (side_capture(&s->gpu, &ladder->peer, s->product.set_count, s->product.launches) < 0)
        side_free(&s->gpu, &ladder->peer);
}

/* --- times ----------------------------------------------------------------------------------- */

/* A step and the peer in turns: all steps in one alternation would have the slow ones save power
 * for the fast ones, and who comes first after them be the fastest. */
static int time_step(struct ladder *ladder, size_t step)
{
    struct kernels_setting *s = &ladder->setting;
    struct side *sides[] = {&ladder->rungs[step].side, &ladder->peer};
    struct ladder_row *row = &ladder->rows[step];
    struct power power = {0};
    size_t count = ladder->peer.graph.executable ? 2 : 1;
    int r;

    for (size_t i = 0; i < count; i++)
        side_try(&s->gpu, sides[i], TRIAL);
    r = sides_alternate(&s->gpu, sides, count, &s->rounds, &power);
    if (r)
        return r;
    row->seconds = sides[0]->seconds;
    row->peer = count > 1 ? sides[1]->seconds : 0;
    row->clock_mhz = power.clock_mhz;
    row->watts = power.watts;
    return 0;
}

static int time_all(struct ladder *ladder)
{
    int r = 0;

    for (size_t i = 0; i < LADDER_STEPS && r == 0; i++)
        if (ladder->rungs[i].is_right)
            r = time_step(ladder, i);
    return r;
}

/* --- stamps ---------------------------------------------------------------------------------- */

/* The device's records of one launch, right behind others of the same kernel without stamps: its
 * clocks and caches are those of the figures above. */
static CUresult record(struct ladder *ladder, struct rung *rung)
{
    struct gpu *gpu = &ladder->setting.gpu;
    CUdeviceptr records;
    size_t size;
    CUresult r = GPU_CALL(gpu, ModuleGetGlobal)(&records, &size, rung->stamped.kernel->module,
                                                GEMMD_STAMP_SYMBOL);

    if (r != CUDA_SUCCESS || size != sizeof(*ladder->stamps))
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
    side_try(gpu, &rung->side, TRIAL);
    r = cu_parked(&gpu->driver)->MemsetD8Async(records, 0, size, gpu->stream);
    /* Stamps do not wait for what comes before. */
    r = r ? r : cu(&gpu->driver)->StreamSynchronize(gpu->stream);
    r = r ? r : (CUresult)product_launch(&rung->stamped, gpu->stream, 0);
    r = r ? r : cu(&gpu->driver)->MemcpyDtoHAsync(ladder->stamps, records, size, gpu->stream);
    return r ? r : cu(&gpu->driver)->StreamSynchronize(gpu->stream);
}

/* CTAs that began; where there may be more than have records, as many as the launch has tiles. */
static uint32_t ctas_of(const struct ladder *ladder, const struct cuda_kernel *kernel)
{
    const struct problem *problem = &ladder->setting.product.problem;
    struct gemmd_job job = {.m = problem->m, .n = problem->n, .k = problem->k, .batch = 1};
    uint32_t count = 0;

    if (kernel->has_cta_per_tile)
        return (uint32_t)cuda_launch_units(kernel, &job);
    while (count < GEMMD_STAMP_CTAS && ladder->stamps->spans[count][GEMMD_STAMP_GROUP_0].end_ns)
        count++;
    return count;
}

static bool read_stamps(struct ladder *ladder, size_t step)
{
    struct rung *rung = &ladder->rungs[step];
    struct ladder_row *row = &ladder->rows[step];
    struct stamps_launch launch;

    if (!rung->is_stamped || record(ladder, rung) != CUDA_SUCCESS)
        return false;
    launch = ladder_launch(&row->config, ladder->setting.product.shape.k,
                           ctas_of(ladder, rung->stamped.kernel),
                           ladder->setting.gpu.facts.multiprocessors);
    row->has_figures = stamps_measure(ladder->stamps, &launch, &row->figures);
    side_try(&ladder->setting.gpu, &rung->stamped_side, TRIAL);
    row->stamped_seconds = rung->stamped_side.trial;
    return row->has_figures &&
           (!ladder->trace_file ||
            trace_add(&ladder->trace, row->step, ladder->stamps, &launch, TRACED_CTAS));
}

static bool read_all_stamps(struct ladder *ladder)
{
    bool are_right = true;

    for (size_t i = 0; i < LADDER_STEPS; i++) {
        bool is_right = read_stamps(ladder, i);

        if (!is_right)
            printf("# failed: %s: no stamps that can be read\n", ladder->steps[i].name);
        are_right &= is_right;
    }
    return are_right;
}

/* --- the command ----------------------------------------------------------------------------- */

static int open_all(struct ladder *ladder, int argc, char **argv)
{
    struct kernels_setting *s = &ladder->setting;
    const char *folder = bench_option(argc, argv, "--kernels", NULL), *why = "not asked for";
    const char *peer = bench_option(argc, argv, "--peer", "cublaslt");
    struct fault fault = FAULT_NONE;
    int r = gpu_open(&s->gpu, bench_option(argc, argv, "--device", "cuda"), &fault);

    r = r ? r : kernel_set_init(&s->kernels, &s->gpu, folder, &fault);
    r = r ? r : kernel_set_init(&ladder->stamped, &s->gpu, folder, &fault);
    if (r) {
        fprintf(stderr, "gemmd-bench: %s\n", fault.status ? fault.message : "no kernel files");
        return r;
    }
    if (s->gpu.facts.compute_major != 9 || !ladder_steps(ladder->steps)) {
        fprintf(stderr, "gemmd-bench: the ladder is of the hopper family, this is a %s\n",
                s->gpu.facts.name);
        return EXIT_ABSENT;
    }
    ladder->stamped.more = instrumented;
    ladder->stamped.first_id = STAMPED_IDS;
    bench_print_facts(s->gpu.facts.name, s->gpu.facts.driver);
    s->has_peer = strcmp(peer, "none") != 0 && peer_open(&s->peer, &s->gpu, &why);
    if (!s->has_peer)
        printf("# no peer: %s\n", why);
    return 0;
}

static int prepare(struct ladder *ladder, const struct shape *shape)
{
    struct kernels_setting *s = &ladder->setting;
    struct plan_ranking ranking;
    struct fault fault = FAULT_NONE;

    ladder->stamps = malloc(sizeof(*ladder->stamps));
    if (!ladder->stamps || product_rank(&s->gpu, shape, &ranking, &fault) != STATUS_OK ||
        kernels_place_init(&s->place, &s->gpu, shape, 1) < 0 ||
        product_init(&s->product, &s->place, shape, &ranking) < 0) {
        fprintf(stderr, "gemmd-bench: %s\n", fault.status ? fault.message : "no memory");
        return -1;
    }
    compile(ladder);
    if (kernels_warm_up(s, &fault) < 0) {
        fprintf(stderr, "gemmd-bench: %s\n", fault.message);
        return -1;
    }
    return 0;
}

/* 0, or 1 when something failed, of which lines tell. */
static int measure(struct ladder *ladder, const struct shape *shape)
{
    struct kernels_setting *s = &ladder->setting;
    bool are_right;

    if (prepare(ladder, shape) < 0)
        return 1;
    are_right = enter_all(ladder);
    kernels_heat_end(s);
    enter_peer(ladder);
    if (time_all(ladder))
        return 1;
    are_right = read_all_stamps(ladder) && are_right;
    ladder_table_print(stdout, ladder->rows, LADDER_STEPS);
    return !are_right;
}

static void close_all(struct ladder *ladder)
{
    struct kernels_setting *s = &ladder->setting;

    for (size_t i = 0; i < LADDER_STEPS; i++) {
        side_free(&s->gpu, &ladder->rungs[i].side);
        side_free(&s->gpu, &ladder->rungs[i].stamped_side);
    }
    side_free(&s->gpu, &ladder->peer);
    if (s->has_peer)
        peer_end(&s->peer);
    if (s->has_heat)
        heat_deinit(&s->heat);
    kernels_place_deinit(&s->heat_place);
    kernels_place_deinit(&s->place);
    kernel_set_deinit(&ladder->stamped);
    kernel_set_deinit(&s->kernels);
    free(ladder->stamps);
    gpu_close(&s->gpu);
}

static bool open_trace(struct ladder *ladder, const char *path)
{
    if (!path)
        return true;
    ladder->trace_file = fopen(path, "we");
    if (!ladder->trace_file) {
        fprintf(stderr, "gemmd-bench: --trace %s: %m\n", path);
        return false;
    }
    trace_begin(&ladder->trace, ladder->trace_file);
    return true;
}

int bench_ladder(int argc, char **argv)
{
    static struct ladder ladder;
    struct shape shape = shape_from_options(argc, argv, "4096x4096x4096");
    int r;

    if (!bench_options_are_known(argc, argv,
                                 "shape trace kernels device peer warmup settle round rounds") ||
        !open_trace(&ladder, bench_option(argc, argv, "--trace", NULL)))
        return EXIT_USAGE;
    (void)snprintf(shape.group, sizeof(shape.group), "ladder");
    shape.dtype = DTYPE_BF16;
    shape.trans_a = false;
    shape.trans_b = true;
    ladder.setting.warmup = bench_option_number(argc, argv, "--warmup", 3);
    ladder.setting.rounds = (struct side_rounds){
        .warmup = bench_option_number(argc, argv, "--settle", 0.4),
        .round = bench_option_number(argc, argv, "--round", 0.08),
        .count = (size_t)bench_option_number(argc, argv, "--rounds", 5),
    };
    r = open_all(&ladder, argc, argv);
    if (r)
        return r == EXIT_ABSENT ? r : 1;
    r = measure(&ladder, &shape);
    close_all(&ladder);
    if (ladder.trace_file) {
        trace_end(&ladder.trace);
        r = fclose(ladder.trace_file) != 0 ? 1 : r;
    }
    return r;
}
