/*
 * The instrumented kernels on the CPU: every step of the ladder, compiled with -DGEMMD_STAMPS=1,
 * computes a small product, and its stamps are held against what the ring promises. Here clocks
 * count who came when, so the order of any two events is that in which the fibers ran.
 *
 * usage: emulate_stamps TRACE
 *
 * The stamps also go to the file TRACE as a trace, which check_trace.py opens.
 */
#include "emulate_kernel.h"

#include "../../client/reference.h"
#include "../../daemon/link/link_job.h"
#include "../bench/ladder_steps.h"
#include "../bench/trace.h"
#include "emulate_tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define K_TILES 9 /* of four slots, twice round the ring, and not a multiple of it */
#define TILES_M 2
#define TILES_N 2
#define WARP    32 /* lanes come one after the other; another one may tell the other CTA */

struct product {
    struct problem problem;
    struct reference_operands operands;
    struct gemmd_feed feed;
};

/* --- the product ----------------------------------------------------------------------------- */

static void *numbers(int64_t count)
{
    void *memory = malloc((size_t)count * 2);

    for (int64_t i = 0; i < count; i++)
        dtype_store(DTYPE_BF16, memory, (size_t)i, (double)((i * 7919) % 257) / 128 - 1);
    return memory;
}

static struct product product_of(const struct config *config)
{
    struct product p = {.problem = {.input = DTYPE_BF16,
                                    .output = DTYPE_BF16,
                                    .batch = 1,
                                    .trans_b = true,
                                    .alpha = 1,
                                    .m = TILES_M * (int64_t)config->tile_m,
                                    .n = TILES_N * (int64_t)config->tile_n,
                                    .k = K_TILES * (int64_t)config->tile_k}};
    uint64_t address[OPERAND_COUNT] = {0};

    p.problem.operand[OPERAND_A].ld = p.problem.operand[OPERAND_B].ld = p.problem.k;
    p.problem.operand[OPERAND_C].ld = p.problem.operand[OPERAND_D].ld = p.problem.n;
    p.operands.a = numbers(p.problem.m * p.problem.k);
    p.operands.b = numbers(p.problem.n * p.problem.k);
    p.operands.d = numbers(p.problem.m * p.problem.n);
    address[OPERAND_A] = (uintptr_t)p.operands.a;
    address[OPERAND_B] = (uintptr_t)p.operands.b;
    address[OPERAND_D] = (uintptr_t)p.operands.d;
    p.feed.job_count = 1;
    link_job_describe(&p.problem, address, &p.feed.jobs[0]);
    return p;
}

static void product_free(struct product *p)
{
    free((void *)(uintptr_t)p->operands.a);
    free((void *)(uintptr_t)p->operands.b);
    free((void *)(uintptr_t)p->operands.d);
}

static bool product_is_right(const struct product *p)
{
    struct reference_report report;

    return reference_check(&p->problem, &p->operands, (uint64_t)1 << 22, &report) == 0 &&
           reference_is_right(&report);
}

/* --- what stamps promise --------------------------------------------------------------------- */

static bool expect(bool is_so, const char *what, size_t number)
{
    if (!is_so)
        printf("  %s: %zu\n", what, number);
    return is_so;
}

/* A K tile's way, and that its slot is not filled again before the products of all groups have read
 * it. */
static bool products_check(const struct stamps_course *course,
                           const struct stamps_launch *launch,
                           uint32_t group)
{
    bool is_right = true;

    for (size_t i = 0; i < course->product_count[group]; i++) {
        const struct stamps_product *p = &course->products[group][i];
        size_t next = p->load + launch->stages;

        is_right &=
            expect(course->loads[p->load].issued < p->seen, "seen before it was copied", i) &&
            expect(p->seen < p->issued && p->issued < p->done, "a K tile's events are out of order",
                   i) &&
            expect(next >= course->load_count || course->loads[next].issued + WARP > p->done,
                   "its slot was filled again too early", i);
    }
    return is_right;
}

static bool tiles_check(const struct stamps_course *course, uint32_t group)
{
    bool is_right = true;

    for (size_t i = 0; i < course->tile_count[group]; i++) {
        const struct stamps_tile *tile = &course->tiles[group][i];
        const struct stamps_product *last = &course->products[group][(i + 1) * K_TILES - 1];

        is_right &=
            expect(tile->begin < tile->epilogue_begin && last->done <= tile->epilogue_begin &&
                       tile->epilogue_begin < tile->epilogue_end,
                   "a tile's events are out of order", i);
    }
    return is_right;
}

