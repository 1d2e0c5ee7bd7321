/*
 * Cost model of the hopper family: what a product costs with tensor copies and wgmma.
 *
 * CTAs walk, so the time is that of the one with the most tiles: its turns of the loop over K, then
 * the epilogue where nothing overlaps it. While all are busy the clock falls to what the power
 * limit allows; what they take together is bounded by the L2 and by HBM. Two bounds that are near
 * each other both cost something: their higher norm is taken, not the larger one. The first K tile
 * of a launch and the last store are latency that every launch has. It runs beside the work of the
 * launch before, but for what is waited for: a low norm of both. And where several grids find
 * places at once, each has its part of the wait for first copies.
 *
 * Constants are from an H200, of bf16 in A[M,K] and B[N,K]: 64^3 to 8192^3, the layers of models
 * and a random draw, in graphs of launches over rotating buffers. Of what takes more than 10 us the
 * root of the mean square of log(predicted / measured) is 0.08, of less 0.15
 * (tests/unit/test_plan_trials.c). Not where grids of a long K that leave room run beside each
 * other, which up to eight do in such a graph: what a product takes by itself is what counts. Of
 * 64^3 to 512^3, which a launch takes longer to begin than to do, the row is all there is.
 */
#include "plan_hopper.h"
#include "plan_hopper_direct.h"
#include "plan_hopper_parts.h"
#include "plan_hopper_split.h"
#include "plan_hopper_stream.h"

#include <math.h>

#define FLOP_PER_CLOCK   4096.0  /* of a multiprocessor, 16-bit operands, fp32 sums */
#define TURN_CLOCKS      262.0   /* of the loop over K tiles: 128 of products, 134 between them */
#define L2_BYTES_CLOCK   49.5    /* of a multiprocessor when all of them load */
#define LINE             128     /* bytes; what copies move of a row at a time, too */
#define SECTOR           32      /* bytes; what the L2 reads of a line at a time */
#define CHUNK            16      /* bytes; what a thread stores at a time */
#define SPLIT_LINES      1.2     /* what a copy costs whose every part lies in two lines */
#define SPLIT_SECTORS    1.8     /* and begins within a sector */
#define STORE_BYTES_CLK  64.0    /* of a multiprocessor, from registers */
#define LAUNCH_SECONDS   0.25e-6 /* beside the end of the one before */
#define LAUNCH_NORM      1.25    /* of what a launch waits for and the work of others */
#define REPACK_SECONDS   0.8e-6  /* a launch more, beside the product before */
#define REPACK_MOVES     2.4     /* bytes of memory for each: read, written, and partly read back */
#define CLUSTER_SECONDS  0.2e-6  /* until all CTAs of a cluster have begun */
#define STORE_COST       1.45    /* of memory's time: it reads at 4.47 TB/s and copies at 3.66 */
#define STORE_NORM       1.3     /* of D's stores and all else */
#define ANY_SHARE        0.4     /* of such a D, that its bytes count more */
#define ANY_SECONDS      0.7e-6  /* stores of rows that start anywhere, after the last product */
#define NORM             4.0
#define EDGE_EXTENT      64     /* of D in its last tile, for which half of the products do */
#define EDGE_SHARE       0.4    /* of a whole unit's time, and no less than the loop's turns */
#define FILL_CLOCKS      1900.0 /* barriers, first copies, the end of the last store */
#define GRIDS_BESIDE     8      /* that a row of launches has at once, at most */
#define BESIDE_SHARE     0.75   /* of the products' time, of a grid that leaves room for the next */
#define BESIDE_AREA      (128 * 128)
#define BESIDE_CLOCKS    16000.0
#define BESIDE_FLOP      6e10
#define TILE_CLOCKS      680.0 /* between two tiles of a CTA, besides the store */
#define FUSED_CLOCKS     0.6   /* of an element: bias, activation, by latencies; not measured */
#define DEFAULT_CLOCK    1.7e9
#define DEFAULT_HBM_RATE 4.0e12
#define HBM_EFFICIENCY   0.93
#define EXTENT_MAX       (INT64_C(1) << 31) /* coordinates of tensor copies are 32 bits, signed */
#define UNITS_MAX        0x1p31
#define STRIDE_MAX       (INT64_C(1) << 40) /* bytes, of a tensor map */

