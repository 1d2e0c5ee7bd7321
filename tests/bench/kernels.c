/*
 * Device time of our kernels against the best of all cuBLASLt heuristics, by the method of
 * bench/README.md: graphs of at least 20 launches over buffers that together are larger than three
 * times the L2, warmed up, the sides in alternation, the median of the rounds; checked against the
 * reference first.
 */
#include "../../client/reference.h"
#include "../../daemon/jit/nvrtc.h"
#include "../../daemon/plan/plan.h"
#include "../../daemon/worker/cuda_launch.h"
#include "../../kernels_src/abi/job.h"
#include "../support/load_request.h"
#include "peer.h"
#include "power.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCHES_MIN          20
#define SETS_MAX              512
#define ROUND_SECONDS         0.1 /* of one side in one round */
#define TRIAL_SECONDS         0.02
#define CHECK_MULTIPLICATIONS ((uint64_t)1 << 27)

struct setting {
    struct gpu gpu;
    struct peer peer;
    bool has_peer;
    struct nvrtc *nvrtc;
    struct sources sources;
    double warmup;
    size_t rounds;
    uint64_t next_kernel;
};

/* One product: its memory and our kernel for it. */
struct product {
    struct setting *setting;
    const struct shape *shape;
    struct problem problem;
    struct plan plan;
    const struct cuda_kernel *kernel;
    size_t bytes[3]; /* of A, B, D, rounded up */
    void *host[3];
    CUdeviceptr memory; /* all sets */
    struct peer_buffers sets[SETS_MAX];
    size_t set_count, launches;
};

struct figures {
    double ours, first, best; /* seconds */
    double error;             /* worst, over the bound */
};

/* --- our side -------------------------------------------------------------------------------- */

static void describe(struct product *p)
{
    const struct shape *shape = p->shape;
    p->problem = (struct problem){.input = shape->dtype,
                                  .output = dtype_default_output(shape->dtype),
                                  .m = shape->m,
                                  .n = shape->n,
                                  .k = shape->k,
                                  .batch = 1,
                                  .trans_a = shape->trans_a,
                                  .trans_b = shape->trans_b,
                                  .alpha = 1};
    for (int i = 0; i < OPERAND_COUNT; i++)
        p->problem.operand[i] = (struct problem_operand){PROBLEM_DEFAULT, PROBLEM_DEFAULT};
    problem_fill_defaults(&p->problem);
}

static int choose(struct product *p, struct fault *fault)
{
    static const uint64_t aligned[OPERAND_COUNT];
    const struct link_device *facts = &p->setting->gpu.facts;
    struct plan_device device = {
        .arch = config_arch_for_device(facts->compute_major, facts->compute_minor),
        .multiprocessors = facts->multiprocessors,
        .shared_memory_per_block = facts->shared_memory_per_block,
        .l2_cache = facts->l2_cache,
        .clock_hz = facts->clock_khz * 1e3,
        .memory_bytes_per_second = 2.0 * facts->memory_clock_khz * 1e3 * facts->memory_bus_bits / 8,
    };
    return plan_choose(&p->problem, aligned, &device, &p->plan, fault) == STATUS_OK ? 0 : 1;
}

static int load(struct product *p, struct fault *fault)
{
    struct setting *s = p->setting;
    const struct config *config = &p->plan.config;
    struct link_message request = load_request(config, s->next_kernel++, 0);
    struct nvrtc_result result = {0};
    int r = nvrtc_compile(s->nvrtc, &s->sources, config, &result);
    if (r)
        fault_set(fault, STATUS_COMPILE_FAILED, "", "%s", result.log ? result.log : "no log");
    else
        r = cuda_kernels_load(&s->gpu.kernels, &request, result.cubin.bytes, fault);
    nvrtc_result_deinit(&result);
    p->kernel = r ? NULL : cuda_kernels_find(&s->gpu.kernels, request.id);
    return r;
}

