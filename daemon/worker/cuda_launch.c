#include "cuda_launch.h"
#include "cuda_copies.h"
#include "tensor_shape.h"

_Static_assert(sizeof(struct gemmd_tensor_map) == sizeof(CUtensorMap), "passed as it is");

uint32_t cuda_launch_jobs_max(const struct cuda_kernel *kernel)
{
    if (kernel->repack)
        return 1;
    return kernel->begins_early ? GEMMD_TENSOR_JOBS : GEMMD_FEED_JOBS;
}

/* --- the grid -------------------------------------------------------------------------------- */

static uint32_t cluster_of(const struct cuda_kernel *kernel)
{
    return kernel->cluster_m * kernel->cluster_n * kernel->cluster_k;
}

static uint64_t ceil_div(int64_t size, uint64_t tile)
{
    return ((uint64_t)size + tile - 1) / tile;
}

uint64_t cuda_launch_units(const struct cuda_kernel *kernel, const struct gemmd_job *job)
{
    uint64_t unit_m = (uint64_t)kernel->tile_m * kernel->cluster_m;
    uint64_t unit_n = (uint64_t)kernel->tile_n * kernel->cluster_n;

    uint64_t units = job->tile_count;

    if (units == 0)
        units = ceil_div(job->m, unit_m) * ceil_div(job->n, unit_n) * (uint64_t)job->batch;
    return units * MAX(job->splits, 1u);
}

/* Clusters, one for each unit; where that is an element of D, a CTA has as many at once as its
 * threads do not share. */
static uint64_t walkers_for(const struct cuda_kernel *kernel, const struct gemmd_job *job)
{
    uint64_t units = cuda_launch_units(kernel, job), elements, at_once;

    if (kernel->tile_m * kernel->tile_n > 1)
        return units;
    elements = (uint64_t)job->m * (uint64_t)job->n * (uint64_t)job->batch;
    at_once = kernel->threads / gemmd_dot_threads(job, elements);
    return (units + at_once - 1) / at_once;
}

static uint64_t ctas_at_once(const struct cuda_kernel *kernel, uint32_t multiprocessors)
{
    return (uint64_t)multiprocessors * kernel->ctas_per_multiprocessor;
}

/* What the next grid waits for is its launch, not a place. All CTAs of this one have begun by then;
 * those of the next have places beside them, or take what falls free, one by one. Clusters do not:
 * of places that fall free two seldom lie beside each other. Nor do splits, which share a workspace
 * with this grid, and mostly hold a place until it has ended: 16x2112x7168 by 99 CTAs took 10 us
 * so, and 9. */
static bool
leaves_room(const struct cuda_kernel *kernel, const struct gemmd_job *job, uint32_t multiprocessors)
{
    uint64_t cluster = cluster_of(kernel), ctas = walkers_for(kernel, job) * cluster;
    bool takes_any_place = cluster == 1 && job->splits <= 1;

    return (takes_any_place ? ctas : 2 * ctas) <= ctas_at_once(kernel, multiprocessors);
}

/*
 * CTAs. A grid that walks over the feed's units need never be larger than what runs at once, nor
 * than what makes the walk no longer: where some walkers would have a last unit and others none,
 * fewer of them take as long, and leave power to the others. Not where the last units are those
 * that D ends in, and short (kernels that repack): the walk with one of them less is shorter.
 */
static unsigned
grid_size(const struct cuda_kernel *kernel, const struct gemmd_feed *feed, uint32_t multiprocessors)
{
    uint32_t cluster = cluster_of(kernel);
    uint64_t units = 0, most = INT32_MAX / cluster;
    for (uint32_t i = 0; i < feed->job_count; i++)
        units += walkers_for(kernel, &feed->jobs[i]);
    if (!kernel->has_cta_per_tile)
        most = MAX(ctas_at_once(kernel, multiprocessors) / cluster, 1u);

    uint64_t rounds = (units + most - 1) / most;
    if (kernel->repack)
        return (unsigned)MIN(units, most) * cluster;
    return (unsigned)((units + rounds - 1) / rounds) * cluster;
}

/* --- tensor maps ----------------------------------------------------------------------------- */

static CUtensorMapDataType data_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DTYPE_FP16:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    }
}

/* All boxes have rows of 128 bytes, in the 128-byte swizzle that wgmma reads. To fetch 256 bytes
 * for each of them to the L2 costs a matrix that is read once 4 to 6 % of the rate of memory. */