static double divide_up(int64_t value, uint32_t by)
{
    return ceil((double)value / by);
}

static bool strides_fit(const struct problem *problem)
{
    for (int role = 0; role < OPERAND_COUNT; role++) {
        const struct problem_operand *operand = &problem->operand[role];
        bool is_input = role == OPERAND_A || role == OPERAND_B;
        int64_t size = (int64_t)dtype_size(is_input ? problem->input : problem->output);

        if (operand->ld >= STRIDE_MAX / size)
            return false;
        if (problem->batch > 1 && operand->stride >= STRIDE_MAX / size)
            return false;
    }
    return true;
}

/* A tile may begin within the extent and end beyond it, and a walk over every so many K tiles ends
 * beyond it by as many: a margin of the largest tile times the most splits. */
bool plan_hopper_can(const struct problem *problem)
{
    int64_t most = EXTENT_MAX - (1 << 16);
    double smallest_tiles = divide_up(problem->m, 16) * divide_up(problem->n, 64);

    return problem->m < most && problem->n < most && problem->k < most && problem->batch < most &&
           smallest_tiles * (double)problem->batch < UNITS_MAX && strides_fit(problem);
}

static bool is_fused(const struct problem *problem)
{
    return problem->bias != BIAS_NONE || problem->activation != ACTIVATION_NONE;
}

bool plan_hopper_is_plain(const struct problem *problem)
{
    return !is_fused(problem) && problem->beta == 0 &&
           problem->n * (int64_t)dtype_size(problem->output) % CHUNK == 0;
}

bool plan_hopper_finishes(const struct problem *problem, const struct config *config)
{
    if (config->copy != CONFIG_COPY_TMA)
        return true;
    return config_is_split(config) ? !is_fused(problem) : plan_hopper_is_plain(problem);
}

bool plan_hopper_fits(const struct problem *problem, const struct config *config)
{
    return !config_leaves_parts(config) || plan_splits_max(problem, config) > 0;
}

/* Share of the tensor cores' rate that the main loop reaches. A group of 64 rows leaves gaps
 * between its products; two of them, and one of ping-pong's, which has 128 rows, fill each other's;
 * a narrow tile reads more of shared memory for a product. Of ping-pong groups one has nothing to
 * do where a CTA has one tile. Where the device is full its power decides, and this only for rounds
 * that fill a part of it. */
static double loop_efficiency(const struct config *config, double rounds)
{
    if (config->tile_m * config->tile_n >= 128 * 256)
        return 0.73;
    if (config->schedule == CONFIG_SCHEDULE_PINGPONG && rounds > 1)
        return 0.94;
    if (config->schedule == CONFIG_SCHEDULE_PINGPONG)
        return config->tile_n > 128 ? 0.74 : config->tile_n > 64 ? 0.94 : 0.66;
    if (config->tile_m == 64) /* a group alone */
        return config->tile_n == 128 ? 0.66 : 0.71;
    return 0.94;
}

/* Share of that rate which the device has power for, all of it busy, random operands: what a
 * product costs besides the tensor cores is least in the largest tiles. */
static double power_share(const struct config *config)
{
    if (config->tile_m * config->tile_n >= 128 * 256)
        return config->copy == CONFIG_COPY_TMA ? 0.67 : 0.63;
    if (config->tile_m == 64)
        return config->tile_n == 128 ? 0.485 : 0.58;
    if (config->tile_n <= 64) /* as much of A for half of the products */
        return 0.56;
    if (config->schedule == CONFIG_SCHEDULE_PINGPONG)
        return config->tile_n > 128 ? 0.66 : 0.645;
    if (config->tile_n >= 192)
        return config->cluster_m * config->cluster_n == 1 ? 0.655 : 0.635;
    return config->copy == CONFIG_COPY_TMA ? 0.64 : 0.62;
}