static int launch(void *context, CUstream stream, size_t set)
{
    struct product *p = context;
    const struct problem *problem = &p->problem;
    struct gemmd_feed feed = {.job_count = 1};
    struct fault fault;
    feed.jobs[0] = (struct gemmd_job){
        .a = p->sets[set].a,
        .b = p->sets[set].b,
        .d = p->sets[set].d,
        .m = problem->m,
        .n = problem->n,
        .k = problem->k,
        .batch = 1,
        .lda = problem->operand[OPERAND_A].ld,
        .ldb = problem->operand[OPERAND_B].ld,
        .ldc = problem->operand[OPERAND_C].ld,
        .ldd = problem->operand[OPERAND_D].ld,
        .alpha = 1,
        .input = problem->input,
        .output = problem->output,
        .flags = (problem->trans_a ? GEMMD_JOB_TRANS_A : 0u) |
                 (problem->trans_b ? GEMMD_JOB_TRANS_B : 0u),
    };
    return cuda_launch(&p->setting->gpu.driver, p->kernel, &feed,
                       p->setting->gpu.facts.multiprocessors, stream, &fault);
}

/* --- memory ---------------------------------------------------------------------------------- */

static size_t round_up(size_t value)
{
    return (value + 255) / 256 * 256;
}

static int allocate(struct product *p)
{
    static const enum operand_role roles[] = {OPERAND_A, OPERAND_B, OPERAND_D};
    struct gpu *gpu = &p->setting->gpu;
    size_t set_bytes = 0;
    for (int i = 0; i < 3; i++) {
        p->bytes[i] = round_up(problem_span(&p->problem, roles[i]));
        p->host[i] = calloc(1, p->bytes[i]);
        if (!p->host[i])
            return 1;
        set_bytes += p->bytes[i];
    }

    size_t wanted = 3 * gpu->facts.l2_cache / set_bytes + 1;
    size_t fitting = MAX(gpu->facts.memory / 2 / set_bytes, 1);
    p->set_count = MIN(MIN(wanted, fitting), SETS_MAX);
    p->launches = p->set_count * ((LAUNCHES_MIN + p->set_count - 1) / p->set_count);
    if (GPU_CALL(gpu, MemAlloc)(&p->memory, p->set_count * set_bytes) != CUDA_SUCCESS)
        return 1;
    for (size_t i = 0; i < p->set_count; i++) {
        p->sets[i].a = p->memory + i * set_bytes;
        p->sets[i].b = p->sets[i].a + p->bytes[0];
        p->sets[i].d = p->sets[i].b + p->bytes[1];
    }
    return 0;
}

static int fill(struct product *p)
{
    __typeof__(cuMemcpyHtoD) *copy = GPU_CALL(&p->setting->gpu, MemcpyHtoD);
    size_t element = dtype_size(p->problem.input);
    CUresult r = CUDA_SUCCESS;
    bench_fill(p->problem.input, p->host[0], p->bytes[0] / element, 1);
    bench_fill(p->problem.input, p->host[1], p->bytes[1] / element, 2);
    for (size_t i = 0; i < p->set_count && r == CUDA_SUCCESS; i++) {
        r = copy(p->sets[i].a, p->host[0], p->bytes[0]);
        r = r ? r : copy(p->sets[i].b, p->host[1], p->bytes[1]);
    }
    return (int)r;
}

static void deinit(struct product *p)
{
    if (p->memory)
        (void)GPU_CALL(&p->setting->gpu, MemFree)(p->memory);
    for (int i = 0; i < 3; i++)
        free(p->host[i]);
    if (p->kernel)
        cuda_kernels_unload(&p->setting->gpu.kernels, p->kernel->id);
}

/* --- measuring ------------------------------------------------------------------------------- */

