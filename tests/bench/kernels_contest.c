#include "kernels_contest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAT_SIZE 4096

/* The sides of a row: our candidates, the plan's choice first, then the peer's algorithms. */
struct contest {
    struct kernels_setting *setting;
    struct product_kernel kernels[PLAN_RANKED_MAX];
    struct side ours[PLAN_RANKED_MAX];
    double error[PLAN_RANKED_MAX];
    size_t rank[PLAN_RANKED_MAX]; /* in the plan's ranking: those that fail have no side */
    size_t our_count;

    struct peer_choice {
        struct peer *peer;
        size_t index;
    } choices[PEER_ALGORITHMS_MAX];
    struct side theirs[PEER_ALGORITHMS_MAX];
    size_t their_count;
};

/* --- warmth ---------------------------------------------------------------------------------- */

int kernels_warm_up(struct kernels_setting *s, struct fault *fault)
{
    static struct product_kernel kernel;
    struct shape shape = {.group = "heat",
                          .dtype = DTYPE_BF16,
                          .trans_b = true,
                          .m = HEAT_SIZE,
                          .n = HEAT_SIZE,
                          .k = HEAT_SIZE};
    struct plan_ranking ranking;
    struct gpu_graph graph;

    if (product_rank(&s->gpu, &shape, &ranking, fault) != STATUS_OK)
        return -1;
    kernel_set_add(&s->kernels, &ranking.plan[0].config);
    kernel_set_build(&s->kernels);
    kernel = (struct product_kernel){&s->heat_product,
                                     kernel_set_find(&s->kernels, &ranking.plan[0].config, fault),
                                     ranking.plan[0].splits};
    if (!kernel.kernel || kernels_place_init(&s->heat_place, &s->gpu, &shape, 1) < 0 ||
        product_init(&s->heat_product, &s->heat_place, &shape, &ranking) < 0 ||
        gpu_graph_capture(&s->gpu, product_launch, &kernel, s->heat_product.set_count,
                          s->heat_product.launches, &graph) ||
        heat_init(&s->heat, &s->gpu, &graph) < 0)
        return -1;
    s->has_heat = true;
    s->heat_since = bench_now();
    heat_on(&s->heat);
    return 0;
}

void kernels_heat_end(struct kernels_setting *s)
{
    double left = s->heat_since + s->warmup - bench_now();

    if (left > 0)
        (void)usleep((useconds_t)(left * 1e6));
    heat_off(&s->heat);
}

/* --- a row ----------------------------------------------------------------------------------- */

static int launch_peer(void *context, CUstream stream, size_t set)
{
    struct peer_choice *choice = context;

    choice->peer->chosen = choice->index;
    return peer_launch(choice->peer, stream, set);
}

static void complain(const struct product *p, const struct config *config, const char *message)
{
    char text[CONFIG_TEXT_MAX];

    config_to_text(config, text);
    printf("# failed: %s %lldx%lldx%lld %s: %s\n", p->shape.group, (long long)p->shape.m,
           (long long)p->shape.n, (long long)p->shape.k, text, message);
}

/* Checked and captured, or told and left out. */
static int enter_candidate(struct contest *c, size_t rank)
{
    struct kernels_setting *s = c->setting;
    struct product *p = &s->product;
    const struct config *config = &p->ranking.plan[rank].config;
    struct product_kernel *kernel = &c->kernels[c->our_count];
    struct side *side = &c->ours[c->our_count];
    struct fault fault = FAULT_NONE;

    *kernel = (struct product_kernel){p, kernel_set_find(&s->kernels, config, &fault),
                                      p->ranking.plan[rank].splits};
    *side = (struct side){.launch = product_launch, .context = kernel};
    if (!kernel->kernel ||
        ((rank == 0 || !s->is_unchecked) &&
         product_check(p, product_launch, kernel, &c->error[c->our_count], &fault))) {
        complain(p, config, fault.message);
        return -1;
    }
    if (side_capture(&s->gpu, side, p->set_count, p->launches) < 0) {
        complain(p, config, "it cannot be captured");
        return -1;
    }
    c->rank[c->our_count++] = rank;
    return 0;
}

/* Algorithm 0 is the heuristic's first answer. Both sides are judged: a peer that computes
 * something else would be timed for nothing. */
static void enter_peer(struct contest *c)
{
    struct kernels_setting *s = c->setting;
    struct product *p = &s->product;
    struct fault fault = FAULT_NONE;
    double error;

    if (!s->has_peer || !peer_begin(&s->peer, &p->shape, p->sets))
        return;
    for (size_t i = 0; i < s->peer.count; i++) {
        struct side *side = &c->theirs[c->their_count];

        c->choices[i] = (struct peer_choice){&s->peer, i};
        *side = (struct side){.launch = launch_peer, .context = &c->choices[i]};
        if (i == 0 && product_check(p, launch_peer, &c->choices[0], &error, &fault)) {
            printf("# the peer is left out: %s\n", fault.message);
            break;
        }
        if (side_capture(&s->gpu, side, p->set_count, p->launches) == 0)
            c->their_count++;
    }
}

static struct side *fastest(struct side *sides, size_t count)
{
    struct side *best = &sides[0];

    for (size_t i = 1; i < count; i++)
        if (sides[i].trial < best->trial)
            best = &sides[i];
    return best;
}