static double stored_bytes(const struct problem *problem)
{
    return (double)problem->m * (double)problem->n * (double)problem->batch *
           (double)dtype_size(problem->output);
}

/* Every operand once. */
static double loaded_bytes(const struct problem *problem)
{
    double batch = (double)problem->batch, m = (double)problem->m, n = (double)problem->n;
    double a = problem->operand[OPERAND_A].stride == 0 ? 1 : batch;
    double b = problem->operand[OPERAND_B].stride == 0 ? 1 : batch;
    double c = problem->beta != 0 ? stored_bytes(problem) : 0;

    return (double)dtype_size(problem->input) * (double)problem->k * (a * m + b * n) + c;
}

/* Compulsory traffic. */
static double memory_bytes(const struct problem *problem)
{
    return loaded_bytes(problem) + stored_bytes(problem);
}

/* Bytes of D that count beside those: rows that start anywhere begin and end within sectors. */
static double unaligned_bytes(const struct problem *problem, const struct config *config)
{
    int64_t size = (int64_t)dtype_size(problem->output);
    bool is_aligned = problem->operand[OPERAND_D].ld * size % CHUNK == 0;

    if (config->copy != CONFIG_COPY_REPACK || is_aligned)
        return 0;
    return ANY_SHARE * (double)(problem->m * problem->n * problem->batch * size);
}

/* Of memory. Loads run beside the products. CTAs walk in step, so all of them store at once, and
 * such a burst leaves less for what runs beside it. */
struct traffic {
    double load_seconds, store_seconds;
};

static struct traffic
traffic_of(const struct problem *problem, const struct config *config, double rate)
{
    double loaded = loaded_bytes(problem);
    double stored = STORE_COST * stored_bytes(problem) + unaligned_bytes(problem, config);

    return (struct traffic){
        .load_seconds = loaded / rate,
        .store_seconds = stored / rate,
    };
}

/* Units along one side that take as long as any. */
static double whole_units(int64_t extent, uint32_t unit)
{
    bool has_edge = extent % unit != 0 && extent % unit <= EDGE_EXTENT;

    return divide_up(extent, unit) - (has_edge ? 1 : 0);
}

double plan_hopper_clock(const struct plan_device *device)
{
    return device->clock_hz > 0 ? device->clock_hz : DEFAULT_CLOCK;
}

double plan_hopper_memory_rate(const struct plan_device *device)
{
    return device->memory_bytes_per_second > 0 ? device->memory_bytes_per_second : DEFAULT_HBM_RATE;
}

/* The launch before the product's reads what it copies once, and writes it once. */
double plan_hopper_repack(const struct config *config, double bytes, double hbm)
{
    if (config->copy != CONFIG_COPY_REPACK || bytes == 0)
        return 0;
    return REPACK_SECONDS + REPACK_MOVES * bytes / (hbm * HBM_EFFICIENCY);
}

/* Repacked rows start on whole lines. */
static double
line_cost(const struct problem *problem, const struct config *config, enum operand_role role)
{
    int64_t pitch = problem->operand[role].ld * (int64_t)dtype_size(problem->input);

    if (config->copy == CONFIG_COPY_REPACK || pitch % LINE == 0)
        return 1;
    return pitch % SECTOR == 0 ? SPLIT_LINES : SPLIT_SECTORS;
}

double plan_hopper_rounds(double rounds, double tile, double powered)
{
    double rest = rounds - floor(rounds);

    return floor(rounds) * fmax(tile, powered) + (rest > 0 ? fmax(tile, powered * rest) : 0);
}

/* Kernels that repack leave out products of units in which D ends early, and take those last: they
 * fill the last round of the others, then have rounds of their own. */
