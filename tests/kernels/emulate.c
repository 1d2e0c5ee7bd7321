/*
 * Runs the kernel sources on the CPU and compares with fp64: index arithmetic, edges, pipelines and
 * epilogues of every configuration, without a GPU.
 *
 * usage: emulate [--hopper-every H] [--every N --first I] [TEXT]
 *
 * Of the list (the portable family, then every H-th of the hopper family) the configurations I,
 * I + N, ... whose text contains TEXT.
 *
 * Each configuration is compiled by the host's C++ compiler from kernels_src/ with host/ptx/ in
 * place of its ptx/ and the -D list of config_to_defines(), loaded, and run on the cases below in a
 * process of its own, so that a fault names its case. Operands end at a page that cannot be
 * touched, gaps between rows hold NaN, D is poisoned, absent operands are null.
 */
#include "emulate_kernel.h"

#include "../../daemon/core/problem.h"
#include "../../daemon/plan/plan_hopper.h"
#include "../../daemon/worker/panel_plan.h"
#include "../../daemon/worker/repack.h"
#include "emulate_run.h"
#include "emulate_tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void launch_product(const struct run *run,
                           const struct emulation *emulation,
                           const struct gemmd_feed *feed,
                           int late,
                           int backwards)
{
    struct gemmd_feed own = *feed;
    struct gemmd_tensor_maps maps;

    if (run->config->copy != CONFIG_COPY_REPACK && late != backwards)
        feed_settle(&own);
    tensor_maps_of(run->config, &own, &maps);
    emulation->run(&own, &maps, run->shape->ctas, late, backwards);
    if (config_leaves_parts(run->config))
        emulation->sum(&own, run->shape->ctas, backwards);
}

/* Job after job, as the worker does: first the copies of its inputs, then the product; where each
 * of them has launches of its own. */
static void launch(const struct run *run,
                   const struct emulation *emulation,
                   const struct gemmd_feed *feed,
                   int late,
                   int backwards)
{
    if (run->config->copy != CONFIG_COPY_REPACK && !config_leaves_parts(run->config)) {
        launch_product(run, emulation, feed, late, backwards);
        return;
    }
    for (uint32_t i = 0; i < feed->job_count; i++) {
        struct gemmd_feed one = {.job_count = 1, .jobs = {feed->jobs[i]}};
        struct gemmd_repack repack;
        uint64_t size =
            run->config->copy == CONFIG_COPY_REPACK ? repack_plan(&one.jobs[0], &repack) : 0;
        void *scratch = size ? aligned_alloc(256, size) : NULL;

        if (scratch) {
            memset(scratch, POISON, size);
            repack_place(&repack, (uintptr_t)scratch, &one.jobs[0]);
            repack.flags = late != backwards ? GEMMD_REPACK_AT_ONCE : 0;
            emulation->repack(&repack, run->shape->ctas, backwards);
        }
        launch_product(run, emulation, &one, late, backwards);
        free(scratch);
    }
}

static void
emulate_whole(const struct run *run, const struct emulation *emulation, int late, int backwards)
{
    struct gemmd_feed feed = {.job_count = 1, .jobs = {run_job(run)}};

    launch(run, emulation, &feed, late, backwards);
}

/* The same tiles as slices: a feed of two jobs, and a second launch with the rest. */
static void
emulate_slices(const struct run *run, const struct emulation *emulation, int late, int backwards)
{
    struct gemmd_feed feed = {.job_count = 2, .jobs = {run_job(run)}};

    feed.jobs[1] = feed.jobs[0];
    if (feed.jobs[1].workspace)
        feed.jobs[1].workspace = workspaces_address(&run->workspaces, 1);
    feed.jobs[0].tile_count = 1;
    feed.jobs[1].first_tile = 1;
    feed.jobs[1].tile_count = 2;
    launch(run, emulation, &feed, late, backwards);
    feed.job_count = 1;
    feed.jobs[0].first_tile = 3;
    feed.jobs[0].tile_count = 0;
    (void)memset(&feed.jobs[1], 0x6d, sizeof(feed.jobs[1])); /* there is none */
    launch(run, emulation, &feed, late, backwards);
}

/* D by rows, each block by a launch of its own: as the worker computes what lies in host memory. */
static void
emulate_blocks(const struct run *run, const struct emulation *emulation, int late, int backwards)
{
    struct gemmd_feed feed = {.job_count = 1, .jobs = {run_job(run)}};
    struct gemmd_job *job = &feed.jobs[0];
    int64_t m = job->m, from_a = run->problem.trans_a ? 1 : job->lda;
    uint64_t in = dtype_size(run->problem.input), out = dtype_size(run->problem.output);

    job->product_elements = (uint32_t)(m * job->n * job->batch);
    job->m = PANEL_CUT;
    launch(run, emulation, &feed, late, backwards);
    job->m = m - PANEL_CUT;
    job->a += (uint64_t)(PANEL_CUT * from_a) * in;
    job->c += (uint64_t)(PANEL_CUT * job->ldc) * out;
    job->d += (uint64_t)(PANEL_CUT * job->ldd) * out;
    launch(run, emulation, &feed, late, backwards);
}