/* Both sides are judged: a peer that computes something else would be timed for nothing. */
static int check(struct product *p,
                 gpu_launch_fn launch_fn,
                 void *context,
                 double *ret_error,
                 struct fault *fault)
{
    struct gpu *gpu = &p->setting->gpu;
    struct reference_report report;
    struct reference_operands operands = {.a = p->host[0], .b = p->host[1], .d = p->host[2]};
    reference_poison(p->host[2], p->bytes[2]);
    CUresult r = GPU_CALL(gpu, MemcpyHtoD)(p->sets[0].d, p->host[2], p->bytes[2]);
    r = r ? r : (CUresult)launch_fn(context, gpu->stream, 0);
    r = r ? r : cu(&gpu->driver)->StreamSynchronize(gpu->stream);
    r = r ? r : GPU_CALL(gpu, MemcpyDtoH)(p->host[2], p->sets[0].d, p->bytes[2]);
    if (r)
        return driver_check(&gpu->driver, r, "the first launch", fault);
    if (reference_check(&p->problem, &operands, CHECK_MULTIPLICATIONS, &report) < 0)
        return 1;

    *ret_error = report.worst_ratio;
    if (reference_is_right(&report))
        return 0;
    fault->status = STATUS_INTERNAL;
    reference_describe(&report, fault->message, sizeof(fault->message));
    return 1;
}

static size_t repeats_for(double seconds, const struct gpu_graph *graph, double one)
{
    return (size_t)MAX(1.0, ceil(seconds / (one * (double)graph->launches)));
}

/* Leaves the fastest algorithm chosen; its graph and the first one's are returned. */
static int pick_peer(struct product *p, struct gpu_graph *ret_first, struct gpu_graph *ret_best)
{
    struct setting *s = p->setting;
    double fastest = INFINITY;
    for (size_t i = 0; i < s->peer.count; i++) {
        struct gpu_graph graph;
        s->peer.chosen = i;
        /* once outside of a capture: the library loads its kernel then */
        if (peer_launch(&s->peer, s->gpu.stream, 0) ||
            cu(&s->gpu.driver)->StreamSynchronize(s->gpu.stream))
            continue;
        if (gpu_graph_capture(&s->gpu, peer_launch, &s->peer, p->set_count, p->launches, &graph))
            continue;
        double one = gpu_graph_time(&s->gpu, &graph, 2);
        one = gpu_graph_time(&s->gpu, &graph, repeats_for(TRIAL_SECONDS, &graph, one));
        bool is_best = one > 0 && one < fastest;
        if (is_best) {
            fastest = one;
            if (ret_best->executable != ret_first->executable)
                gpu_graph_free(&s->gpu, ret_best);
            *ret_best = graph;
        }
        if (!ret_first->executable)
            *ret_first = graph;
        else if (!is_best)
            gpu_graph_free(&s->gpu, &graph);
    }
    return isinf(fastest);
}

static double median_of(double *values, size_t count)
{
    struct samples samples = {values, count};
    return samples_median(&samples);
}

static int alternate(struct setting *s, struct gpu_graph graphs[3], double ret_seconds[3])
{
    double one[3], *rounds = calloc(3 * s->rounds, sizeof(double));
    int r = !rounds;
    for (int i = 0; i < 3 && !r; i++) {
        one[i] = graphs[i].executable ? gpu_graph_time(&s->gpu, &graphs[i], 2) : 1;
        r = one[i] <= 0;
    }
    for (double end = bench_now() + s->warmup; bench_now() < end && !r;) {
        for (int i = 0; i < 3 && !r; i++)
            r = graphs[i].executable &&
                gpu_graph_time(&s->gpu, &graphs[i],
                               repeats_for(ROUND_SECONDS, &graphs[i], one[i])) < 0;
    }
    for (size_t round = 0; round < s->rounds && !r; round++) {
        for (int i = 0; i < 3 && !r; i++) {
            double *value = &rounds[(size_t)i * s->rounds + round];
            if (!graphs[i].executable)
                continue;
            *value =
                gpu_graph_time(&s->gpu, &graphs[i], repeats_for(ROUND_SECONDS, &graphs[i], one[i]));
            r = *value < 0;
        }
    }
    for (int i = 0; i < 3 && !r; i++)
        ret_seconds[i] = median_of(&rounds[(size_t)i * s->rounds], s->rounds);
    free(rounds);
    return r;
}

