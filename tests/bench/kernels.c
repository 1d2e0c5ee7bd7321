/*
 * Device time of our kernels against the best of all cuBLASLt heuristics, by the method of
 * README.md: graphs of at least 20 launches over buffers that together are larger than three times
 * the L2, a warm GPU, the sides in alternation, the median of the rounds; each checked against the
 * reference first.
 */
#include "kernels_contest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is measured ------------------------------------------------------------------------ */

/* Every configuration that computes the product and whose text contains the filter, one by one. */
static size_t
filtered(const struct kernels_setting *s, const struct shape *shape, struct config *ret)
{
    static struct config configs[CONFIG_LIST_MAX];
    const struct link_device *facts = &s->gpu.facts;
    uint32_t arch = config_arch_for_device(facts->compute_major, facts->compute_minor);
    size_t count = config_list(arch, configs), kept = 0;

    for (size_t i = 0; i < count; i++) {
        const struct config *config = &configs[i];
        char text[CONFIG_TEXT_MAX];

        config_to_text(config, text);
        if (config->input == shape->dtype && config->trans_a == shape->trans_a &&
            config->output == dtype_default_output(shape->dtype) &&
            config->trans_b == shape->trans_b && strstr(text, s->filter))
            ret[kept++] = *config;
    }
    return kept;
}

/* What the plan says of a configuration; of one that it does not choose from, nothing. */
static struct plan predicted(const struct plan_ranking *ranking, const struct config *config)
{
    for (size_t i = 0; i < ranking->count; i++)
        if (config_equal(&ranking->plan[i].config, config))
            return ranking->plan[i];
    return (struct plan){.config = *config};
}

/* The rankings of all rows: the plan's, or one for each configuration that the filter names. */
struct agenda {
    struct entry {
        struct shape shape;
        struct plan_ranking ranking;
    } * entries; /* owned */

    size_t count;
};

static int
agenda_add(struct agenda *agenda, const struct shape *shape, const struct plan_ranking *ranking)
{
    struct entry *grown = realloc(agenda->entries, (agenda->count + 1) * sizeof(*agenda->entries));

    if (!grown)
        return -1;
    agenda->entries = grown;
    grown[agenda->count].shape = *shape;
    grown[agenda->count++].ranking = *ranking;
    return 0;
}

static int agenda_fill(struct kernels_setting *s,
                       struct agenda *agenda,
                       const struct shape *shapes,
                       size_t count)
{
    static struct config configs[CONFIG_LIST_MAX];
    struct plan_ranking ranking;
    struct fault fault = FAULT_NONE;
    int r = 0;

    for (size_t i = 0; i < count && r == 0; i++) {
        if (product_rank(&s->gpu, &shapes[i], &ranking, &fault) != STATUS_OK) {
            printf("# left out: %s %s: %s\n", shapes[i].group, dtype_name(shapes[i].dtype),
                   fault.message);
            continue;
        }
        size_t kept = s->filter ? filtered(s, &shapes[i], configs) : 0;
        for (size_t j = 0; j < kept && r == 0; j++) {
            struct plan_ranking alone = {.count = 1, .plan[0] = predicted(&ranking, &configs[j])};

            r = agenda_add(agenda, &shapes[i], &alone);
        }
        if (!s->filter)
            r = agenda_add(agenda, &shapes[i], &ranking);
    }
    for (size_t i = 0; i < agenda->count; i++)
        for (size_t j = 0; j < MIN(agenda->entries[i].ranking.count, s->candidates); j++)
            kernel_set_add(&s->kernels, &agenda->entries[i].ranking.plan[j].config);
    return r;
}

static int measure_all(struct kernels_setting *s, const struct shape *shapes, size_t count)
{
    struct agenda agenda = {0};
    struct kernels_row *rows = NULL;
    struct fault fault = FAULT_NONE;
    double began = bench_now();
    size_t done = 0;
    int failed = 0;
    bool is_ready = kernels_place_init(&s->place, &s->gpu, shapes, count) == 0 &&
                    agenda_fill(s, &agenda, shapes, count) == 0;

    rows = calloc(agenda.count + 1, sizeof(*rows));
    if (!is_ready || !rows || kernels_warm_up(s, &fault) < 0) {
        fprintf(stderr, "gemmd-bench: %s\n", fault.status ? fault.message : "no memory");
        failed = 1;
    }
    printf("# %zu kernels compiled and loaded in %.1f s\n", s->kernels.count, bench_now() - began);
    kernels_table_header(stdout);
    for (size_t i = 0; i < agenda.count && s->has_heat; i++) {
        struct entry *entry = &agenda.entries[i];

        int r = kernels_measure(s, &entry->shape, &entry->ranking, &rows[done]);

        done += r >= 0;
        failed |= r != 0;
    }
    if (done > 0)
        (void)kernels_table_summary(stdout, "# ", rows, done, &s->goals);
    printf("# %zu rows in %.1f s\n", done, bench_now() - began);
    free(rows);
    free(agenda.entries);
    return failed;
}

/* --- the command ----------------------------------------------------------------------------- */

static int open_device(struct kernels_setting *s, int argc, char **argv)
{
    const char *peer = bench_option(argc, argv, "--peer", "cublaslt");
    struct fault fault = FAULT_NONE;
    const char *why = "not asked for";
    int r = gpu_open(&s->gpu, bench_option(argc, argv, "--device", "cuda"), &fault);

    r = r ? r
          : kernel_set_init(&s->kernels, &s->gpu, bench_option(argc, argv, "--kernels", NULL),
                            &fault);
    if (r) {
        fprintf(stderr, "gemmd-bench: %s\n", fault.status ? fault.message : "no kernel files");
        return r;
    }
    bench_print_facts(s->gpu.facts.name, s->gpu.facts.driver);
    s->has_peer = strcmp(peer, "none") != 0 && peer_open(&s->peer, &s->gpu, &why);
    if (!s->has_peer)
        printf("# no peer: %s\n", why);
    return 0;
}