static double
input_value(const struct matrix *matrix, bool is_transposed, int64_t item, int64_t row, int64_t col)
{
    return dtype_load(matrix->dtype, matrix->data,
                      is_transposed ? at(matrix, item, col, row) : at(matrix, item, row, col));
}

static bool is_close(double got, double want, double bound)
{
    if (isnan(want))
        return isnan(got);
    return isinf(want) ? got == want : fabs(got - want) <= bound;
}

/* Integers modulo 2^32, as a double. */
static double wrapped(double value)
{
    return (double)(int32_t)(uint32_t)(int64_t)fmod(value, 0x1p32);
}

static bool element_check(const struct run *run, int64_t item, int64_t row, int64_t col)
{
    const struct problem *p = &run->problem;
    bool reads_ab = problem_reads(p, OPERAND_A);
    double sum = 0, absolute = 0, c = 0, bias = 0, before, want, bound, got;

    for (int64_t i = 0; reads_ab && i < p->k; i++) {
        double a = input_value(&run->operand[OPERAND_A], p->trans_a, item, row, i);
        double b = input_value(&run->operand[OPERAND_B], p->trans_b, item, i, col);

        sum += a * b;
        absolute += fabs(a * b);
    }
    if (p->beta != 0) {
        const struct matrix *from = run->shape->in_place ? &run->before : &run->operand[OPERAND_C];

        c = p->beta * input_value(from, false, item, row, col);
    }
    if (p->bias != BIAS_NONE)
        bias = input_value(&run->operand[OPERAND_BIAS], false, item, 0,
                           p->bias == BIAS_PER_ROW ? row : col);
    sum = reads_ab ? p->alpha * sum : 0;
    before = p->input == DTYPE_INT8 ? wrapped(wrapped(sum) + wrapped(c) + bias) : sum + c + bias;
    want = activation_apply(p->activation, before);
    bound = problem_error_bound(p, before, fabs(reads_ab ? p->alpha : 0) * absolute,
                                fabs(c) + fabs(bias));
    got = input_value(&run->operand[OPERAND_D], false, item, row, col);
    if (is_close(got, want, bound))
        return true;
    printf("  D[%lld][%lld, %lld] is %.17g, should be %.17g within %g\n", (long long)item,
           (long long)row, (long long)col, got, want, bound);
    return false;
}

/* Bytes of D outside its rows: gaps of leading dimension and stride. */
static bool gaps_check(const struct run *run)
{
    const struct matrix *d = &run->operand[OPERAND_D];
    size_t size = dtype_size(d->dtype);

    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t i = 0; i < d->rows; i++)
            memcpy(run->before.data + at(d, b, i, 0) * size, d->data + at(d, b, i, 0) * size,
                   (size_t)d->cols * size);
    if (memcmp(run->before.data, d->data, d->bytes) == 0)
        return true;
    printf("  D was written outside its rows\n");
    return false;
}

static bool run_check(const struct run *run)
{
    const struct problem *p = &run->problem;
    int wrong = 0;

    /* Elements near the edges of tiles, and a scatter of the others: the reference is slow. */
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n && wrong < 4; j++) {
                bool is_sampled =
                    p->m * p->n < 20000 || random_next() % 8 == 0 || i + 2 >= p->m || j + 2 >= p->n;

                if (is_sampled && !element_check(run, b, i, j))
                    wrong++;
            }
    return gaps_check(run) && workspaces_check(&run->workspaces) && wrong == 0;
}

/* Slices of the tile range and blocks of D give the bits of the whole: the daemon cuts large jobs
 * by load, and those in host memory by the device's memory. */
static bool
parts_check(const struct run *parts, const struct emulation *emulation, int late, int backwards)
{
    struct run whole;
    bool is_same;

    random_state = 1;
    run_init(&whole, parts->config, parts->shape);
    emulate_whole(&whole, emulation, late, backwards);
    is_same = memcmp(whole.operand[OPERAND_D].data, parts->operand[OPERAND_D].data,
                     whole.operand[OPERAND_D].bytes) == 0;
    if (!is_same)
        printf("  parts give other bits than the whole\n");
    run_deinit(&whole);
    return is_same;
}

static bool case_run(const struct config *config,
                     const struct shape *shape,
                     const struct emulation *emulation,
                     int late,
                     int backwards)
{
    struct run run;
    bool is_right;

    random_state = 1;
    run_init(&run, config, shape);
    assert(config->family != CONFIG_HOPPER || plan_hopper_finishes(&run.problem, config));
    if (config->family == CONFIG_HOPPER && !plan_hopper_fits(&run.problem, config)) {
        run_deinit(&run);
        return true;
    }
    if (shape->slices || shape->blocks) {
        (shape->slices ? emulate_slices : emulate_blocks)(&run, emulation, late, backwards);
        is_right = parts_check(&run, emulation, !late, backwards) && run_check(&run);
    } else {
        emulate_whole(&run, emulation, late, backwards);
        is_right = run_check(&run);
    }
    if (!is_right)
        printf("  in case '%s', copies %s, turns %s\n", shape->name, late ? "late" : "at once",
               backwards ? "backwards" : "forwards");
    run_deinit(&run);
    return is_right;
}