static int encode(const struct driver *driver,
                  const struct tensor_shape *shape,
                  struct gemmd_tensor_map *ret_map,
                  struct fault *ret_fault)
{
    static const cuuint32_t element_stride[3] = {1, 1, 1};

    return cu_try(driver, ret_fault, TensorMapEncodeTiled, (CUtensorMap *)ret_map,
                  data_type(shape->dtype), 3, (void *)(uintptr_t)shape->address, shape->size,
                  shape->stride, shape->box, element_stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static int encode_all(const struct driver *driver,
                      const struct cuda_kernel *kernel,
                      const struct gemmd_feed *feed,
                      struct gemmd_tensor_maps *ret_maps,
                      struct fault *ret_fault)
{
    struct tensor_shape shape;
    int r = 0;

    for (uint32_t i = 0; i < feed->job_count * GEMMD_TENSOR_COUNT && !r; i++) {
        uint32_t job = i / GEMMD_TENSOR_COUNT, operand = i % GEMMD_TENSOR_COUNT;
        const struct link_box *box = &kernel->box[operand];

        if (box->columns && tensor_shape_of(&feed->jobs[job], (int)operand, box, &shape))
            r = encode(driver, &shape, &ret_maps->of[job][operand], ret_fault);
        if (!r && box->columns && operand <= GEMMD_TENSOR_B &&
            tensor_shape_of_edge(&feed->jobs[job], (int)operand, box, &shape))
            r = encode(driver, &shape, &ret_maps->edge[job][operand], ret_fault);
    }
    return r;
}

/* --- the launch ------------------------------------------------------------------------------ */

#define EARLY_FLOP_MAX 6e10 /* of a launch that begins beside the end of the one before; 90 us */

static const CUlaunchAttribute beside_the_end_of_the_last = {
    .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    .value.programmaticStreamSerializationAllowed = 1,
};

int cuda_launch_beside(const struct cuda_launch_target *target,
                       CUfunction function,
                       const struct cuda_launch_shape *shape,
                       unsigned grid,
                       const void *parameter,
                       struct fault *ret_fault)
{
    void *parameters[] = {(void *)(uintptr_t)parameter};
    CUlaunchAttribute attribute = beside_the_end_of_the_last;
    CUlaunchConfig launch = {
        .gridDimX = grid,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = shape->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = shape->shared_memory,
        .hStream = target->stream,
        .attrs = &attribute,
        .numAttrs = 1,
    };

    return cu_parked_try(target->driver, ret_fault, LaunchKernelEx, &launch, function, parameters,
                         /* extra= */ NULL);
}

bool cuda_launch_is_short(const struct gemmd_job *job)
{
    return 2 * (double)job->m * (double)job->n * (double)job->k * (double)job->batch <
           EARLY_FLOP_MAX;
}

/*
 * A grid that begins beside the end of the one before takes places as they fall free, and two CTAs
 * of a cluster seldom find them beside each other. To copy for each other then takes more power,
 * and at the limit of power that costs a large product up to 3 % of its time; a launch gains a
 * microsecond or two (tests/bench/results/20261130-nvidia-h200-kernels-large-2.txt). Not so where
 * a tenth of the places or more stay free all the time: 512x7168x16384 by 112 CTAs takes 10 %
 * longer when nobody has them. Copies of inputs are a launch before the product's that ends early.
 */
static bool gains_by_beginning_early(const struct cuda_kernel *kernel,
                                     const struct gemmd_job *job,
                                     uint64_t grid,
                                     uint32_t multiprocessors)
{
    bool leaves_places = grid * 10 < ctas_at_once(kernel, multiprocessors) * 9;
    double unit = (double)kernel->tile_m * kernel->cluster_m * kernel->tile_n * kernel->cluster_n;
    double units = (double)(cuda_launch_units(kernel, job) / MAX(job->splits, 1u));

    return kernel->repack || cluster_of(kernel) == 1 || leaves_places ||
           2 * units * unit * (double)job->k < EARLY_FLOP_MAX;
}

static int launch_feed(const struct cuda_launch_target *target,
                       const struct cuda_kernel *kernel,
                       const struct gemmd_feed *feed,
                       struct fault *ret_fault)
{
    struct gemmd_tensor_maps maps = {0};
    void *parameters[] = {(void *)(uintptr_t)feed, &maps};
    /* Kernels that take maps wait for the grid before them by themselves (griddepcontrol), so they
     * may begin beside its end. A cluster of one is no cluster. */
    CUlaunchAttribute attributes[] = {
        {
            .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            .value.clusterDim = {cluster_of(kernel), 1, 1},
        },
        beside_the_end_of_the_last,
    };
    CUlaunchConfig launch = {
        .gridDimX = grid_size(kernel, feed, target->multiprocessors),
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = kernel->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = kernel->shared_memory,
        .hStream = target->stream,
        .attrs = attributes,
    };
    assert(feed->job_count <= cuda_launch_jobs_max(kernel));

    if (kernel->begins_early) {
        int r = encode_all(target->driver, kernel, feed, &maps, ret_fault);
        if (r)
            return r;
        launch.numAttrs = gains_by_beginning_early(kernel, &feed->jobs[0], launch.gridDimX,
                                                   target->multiprocessors)
                              ? 2
                              : 1;
    }
    return cu_parked_try(target->driver, ret_fault, LaunchKernelEx, &launch, kernel->function,
                         parameters, /* extra= */ NULL);
}

/* --- parts of sums that must be added -------------------------------------------------------- */

/* One CTA for each multiprocessor: all of them run from the beginning, so that the next launch may
 * begin beside the product's end. */
static int launch_sum(const struct cuda_launch_target *target,
                      const struct cuda_kernel *kernel,
                      const struct gemmd_feed *feed,
                      struct fault *ret_fault)
{
    static const struct cuda_launch_shape shape = {
        .threads = GEMMD_SUM_THREADS,
        .shared_memory = GEMMD_SUM_SHARED_MEMORY,
    };

    return cuda_launch_beside(target, kernel->sum, &shape, target->multiprocessors, feed,
                              ret_fault);
}

static int prepare(const struct cuda_launch_target *target,
                   const struct cuda_kernel *kernel,
                   struct gemmd_job *job,
                   bool *ret_reads_copies,
                   struct fault *ret_fault)
{
    int r = 0;

    *ret_reads_copies = false;
    if (kernel->repack)
        r = cuda_copies_make(target, kernel, job, ret_reads_copies, ret_fault);
    if (!r && (job->splits > 1 || kernel->sum))
        r = cuda_workspace_give(target->workspace, target->driver, target->stream, kernel, job,
                                ret_fault);
    if (kernel->begins_early && !cuda_running_touches(target->running, job))
        job->flags |= GEMMD_JOB_INPUTS_SETTLED;
    if (kernel->begins_early && cuda_running_has_room(target->running) &&
        leaves_room(kernel, job, target->multiprocessors))
        job->flags |= GEMMD_JOB_NEXT_AT_ONCE;
    return r;
}

/* Of a kernel that says nothing to the next one, which begins when all CTAs have left. That these
 * wrote is sure to be seen only by who waits (griddepcontrol.wait), so what reads it does. */
static int launch_whole(const struct cuda_launch_target *target,
                        const struct cuda_kernel *kernel,
                        const struct gemmd_feed *feed,
                        struct fault *ret_fault)
{
    struct access written[GEMMD_FEED_JOBS];
    int r = launch_feed(target, kernel, feed, ret_fault);

    if (r)
        return r;
    for (uint32_t i = 0; i < feed->job_count; i++)
        written[i] = access_of_output(&feed->jobs[i]);
    cuda_running_only(target->running, feed->job_count, written);
    return 0;
}

int cuda_launch(const struct cuda_launch_target *target,
                const struct cuda_kernel *kernel,
                const struct gemmd_feed *feed,
                struct fault *ret_fault)
{
    struct gemmd_feed own = {.job_count = feed->job_count, .jobs[0] = feed->jobs[0]};
    bool reads_copies;
    int r;

    if (!kernel->begins_early)
        return launch_whole(target, kernel, feed, ret_fault);

    assert(feed->job_count == 1); /* scratch and workspace are for one job at a time */
    r = prepare(target, kernel, &own.jobs[0], &reads_copies, ret_fault);
    if (!r)
        r = launch_feed(target, kernel, &own, ret_fault);
    if (!r && kernel->sum)
        r = launch_sum(target, kernel, &own, ret_fault);
    if (r)
        return r;
    cuda_running_add(target->running, own.jobs[0].flags & GEMMD_JOB_NEXT_AT_ONCE,
                     access_of_output(&own.jobs[0]));
    if (reads_copies)
        cuda_copies_read(target);
    return 0;
}