static int measure(struct product *p, struct figures *figures, struct fault *fault)
{
    struct setting *s = p->setting;
    struct gpu_graph graphs[3] = {0};
    double seconds[3] = {0};
    double peer_error;
    bool has_peer = s->has_peer && peer_begin(&s->peer, p->shape, p->sets);
    if (has_peer && check(p, peer_launch, &s->peer, &peer_error, fault)) {
        printf("# the peer is left out: %s\n", fault->message);
        peer_end(&s->peer);
        has_peer = false;
        *fault = FAULT_NONE;
    }
    int r = gpu_graph_capture(&s->gpu, launch, p, p->set_count, p->launches, &graphs[0]);
    if (has_peer && !r)
        (void)pick_peer(p, &graphs[1], &graphs[2]);
    r = r ? r : alternate(s, graphs, seconds);
    if (r)
        fault_set(fault, STATUS_INTERNAL, "", "timing failed (%d)", r);
    figures->ours = seconds[0];
    figures->first = seconds[1];
    figures->best = MIN(seconds[1], seconds[2]); /* trials are short, rounds decide */
    if (graphs[2].executable != graphs[1].executable)
        gpu_graph_free(&s->gpu, &graphs[2]);
    gpu_graph_free(&s->gpu, &graphs[1]);
    gpu_graph_free(&s->gpu, &graphs[0]);
    if (has_peer)
        peer_end(&s->peer);
    return r;
}

/* --- rows ------------------------------------------------------------------------------------ */

static void print(const struct product *p, const struct figures *f)
{
    const struct shape *shape = p->shape;
    struct power power = power_now(p->setting->gpu.facts.uuid);
    char text[CONFIG_TEXT_MAX];
    config_to_text(&p->plan.config, text);
    printf("%s,%s,%c%c,%lld,%lld,%lld,%s,%.2f,%.2f,%.2f,%.4f,,%.3g\n", shape->group,
           dtype_name(shape->dtype), shape->trans_a ? 't' : 'n', shape->trans_b ? 't' : 'n',
           (long long)shape->m, (long long)shape->n, (long long)shape->k, text, f->ours * 1e6,
           f->first * 1e6, f->best * 1e6, f->best / f->ours, f->error);
    printf("# %.1f TFLOP/s, cuBLASLt best %.1f, %u MHz, %u W, %zu buffer sets, graph of %zu\n",
           problem_flop(&p->problem) / f->ours * 1e-12,
           f->best > 0 ? problem_flop(&p->problem) / f->best * 1e-12 : 0, power.clock_mhz,
           power.watts, p->set_count, p->launches);
    fflush(stdout);
}

/* With `config`, or with what the plan chooses. */
static int
row(struct setting *s, const struct shape *shape, const struct config *config, double *ret_ratio)
{
    static struct product p;
    struct figures figures = {0};
    struct fault fault = FAULT_NONE;
    p = (struct product){.setting = s, .shape = shape};
    describe(&p);
    int r = config ? 0 : choose(&p, &fault);
    if (config)
        p.plan.config = *config;
    r = r ? r : load(&p, &fault);
    r = r ? r : allocate(&p);
    r = r ? r : fill(&p);
    r = r ? r : check(&p, launch, &p, &figures.error, &fault);
    r = r ? r : measure(&p, &figures, &fault);
    if (r)
        printf("# failed: %s %lldx%lldx%lld: %s\n", shape->group, (long long)shape->m,
               (long long)shape->n, (long long)shape->k,
               fault.status ? fault.message : "no memory");
    else
        print(&p, &figures);
    *ret_ratio = r || figures.best <= 0 ? 0 : figures.best / figures.ours;
    deinit(&p);
    return r;
}