/* Every count of K tiles from 1 to three turns of the ring and one, two tiles of D by one CTA:
 * slots must be right wherever in the ring a tile starts and ends. */
static bool ring_run(const struct config *config, const struct emulation *emulation)
{
    struct shape shape = {"ring", 1, 1, 0, 1, 1, -1, 1, 1, 0, 1, .pad = 0};
    bool is_right = true;

    for (int turn = 0; shape.tiles_k <= 3 * (int)config->stages + 1; turn++, shape.tiles_k++)
        is_right &= case_run(config, &shape, emulation, turn & 1, turn >> 1 & 1);
    return is_right;
}

/* Of rows of B and D that are longer than 2^31 bytes the first tile: who counts such bytes in 32
 * bits takes them for none. */
static bool far_run(const struct config *config, const struct emulation *emulation)
{
    static const struct shape shape = {.name = "far", .ctas = 1};
    struct run run = {.config = config, .shape = &shape};
    int64_t columns = (int64_t)config->tile_n * config->cluster_n;
    bool is_right = true;

    /* What is copied first would be copied whole. */
    if (config->trans_b || config->copy == CONFIG_COPY_REPACK)
        return true;
    far_init(&run);
    struct gemmd_feed feed = {.job_count = 1, .jobs = {run_job(&run)}};
    feed.jobs[0].tile_count = 1;
    launch(&run, emulation, &feed, /* late= */ 1, /* backwards= */ 0);
    for (int64_t col = 0; col < columns && is_right; col++)
        is_right = element_check(&run, 0, 0, col);
    run_deinit(&run);
    return is_right;
}

/* In a process of its own: returns its exit status. */
static int config_run(const struct config *config, const char *object)
{
    struct emulation emulation;
    int wrong = 0;

    if (!kernel_compile(config, /* define= */ NULL, object) || !kernel_open(object, &emulation))
        return 1;
    unlink(object);
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        printf("  %s\n", shapes[i].name);
        fflush(stdout);
        wrong += !case_run(config, &shapes[i], &emulation, i & 1, i >> 1 & 1);
        if (shapes[i].tiles_k > 1)
            wrong += !case_run(config, &shapes[i], &emulation, !(i & 1), !(i >> 1 & 1));
    }
    printf("  ring\n");
    fflush(stdout);
    wrong += !ring_run(config, &emulation);
    printf("  far\n");
    fflush(stdout);
    wrong += !far_run(config, &emulation);
    return wrong != 0;
}

static bool config_check(const struct config *config)
{
    char text[CONFIG_TEXT_MAX], object[] = "/tmp/gemmd-emulate-XXXXXX";
    FILE *log = tmpfile();
    int status, letter;
    pid_t child;

    assert(log);
    config_to_text(config, text);
    close(mkstemp(object));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        dup2(fileno(log), 1);
        dup2(fileno(log), 2);
        status = config_run(config, object);
        fflush(stdout);
        _exit(status);
    }
    waitpid(child, &status, 0);
    unlink(object);
    printf("%s %s\n", status == 0 ? "ok   " : "WRONG", text);
    rewind(log);
    while (status != 0 && (letter = fgetc(log)) != EOF)
        putchar(letter);
    fclose(log);
    return status == 0;
}

/* The portable family, and of what 9.0 has beyond it every `hopper_every`th. */
static size_t list(size_t hopper_every, struct config ret_configs[2 * CONFIG_LIST_MAX])
{
    size_t count = config_list(80, ret_configs), hopper = 0;
    size_t end = count + config_list(90, ret_configs + count);

    for (size_t i = count; i < end; i++)
        if (ret_configs[i].family == CONFIG_HOPPER && hopper++ % hopper_every == 0)
            ret_configs[count++] = ret_configs[i];
    return count;
}

int main(int argc, char **argv)
{
    static struct config configs[2 * CONFIG_LIST_MAX];
    size_t count, every = 1, first = 0, hopper_every = 1, ran = 0, wrong = 0;
    const char *filter = "";
    char text[CONFIG_TEXT_MAX];

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--every") == 0 && i + 1 < argc)
            every = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc)
            first = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--hopper-every") == 0 && i + 1 < argc)
            hopper_every = strtoul(argv[++i], NULL, 10);
        else
            filter = argv[i];
    count = list(MAX(hopper_every, 1u), configs);
    for (size_t i = first; every > 0 && i < count; i += every) {
        config_to_text(&configs[i], text);
        if (!strstr(text, filter))
            continue;
        ran++;
        wrong += !config_check(&configs[i]);
    }
    printf("%zu configurations, %zu wrong\n", ran, wrong);
    return wrong != 0 || ran == 0;
}
