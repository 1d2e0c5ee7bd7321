#include "kernels_product.h"

#include "../../client/reference.h"
#include "../../daemon/worker/cuda_launch.h"
#include "../../kernels_src/abi/job.h"

#include <math.h>
#include <string.h>

#define SETS_MIN              3 /* launches overlap: two that follow each other share nothing */
#define LAUNCHES_MIN          20
#define GRAPH_SECONDS         1e-3 /* a shorter graph is measured by what starts it */
#define CHECK_MULTIPLICATIONS ((uint64_t)1 << 25)

/* --- memory ---------------------------------------------------------------------------------- */

/* Sets that together exceed three times the L2, as many as there may be. */
static size_t sets_of(const struct gpu *gpu, const struct shape *shape, size_t ret_bytes[3])
{
    size_t wanted, fitting, all;

    shape_bytes(shape, ret_bytes);
    all = ret_bytes[0] + ret_bytes[1] + ret_bytes[2];
    wanted = MAX(3 * gpu->facts.l2_cache / all + 1, SETS_MIN);
    fitting = MAX(gpu->facts.memory / 2 / all, 1);
    return MIN(MIN(wanted, fitting), KERNELS_SETS_MAX);
}

int kernels_place_init(struct kernels_place *place,
                       struct gpu *gpu,
                       const struct shape *shapes,
                       size_t count)
{
    CUresult result;
    struct fault fault;

    *place = (struct kernels_place){.gpu = gpu};
    cuda_scratch_init(&place->scratch, &gpu->driver, gpu->stream);
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        place->data[i].fd = -1;
    for (size_t i = 0; i < count; i++) {
        size_t bytes[3], sets = sets_of(gpu, &shapes[i], bytes);

        place->memory_size = MAX(place->memory_size, sets * (bytes[0] + bytes[1] + bytes[2]));
        place->result_size = MAX(place->result_size, bytes[2]);
    }
    result = GPU_CALL(gpu, MemAlloc)(&place->memory, place->memory_size);
    if (result == CUDA_SUCCESS)
        result = cu(&gpu->driver)->MemHostAlloc(&place->result, place->result_size, 0);
    if (result != CUDA_SUCCESS)
        return -1;
    /* Now, for a launch that is captured cannot. */
    return cuda_workspace_take(&place->workspace, &gpu->driver, gpu->stream, &fault) ? -1 : 0;
}

void kernels_place_deinit(struct kernels_place *place)
{
    if (!place->gpu) /* it did not come to that */
        return;
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        data_deinit(&place->data[i]);
    cuda_scratch_deinit(&place->scratch);
    if (place->memory)
        (void)GPU_CALL(place->gpu, MemFree)(place->memory);
    cuda_workspace_deinit(&place->workspace, &place->gpu->driver, place->gpu->stream);
    if (place->result)
        (void)cu_parked(&place->gpu->driver)->MemFreeHost(place->result);
    place->memory = 0;
    place->result = NULL;
}

static struct data *data_for(struct kernels_place *place, enum dtype dtype)
{
    struct data *data = &place->data[dtype];

    if (!data->view && data_init(data, place->gpu, dtype, place->memory_size) < 0)
        return NULL;
    return data;
}

int product_init(struct product *p,
                 struct kernels_place *place,
                 const struct shape *shape,
                 const struct plan_ranking *ranking)
{
    const struct data *data = data_for(place, shape->dtype);
    size_t size, rounds;
    double seconds = MAX(ranking->plan[0].predicted_seconds, 1e-6);

    if (!data)
        return -1;
    *p = (struct product){
        .place = place, .shape = *shape, .problem = shape_problem(shape), .ranking = *ranking};
    p->set_count = sets_of(place->gpu, shape, p->bytes);
    rounds = (size_t)ceil(MAX(LAUNCHES_MIN, GRAPH_SECONDS / seconds) / (double)p->set_count);
    p->launches = p->set_count * MAX(rounds, 1);
    size = p->bytes[0] + p->bytes[1] + p->bytes[2];
    for (size_t i = 0; i < p->set_count; i++) {
        p->sets[i].a = place->memory + i * size;
        p->sets[i].b = p->sets[i].a + p->bytes[0];
        p->sets[i].d = p->sets[i].b + p->bytes[1];
    }
    return data_spread(data, place->memory, p->set_count * size);
}