static double trimmed_rounds(const struct problem *problem,
                             const struct config *config,
                             double walkers,
                             double tile,
                             double powered)
{
    uint32_t unit_m = config->tile_m * config->cluster_m;
    uint32_t unit_n = config->tile_n * config->cluster_n;
    double batch = (double)problem->batch;
    double units = divide_up(problem->m, unit_m) * divide_up(problem->n, unit_n) * batch;
    double whole = whole_units(problem->m, unit_m) * whole_units(problem->n, unit_n) * batch;
    double rest = whole / walkers - floor(whole / walkers);
    double edge = fmax(EDGE_SHARE * tile, divide_up(problem->k, config->tile_k) * TURN_CLOCKS);
    double filled = rest > 0 ? (1 - rest) * walkers * tile / fmax(edge, 1) : 0;
    double edges = fmax(units - whole - filled, 0);

    return plan_hopper_rounds(whole / walkers, tile, powered) + ceil(edges / walkers) * edge;
}

double plan_hopper_norm(double a, double b, double order)
{
    double large = fmax(a, b), small = fmin(a, b);

    return large > 0 ? large * pow(1 + pow(small / large, order), 1 / order) : 0;
}

double plan_hopper_wait_share(const struct config *config, double units, double places)
{
    if (config->copy != CONFIG_COPY_TMA)
        return 1;
    return 1 / fmin(fmax(floor(places / units), 1), GRIDS_BESIDE);
}

double plan_hopper_in_a_row(double work, double wait)
{
    return plan_hopper_norm(work, wait, LAUNCH_NORM);
}

static double norm(double a, double b)
{
    return plan_hopper_norm(a, b, NORM);
}

static double ctas_of(const struct config *config)
{
    struct config_resources resources;

    config_resources(config, &resources);
    return resources.ctas_per_multiprocessor;
}

/* Of a CTA's ways out, each `way_out` clocks after `loop` of products: what no products hide. Of
 * two ping-pong groups one stores while the other multiplies, which hides as much as that takes.
 * 128x256 leaves late, too, but is rounded first, which between two tiles takes half a microsecond,
 * and is counted as its store (kernels_src/epi/way_out.cuh). */
static double shown_clocks(const struct config *config, double rounds, double loop, double way_out)
{
    if (config->schedule == CONFIG_SCHEDULE_PINGPONG)
        return way_out + fmax(rounds - 1, 0) * fmax((way_out - loop) / 2, 0);
    return rounds * way_out;
}

static void predict_whole(const struct problem *problem,
                          const struct config *config,
                          const struct plan_device *device,
                          struct plan *ret_plan)
{
    double clock = plan_hopper_clock(device);
    double hbm = plan_hopper_memory_rate(device);
    struct traffic traffic = traffic_of(problem, config, hbm * HBM_EFFICIENCY);
    double cluster = config->cluster_m * config->cluster_n;
    double places = MAX(device->multiprocessors, 1u) * ctas_of(config);
    double walkers = fmax(floor(places / cluster), 1);
    double units = divide_up(problem->m, config->tile_m * config->cluster_m) *
                   divide_up(problem->n, config->tile_n * config->cluster_n) *
                   (double)problem->batch;
    /* CTAs on the multiprocessor that has the most of them. */
    double together =
        fmin(ceil(units * cluster / MAX(device->multiprocessors, 1u)), ctas_of(config));
    double rounds = ceil(units / walkers); /* tiles of the busiest multiprocessor */
    double busy = fmin(units * cluster / MAX(device->multiprocessors, 1u), 1);
    double area = (double)config->tile_m * config->tile_n;
    double depth = divide_up(problem->k, config->tile_k) * config->tile_k;
    double input_size = (double)dtype_size(problem->input);
    /* What a matrix does not have is not copied. */
    double rows = fmin(config->tile_m, (double)problem->m);
    double columns = fmin(config->tile_n, (double)problem->n);
    /* A multicast loads once for the cluster: what its CTAs share counts a part of it. */
    double load = depth * input_size *
                  (line_cost(problem, config, OPERAND_A) * rows / config->cluster_n +
                   line_cost(problem, config, OPERAND_B) * columns / config->cluster_m);
    double store =
        together * area * (double)dtype_size(problem->output) * (problem->beta != 0 ? 2 : 1);
    double product = 2 * area * config->tile_k / FLOP_PER_CLOCK; /* clocks of a turn, at best */
    double turn = fmax(together * product / loop_efficiency(config, rounds), TURN_CLOCKS);
    double turns = depth / config->tile_k;
    double powered = together * turns * product / power_share(config);
    double tensor = config->copy == CONFIG_COPY_REPACK
                        ? trimmed_rounds(problem, config, walkers, turns * turn, powered)
                        : plan_hopper_rounds(units / walkers, turns * turn, powered);
    double fused = is_fused(problem) ? area * FUSED_CLOCKS : 0;
    double work, way_out = TILE_CLOCKS + store / STORE_BYTES_CLK + fused;
    double wait = FILL_CLOCKS / clock + (cluster > 1 ? CLUSTER_SECONDS : 0);
    double repack = plan_hopper_repack(config, ret_plan->repack_bytes, hbm);