static bool course_check(const struct stamps_course *course, const struct stamps_launch *launch)
{
    size_t products = 0;
    bool is_right = expect(!course->is_cut, "it was cut at", course->load_count);

    for (uint32_t group = 0; group < launch->groups; group++) {
        size_t tiles = course->tile_count[group];

        is_right &= expect(course->product_count[group] == tiles * K_TILES, "K tiles", tiles);
        is_right &= is_right && products_check(course, launch, group) && tiles_check(course, group);
        if (launch->is_pingpong || group == 0)
            products += course->product_count[group];
    }
    is_right &= expect(course->load_count == products, "as many copies as products", products);
    for (size_t i = 0; i < course->load_count; i++)
        is_right &= expect(course->loads[i].issued <= course->loads[i].landed, "landed early", i);
    return is_right;
}

static bool stamps_check(const struct gemmd_stamps *stamps, const struct stamps_launch *launch)
{
    static struct stamps_course course;
    struct stamps_figures figures;
    size_t tiles = 0;
    bool is_right = true;

    for (uint32_t cta = 0; cta < launch->ctas; cta++) {
        is_right &= expect(stamps_read(stamps, launch, cta, &course), "stamps of CTA", cta) &&
                    course_check(&course, launch);
        tiles += course.tile_count[0] + (launch->is_pingpong ? course.tile_count[1] : 0);
    }
    is_right &= expect(tiles == TILES_M * TILES_N, "tiles of D", tiles);
    if (!expect(stamps_measure(stamps, launch, &figures), "no figures", 0))
        return false;
    is_right &= expect(figures.k_tiles == tiles * K_TILES, "K tiles of all", figures.k_tiles);
    return is_right &&
           expect(figures.loads > 0 && figures.loads <= launch->stages, "loads in flight", 0);
}

/* --- a step ---------------------------------------------------------------------------------- */

static uint32_t walkers_of(const struct config *config)
{
    struct config_resources resources;

    config_resources(config, &resources);
    return resources.is_persistent ? 1 : TILES_M * TILES_N;
}

static bool step_run(const struct ladder_step *step, struct trace *trace)
{
    char object[] = "/tmp/gemmd-stamps-XXXXXX";
    uint32_t walkers = walkers_of(&step->config);
    struct stamps_launch launch = ladder_launch(&step->config, K_TILES * step->config.tile_k,
                                                walkers * config_cluster(&step->config), 4);
    struct emulation emulation;
    bool is_right = true;

    close(mkstemp(object));
    if (!kernel_compile(&step->config, "-DGEMMD_STAMPS=1", object) ||
        !kernel_open(object, &emulation) || !emulation.stamps)
        return false;
    unlink(object);
    for (int order = 0; order < 4; order += 3) { /* copies at once, forwards; late, backwards */
        struct product product = product_of(&step->config);
        struct gemmd_tensor_maps maps;

        memset(emulation.stamps(), 0, sizeof(struct gemmd_stamps));
        tensor_maps_of(&step->config, &product.feed, &maps);
        emulation.run(&product.feed, &maps, walkers, order & 1, order >> 1);
        is_right &= expect(product_is_right(&product), "D is wrong in order", (size_t)order);
        is_right &= stamps_check(emulation.stamps(), &launch);
        product_free(&product);
    }
    return is_right && trace_add(trace, step->name, emulation.stamps(), &launch, launch.ctas);
}

int main(int argc, char **argv)
{
    struct ladder_step steps[LADDER_STEPS];
    FILE *file = argc == 2 ? fopen(argv[1], "we") : NULL;
    struct trace trace;
    int wrong = 0;

    if (!file || !expect(ladder_steps(steps), "steps that the list lacks", 1))
        return 2;
    trace_begin(&trace, file);
    for (size_t i = 0; i < LADDER_STEPS; i++) {
        bool is_right = step_run(&steps[i], &trace);

        printf("%s %s\n", is_right ? "ok   " : "WRONG", steps[i].name);
        wrong += !is_right;
    }
    trace_end(&trace);
    return fclose(file) != 0 || wrong != 0;
}