static void try_all(struct contest *c)
{
    struct gpu *gpu = &c->setting->gpu;
    double trial = c->setting->trial;

    side_try(gpu, &c->ours[0], KERNELS_SETTLE_TRIALS * trial); /* clocks find their place */
    for (size_t i = 0; i < c->our_count; i++)
        side_try(gpu, &c->ours[i], trial);
    for (size_t i = 0; i < c->their_count; i++)
        side_try(gpu, &c->theirs[i], trial);
}

static void write_trials(const struct contest *c)
{
    const struct product *p = &c->setting->product;
    const struct shape *shape = &p->shape;
    char text[CONFIG_TEXT_MAX];

    for (size_t i = 0; i < c->our_count; i++) {
        const struct plan *plan = &p->ranking.plan[c->rank[i]];

        config_to_text(&plan->config, text);
        fprintf(c->setting->trials,
                "%s,%s,%c%c,%lld,%lld,%lld,%s,%u,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n",
                shape->group, dtype_name(shape->dtype), shape->trans_a ? 't' : 'n',
                shape->trans_b ? 't' : 'n', (long long)shape->m, (long long)shape->n,
                (long long)shape->k, text, plan->splits, c->ours[i].trial * 1e6,
                plan->predicted_seconds * 1e6, plan->tensor_seconds * 1e6, plan->l2_seconds * 1e6,
                plan->memory_seconds * 1e6, plan->fixed_seconds * 1e6,
                c->their_count
                    ? fastest((struct side *)(uintptr_t)c->theirs, c->their_count)->trial * 1e6
                    : 0);
    }
    fflush(c->setting->trials);
}

/* Rounds of the first choice, the best of the other candidates, the peer's first answer and its
 * best one, those that differ. */
static int decide(struct contest *c, struct kernels_row *row)
{
    struct kernels_setting *s = c->setting;
    struct side *sides[4] = {&c->ours[0]};
    struct side *tuned = fastest(c->ours, c->our_count);
    struct side *first = c->their_count ? &c->theirs[0] : NULL;
    struct side *best = c->their_count ? fastest(c->theirs, c->their_count) : NULL;
    struct power power = {0};
    size_t count = 1;
    int r = 0;

    if (tuned != &c->ours[0])
        sides[count++] = tuned;
    if (first)
        sides[count++] = first;
    if (best != first)
        sides[count++] = best;
    for (size_t i = 0; i < count; i++) {
        sides[i]->seconds = sides[i]->trial;
        r = isfinite(sides[i]->trial) ? r : -1;
    }
    if (r == 0 && s->rounds.count > 0)
        r = sides_alternate(&s->gpu, sides, count, &s->rounds, &power);
    row->ours = c->ours[0].seconds;
    row->tuned = c->our_count > 1 ? MIN(tuned->seconds, c->ours[0].seconds) : 0;
    row->first = first ? first->seconds : 0;
    row->best = best ? MIN(best->seconds, first->seconds) : 0;
    row->error = c->error[0];
    row->clock_mhz = power.clock_mhz;
    row->watts = power.watts;
    return r;
}

static void leave(struct contest *c)
{
    for (size_t i = 0; i < c->our_count; i++)
        side_free(&c->setting->gpu, &c->ours[i]);
    for (size_t i = 0; i < c->their_count; i++)
        side_free(&c->setting->gpu, &c->theirs[i]);
    if (c->setting->has_peer)
        peer_end(&c->setting->peer);
}

static void print(const struct kernels_setting *s, const struct kernels_row *row)
{
    double flop = shape_flop(&row->shape);

    kernels_table_row(stdout, row, &s->goals);
    printf("# %.1f TFLOP/s, cuBLASLt best %.1f, %zu buffer sets, graph of %zu\n",
           flop / row->ours * 1e-12, row->best > 0 ? flop / row->best * 1e-12 : 0,
           s->product.set_count, s->product.launches);
    fflush(stdout);
}

static int measure(struct kernels_setting *s, struct kernels_row *row)
{
    static struct contest contest;
    const struct plan_ranking *ranking = &s->product.ranking;
    size_t wanted = MIN(ranking->count, s->candidates);
    int failed = 0, r;

    contest = (struct contest){.setting = s};
    for (size_t i = 0; i < wanted; i++)
        failed |= enter_candidate(&contest, i) != 0;
    config_to_text(&ranking->plan[0].config, row->config);
    r = contest.our_count > 0 && contest.rank[0] == 0 ? 0 : -1;
    if (r == 0) {
        enter_peer(&contest);
        kernels_heat_end(s);
        try_all(&contest);
        r = decide(&contest, row);
        heat_on(&s->heat);
        if (r)
            complain(&s->product, &ranking->plan[0].config, "timing failed");
    }
    if (r == 0) {
        print(s, row);
        if (s->trials)
            write_trials(&contest);
    }
    leave(&contest);
    return r ? r : failed;
}

int kernels_measure(struct kernels_setting *s,
                    const struct shape *shape,
                    const struct plan_ranking *ranking,
                    struct kernels_row *ret_row)
{
    *ret_row = (struct kernels_row){.shape = *shape};
    if (product_init(&s->product, &s->place, shape, ranking) < 0) {
        printf("# failed: %s %lldx%lldx%lld: no memory\n", shape->group, (long long)shape->m,
               (long long)shape->n, (long long)shape->k);
        return -1;
    }
    return measure(s, ret_row);
}