/* --- our side -------------------------------------------------------------------------------- */

enum status product_rank(const struct gpu *gpu,
                         const struct shape *shape,
                         struct plan_ranking *ret_ranking,
                         struct fault *fault)
{
    static const uint64_t aligned[OPERAND_COUNT];
    const struct link_device *facts = &gpu->facts;
    struct problem problem = shape_problem(shape);
    struct plan_device device = {
        .arch = config_arch_for_device(facts->compute_major, facts->compute_minor),
        .multiprocessors = facts->multiprocessors,
        .shared_memory_per_block = facts->shared_memory_per_block,
        .l2_cache = facts->l2_cache,
        .clock_hz = facts->clock_khz * 1e3,
        .memory_bytes_per_second = 2.0 * facts->memory_clock_khz * 1e3 * facts->memory_bus_bits / 8,
    };
    return plan_rank(&problem, aligned, &device, ret_ranking, fault);
}

int product_launch(void *context, CUstream stream, size_t set)
{
    const struct product_kernel *side = context;
    const struct product *p = side->product;
    const struct problem *problem = &p->problem;
    struct gpu *gpu = p->place->gpu;
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
        .splits = side->splits,
        .flags = (problem->trans_a ? GEMMD_JOB_TRANS_A : 0u) |
                 (problem->trans_b ? GEMMD_JOB_TRANS_B : 0u),
    };
    struct cuda_launch_target target = {.driver = &gpu->driver,
                                        .multiprocessors = gpu->facts.multiprocessors,
                                        .stream = stream,
                                        .scratch = &p->place->scratch,
                                        .workspace = &p->place->workspace,
                                        .running = &p->place->running};
    return cuda_launch(&target, side->kernel, &feed, &fault);
}

/* --- the check ------------------------------------------------------------------------------- */

/* D was poisoned with ones: a NaN that no product of finite numbers gives. */
static bool is_written(const struct product *p)
{
    size_t element = dtype_size(p->problem.output);
    size_t count = (size_t)p->problem.m * (size_t)p->problem.n, unwritten = 0;

    if (p->problem.output == DTYPE_INT32)
        return true; /* -1 may be a result */
    if (element == 2) {
        const uint16_t *d = p->place->result;
        for (size_t i = 0; i < count; i++)
            unwritten += d[i] == UINT16_MAX;
    } else {
        const uint32_t *d = p->place->result;
        for (size_t i = 0; i < count * (element / 4); i++)
            unwritten += d[i] == UINT32_MAX;
    }
    return unwritten == 0;
}

static CUresult compute(struct product *p, gpu_launch_fn launch, void *context)
{
    struct gpu *gpu = p->place->gpu;
    CUresult r =
        cu_parked(&gpu->driver)->MemsetD8Async(p->sets[0].d, 0xff, p->bytes[2], gpu->stream);

    r = r ? r : (CUresult)launch(context, gpu->stream, 0);
    r = r ? r
          : cu(&gpu->driver)
                ->MemcpyDtoHAsync(p->place->result, p->sets[0].d, p->bytes[2], gpu->stream);
    return r ? r : cu(&gpu->driver)->StreamSynchronize(gpu->stream);
}

int product_check(
    struct product *p, gpu_launch_fn launch, void *context, double *ret_error, struct fault *fault)
{
    struct gpu *gpu = p->place->gpu;
    const char *view = p->place->data[p->shape.dtype].view;
    struct reference_operands operands = {
        .a = view, .b = view + p->bytes[0], .d = p->place->result};
    struct reference_report report;
    CUresult r = compute(p, launch, context);

    if (r)
        return driver_check(&gpu->driver, r, "the first launch", fault);
    if (reference_check(&p->problem, &operands, CHECK_MULTIPLICATIONS, &report) < 0)
        return -1;
    *ret_error = report.worst_ratio;
    if (!reference_is_right(&report)) {
        fault->status = STATUS_INTERNAL;
        reference_describe(&report, fault->message, sizeof(fault->message));
        return -1;
    }
    if (is_written(p))
        return 0;
    (void)fault_set(fault, STATUS_INTERNAL, "", "an element of D was not written");
    return -1;
}