static void print_method(const struct kernels_setting *s)
{
    printf("# warm-up: 4096^3 products keep the GPU busy from %.1f s before the first row on, and "
           "wherever the host prepares a row; then %.2f s of trials, and the row's sides in turns "
           "for %.2f s\n",
           s->warmup, KERNELS_SETTLE_TRIALS * s->trial, s->rounds.warmup);
    printf("# then %zu rounds of %.2f s for each side in turns, medians; rows of the plan's choice "
           "beside its best %zu\n",
           s->rounds.count, s->rounds.round, s->candidates);
    if (s->is_unchecked)
        printf("# of each row only the first choice was checked: these figures back nothing\n");
}

static int open_setting(struct kernels_setting *s, int argc, char **argv)
{
    const char *goals = bench_option(argc, argv, "--goals", NULL);
    const char *trials = bench_option(argc, argv, "--trials", NULL);

    s->warmup = bench_option_number(argc, argv, "--warmup", 3);
    s->rounds = (struct side_rounds){
        .warmup = bench_option_number(argc, argv, "--settle", 0.4),
        .round = bench_option_number(argc, argv, "--round", 0.08),
        .count = (size_t)bench_option_number(argc, argv, "--rounds", 5),
    };
    s->candidates = (size_t)bench_option_number(argc, argv, "--candidates", 4);
    s->candidates = MAX(s->candidates, 1);
    s->trial = bench_option_number(argc, argv, "--trial", 0.02);
    s->is_unchecked = bench_flag(argc, argv, "--unchecked");
    s->filter = bench_option(argc, argv, "--config", NULL);
    goals_default(&s->goals);
    if (goals && goals_read(goals, &s->goals) < 0)
        return EXIT_USAGE;
    if (trials && !(s->trials = fopen(trials, "we"))) {
        fprintf(stderr, "gemmd-bench: %s: %m\n", trials);
        return EXIT_USAGE;
    }
    if (s->trials)
        fprintf(s->trials, "group,dtype,layout,m,n,k,config,splits,us,predicted_us,tensor_us,l2_us,"
                           "memory_us,fixed_us,cublaslt_us\n");
    return open_device(s, argc, argv);
}

static void close_setting(struct kernels_setting *s)
{
    if (s->has_heat)
        heat_deinit(&s->heat);
    kernels_place_deinit(&s->heat_place);
    kernels_place_deinit(&s->place);
    kernel_set_deinit(&s->kernels);
    if (s->trials)
        fclose(s->trials);
    gpu_close(&s->gpu);
}

/* An earlier run's rows, judged anew. */
static int summarise(const char *path, int argc, char **argv)
{
    static struct kernels_row rows[SHAPES_MAX];
    const char *file = bench_option(argc, argv, "--goals", NULL);
    struct goals goals;
    size_t count;

    goals_default(&goals);
    if ((file && goals_read(file, &goals) < 0) || kernels_table_read(path, rows, &count) < 0)
        return EXIT_USAGE;
    return kernels_table_summary(stdout, "", rows, count, &goals) ? 0 : 1;
}

/* Rows of groups whose goals are for later are measured when they are asked for. */
static size_t leave_out_later(const struct goals *goals, struct shape *shapes, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        const struct goal *goal = goals_of_group(goals, shapes[i].group);

        if (!goal || !goal->is_later)
            shapes[kept++] = shapes[i];
    }
    return kept;
}

static int read_shapes(
    struct kernels_setting *s, int argc, char **argv, struct shape *ret_shapes, size_t *ret_count)
{
    const char *path = bench_option(argc, argv, "--shapes", NULL);
    const char *group = bench_option(argc, argv, "--group", NULL);
    size_t random = (size_t)bench_option_number(argc, argv, "--random", 0);

    *ret_count = 0;
    if (path && shapes_read(path, group, ret_shapes, ret_count) < 0)
        return -1;
    if (!group && !bench_flag(argc, argv, "--later"))
        *ret_count = leave_out_later(&s->goals, ret_shapes, *ret_count);
    random = MIN(random, SHAPES_MAX - *ret_count);
    shapes_random(random, (uint64_t)bench_option_number(argc, argv, "--seed", 1),
                  bench_flag(argc, argv, "--mixed"), ret_shapes + *ret_count);
    *ret_count += random;
    if (!path && random == 0) {
        ret_shapes[0] = shape_from_options(argc, argv, "4096x4096x4096");
        (void)snprintf(ret_shapes[0].group, sizeof(ret_shapes[0].group), "shape");
        *ret_count = 1;
    }
    return 0;
}

int bench_kernels(int argc, char **argv)
{
    static struct kernels_setting setting;
    static struct shape shapes[SHAPES_MAX];
    const char *summary = bench_option(argc, argv, "--summary", NULL);
    size_t count;
    int r;

    if (!bench_options_are_known(argc, argv,
                                 "shapes group later? random seed mixed? shape dtype layout config "
                                 "kernels peer device warmup settle round rounds candidates goals "
                                 "trials summary trial unchecked?"))
        return EXIT_USAGE;
    if (summary)
        return summarise(summary, argc, argv);
    r = open_setting(&setting, argc, argv);
    if (r)
        return r == EXIT_USAGE ? r : 1;
    if (read_shapes(&setting, argc, argv, shapes, &count) < 0)
        return EXIT_USAGE;
    print_method(&setting);
    r = measure_all(&setting, shapes, count);
    close_setting(&setting);
    return r;
}