    ret_plan->config = *config;
    ret_plan->splits = 1;
    ret_plan->tiles = units * cluster < 0x1p63 ? (uint64_t)(units * cluster) : UINT64_MAX;
    ret_plan->wave_efficiency = units / (rounds * walkers);
    /* Launches in a row overlap, and two of this size run side by side, each on multiprocessors of
     * its own. Not long ones of larger tiles: what leaves half of the device to another launch has
     * no other when it is alone. Nor do large products overlap (daemon/worker/cuda_launch.c). */
    if (config->copy == CONFIG_COPY_TMA && units <= floor(walkers / (2 * ctas_of(config))) &&
        (area <= BESIDE_AREA || tensor < BESIDE_CLOCKS) &&
        2 * units * cluster * area * depth < BESIDE_FLOP)
        tensor *= BESIDE_SHARE;
    ret_plan->tensor_seconds = tensor / clock;
    ret_plan->l2_seconds = rounds * together * load / (L2_BYTES_CLOCK / fmax(busy, 0.5)) / clock;
    ret_plan->memory_seconds = traffic.load_seconds + traffic.store_seconds;
    ret_plan->fixed_seconds = LAUNCH_SECONDS +
                              shown_clocks(config, rounds, turns * turn, way_out) / clock +
                              plan_hopper_wait_share(config, units, walkers) * wait +
                              (config->copy == CONFIG_COPY_REPACK ? ANY_SECONDS : 0);
    work = plan_hopper_norm(
        norm(norm(ret_plan->tensor_seconds, ret_plan->l2_seconds), traffic.load_seconds),
        traffic.store_seconds, STORE_NORM);
    ret_plan->predicted_seconds = plan_hopper_in_a_row(work, ret_plan->fixed_seconds) + repack;
    ret_plan->fixed_seconds += repack;
}

void plan_hopper_predict(const struct problem *problem,
                         const struct config *config,
                         const struct plan_device *device,
                         struct plan *ret_plan)
{
    if (config_is_direct(config))
        plan_hopper_direct_predict(problem, config, device, memory_bytes(problem), ret_plan);
    else if (config_streams(config))
        plan_hopper_stream_predict(problem, config, device, memory_bytes(problem), ret_plan);
    else if (config_leaves_parts(config))
        plan_hopper_parts_predict(problem, config, device, memory_bytes(problem), ret_plan);
    else if (config_is_split(config))
        plan_hopper_split_predict(problem, config, device, memory_bytes(problem), ret_plan);
    else
        predict_whole(problem, config, device, ret_plan);
}