/* A row for each configuration that computes the product and whose text contains `filter`. */
static int
rows(struct setting *s, const struct shape *shape, const char *filter, double *ret_best_ratio)
{
    static struct config configs[CONFIG_LIST_MAX];
    const struct link_device *facts = &s->gpu.facts;
    uint32_t arch = config_arch_for_device(facts->compute_major, facts->compute_minor);
    size_t count = config_list(arch, configs);
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        const struct config *config = &configs[i];
        char text[CONFIG_TEXT_MAX];
        double ratio;
        config_to_text(config, text);
        if (config->input != shape->dtype || config->trans_a != shape->trans_a ||
            config->output != dtype_default_output(shape->dtype) ||
            config->trans_b != shape->trans_b || !strstr(text, filter))
            continue;
        failed |= row(s, shape, config, &ratio) != 0;
        *ret_best_ratio = MAX(*ret_best_ratio, ratio);
    }
    return failed;
}

static void print_means(const struct shape *shapes, const double *ratios, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        size_t n = 0;
        bool is_first = true;
        for (size_t j = 0; j < count; j++) {
            if (strcmp(shapes[i].group, shapes[j].group) != 0)
                continue;
            is_first = is_first && j >= i;
            sum += ratios[j] > 0 ? log(ratios[j]) : 0;
            n += ratios[j] > 0;
        }
        if (is_first && n > 0)
            printf("# %s: geometric mean %.4f of %zu\n", shapes[i].group, exp(sum / (double)n), n);
    }
}

static int open_setting(struct setting *s, int argc, char **argv)
{
    struct fault fault = FAULT_NONE;
    const char *why = "";
    *s = (struct setting){.warmup = bench_option_number(argc, argv, "--warmup", 3),
                          .rounds = (size_t)bench_option_number(argc, argv, "--rounds", 5)};
    s->rounds = MAX(s->rounds, 1);
    int r = gpu_open(&s->gpu, bench_option(argc, argv, "--device", "cuda"), &fault);
    r = r ? r : nvrtc_new(&s->nvrtc, &fault);
    r = r ? r : sources_open(&s->sources, bench_option(argc, argv, "--kernels", NULL));
    if (r) {
        fprintf(stderr, "gemmd-bench: %s\n", fault.status ? fault.message : "no kernel files");
        return r;
    }
    bench_print_facts(s->gpu.facts.name, s->gpu.facts.driver);
    s->has_peer = peer_open(&s->peer, &s->gpu, &why);
    if (!s->has_peer)
        printf("# no peer: %s\n", why);
    return 0;
}

int bench_kernels(int argc, char **argv)
{
    static struct setting setting;
    static struct shape shapes[SHAPES_MAX] = {
        {.group = "square", .dtype = DTYPE_BF16, .trans_b = true, .m = 4096, .n = 4096, .k = 4096},
    };
    static double ratios[SHAPES_MAX];
    size_t count = 1;
    int failed = 0;
    const char *path = bench_option(argc, argv, "--shapes", NULL);
    const char *filter = bench_option(argc, argv, "--config", NULL);
    if (path && shapes_read(path, bench_option(argc, argv, "--group", NULL), shapes, &count) < 0)
        return EXIT_USAGE;
    if (open_setting(&setting, argc, argv))
        return 1;

    printf("group,dtype,layout,m,n,k,config,us,cublaslt_first_us,cublaslt_best_us,ratio,"
           "tuned_ratio,error\n");
    for (size_t i = 0; i < count; i++)
        failed |= filter ? rows(&setting, &shapes[i], filter, &ratios[i])
                         : row(&setting, &shapes[i], NULL, &ratios[i]) != 0;
    print_means(shapes, ratios, count);
    nvrtc_free(setting.nvrtc);
    sources_deinit(&setting.sources);
    gpu_close(&setting.gpu);
    return failed;
}
