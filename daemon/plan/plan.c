/*
 * Picks the configuration with the smallest predicted time among those that can compute a problem.
 * No state: the answer depends on the arguments alone, and ties go to the earlier list entry.
 */
#include "plan.h"

#include "plan_hopper.h"
#include "plan_hopper_direct.h"
#include "plan_hopper_stream.h"
#include "plan_portable.h"

#include <stdio.h>
#include <string.h>

#define CPU_FLOP_PER_CLOCK 16.0 /* of one thread: two 256-bit FMA units at half their rate */
#define CPU_CLOCK          2.5e9
#define CPU_CALL_SECONDS   2e-6

#define ROW_ALIGNMENT  16  /* bytes, what CONFIG_COPY_V16 and CONFIG_COPY_TMA ask for */
#define REPACK_PADDING 128 /* bytes that a repacked row has more, at most */

/* Whose rows are copied in chunks; a bias is read by elements. */
static bool operand_has_rows(const struct problem *problem, enum operand_role role)
{
    return role == OPERAND_D || (role != OPERAND_BIAS && problem_reads(problem, role));
}

/* Modulo 2^64 is enough: the alignment is a power of two. */
static bool operand_is_aligned(const struct problem *problem,
                               enum operand_role role,
                               uint64_t address,
                               uint32_t bytes)
{
    const struct problem_operand *operand = &problem->operand[role];
    bool is_input = role == OPERAND_A || role == OPERAND_B;
    uint64_t size = dtype_size(is_input ? problem->input : problem->output);

    if (address % bytes != 0)
        return false;
    if (problem_rows(problem, role) > 1 && (uint64_t)operand->ld * size % bytes != 0)
        return false;
    return problem->batch <= 1 || (uint64_t)operand->stride * size % bytes == 0;
}

/* The first operand whose rows do not all start on `bytes`; OPERAND_COUNT when there is none. */
static enum operand_role unaligned_operand(const struct problem *problem,
                                           const uint64_t address[OPERAND_COUNT],
                                           uint32_t bytes)
{
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        if (operand_has_rows(problem, role) &&
            !operand_is_aligned(problem, role, address[role], bytes))
            return role;
    return OPERAND_COUNT;
}

/* What CONFIG_COPY_REPACK copies before the product: inputs whose rows do not start on 16 bytes, to
 * rows that do. In double: whether it is too much is asked later. */
static double repack_bytes(const struct problem *problem, const uint64_t address[OPERAND_COUNT])
{
    double bytes = 0;

    for (enum operand_role role = OPERAND_A; role <= OPERAND_B; role++) {
        int64_t items = problem->operand[role].stride != 0 ? problem->batch : 1;
        double row = (double)problem_columns(problem, role) * (double)dtype_size(problem->input);

        if (problem_reads(problem, role) &&
            !operand_is_aligned(problem, role, address[role], ROW_ALIGNMENT))
            bytes += (row + REPACK_PADDING) * (double)problem_rows(problem, role) * (double)items;
    }
    return bytes;
}

bool plan_rows_are_aligned(const struct problem *problem,
                           const uint64_t address[OPERAND_COUNT],
                           uint32_t bytes)
{
    return unaligned_operand(problem, address, bytes) == OPERAND_COUNT;
}

static void
choose_cpu(const struct problem *problem, const struct plan_device *device, struct plan *ret_plan)
{
    double threads = MAX(device->multiprocessors, 1u);
    double clock = device->clock_hz > 0 ? device->clock_hz : CPU_CLOCK;

    *ret_plan = (struct plan){
        .config =
            {
                .family = CONFIG_CPU,
                .input = problem->input,
                .output = problem->output,
                .trans_a = problem->trans_a,
                .trans_b = problem->trans_b,
            },
        .tensor_seconds = problem_flop(problem) / (threads * clock * CPU_FLOP_PER_CLOCK),
        .fixed_seconds = CPU_CALL_SECONDS,
        .wave_efficiency = 1,
        .tiles = 1,
        .splits = 1,
    };
    ret_plan->predicted_seconds = ret_plan->tensor_seconds + ret_plan->fixed_seconds;
    snprintf(ret_plan->reason, PLAN_REASON_MAX,
             "This device is the CPU: its BLAS computes every product, with %u threads.",
             MAX(device->multiprocessors, 1u));
}

static bool config_fits(const struct config *config, enum config_copy copy, uint32_t shared_memory)
{
    struct config_resources resources;

    if (config->copy != copy)
        return false;
    config_resources(config, &resources);
    return resources.shared_memory <= shared_memory;
}

static const char *bound_name(const struct plan *plan)
{
    double busy = MAX(MAX(plan->tensor_seconds, plan->l2_seconds), plan->memory_seconds);

    if (plan->fixed_seconds > busy)
        return "latency";
    if (busy == plan->tensor_seconds)
        return "arithmetic";
    return busy == plan->memory_seconds ? "device memory" : "the L2 cache";
}

/* What a configuration makes of rows that do not all start on 16 bytes. */
static const char *unaligned_way(const struct config *config)
{
    if (config_streams(config))
        return "and are multiplied where they start";
    if (config->schedule == CONFIG_SCHEDULE_STRIP || config->copy == CONFIG_COPY_REALIGN)
        return "so threads shift what they load";
    if (config_is_direct(config))
        return "and CUDA cores multiply what they load";
    return "so elements are copied one by one";
}

static void
explain(const struct plan_device *device, enum operand_role unaligned, struct plan *plan)
{
    uint32_t parts = plan->splits * MAX(plan->config.cluster_k, 1u);
    char copy[112], cut[48] = "";

    if (unaligned == OPERAND_COUNT)
        snprintf(copy, sizeof copy, "every row starts on %d bytes", ROW_ALIGNMENT);
    else if (plan->config.copy == CONFIG_COPY_REPACK)
        snprintf(copy, sizeof copy,
                 "rows of %s do not all start on %d bytes, so %.1f MB of inputs are copied first",
                 operand_name(unaligned), ROW_ALIGNMENT, plan->repack_bytes * 1e-6);
    else
        snprintf(copy, sizeof copy, "rows of %s do not all start on %d bytes, %s",
                 operand_name(unaligned), ROW_ALIGNMENT, unaligned_way(&plan->config));
    if (parts > 1)
        snprintf(cut, sizeof cut, ", each in %u parts along K,", parts);
    snprintf(plan->reason, PLAN_REASON_MAX,
             "%llu tiles of %ux%u%s keep %u multiprocessors %.0f %% busy, bound by %s; %s.",
             (unsigned long long)plan->tiles, plan->config.tile_m, plan->config.tile_n, cut,
             device->multiprocessors, plan->wave_efficiency * 100, bound_name(plan), copy);
}

static void predict(const struct problem *problem,
                    const struct config *config,
                    const struct plan_device *device,
                    double repacked,
                    struct plan *ret_plan)
{
    if (config->copy == CONFIG_COPY_REPACK)
        ret_plan->repack_bytes = repacked;
    if (config->family == CONFIG_HOPPER)
        plan_hopper_predict(problem, config, device, ret_plan);
    else
        plan_portable_predict(problem, config, device, ret_plan);
}

/* Candidates by predicted time, the shortest first; ties keep the list's order. */
struct ranking {
    struct plan *plan; /* room for `most` */
    size_t count, most;
};

static void rank_insert(struct ranking *ranking, const struct plan *candidate)
{
    size_t at = ranking->count;

    while (at > 0 && candidate->predicted_seconds < ranking->plan[at - 1].predicted_seconds)
        at--;
    if (at == ranking->most)
        return;
    ranking->count = MIN(ranking->count + 1, ranking->most);
    memmove(&ranking->plan[at + 1], &ranking->plan[at],
            (ranking->count - at - 1) * sizeof(*candidate));
    ranking->plan[at] = *candidate;
}

static bool
can_compute(const struct problem *problem, const struct config *config, bool may_be_direct)
{
    if (config->family != CONFIG_HOPPER)
        return true;
    if (config_is_direct(config) && !may_be_direct)
        return false;
    if (config_streams(config) && !plan_hopper_stream_can(problem, config))
        return false;
    return plan_hopper_finishes(problem, config) && plan_hopper_fits(problem, config);
}

/* The configurations with this kind of copies. `only_hopper`: of them those of that family, where
 * rows start on 16 bytes: a strip's shifting would be for nothing. */
static void rank_with(const struct problem *problem,
                      const struct plan_device *device,
                      enum config_copy copy,
                      bool only_hopper,
                      double repacked,
                      struct ranking *ranking)
{
    struct config kind = {.arch = device->arch,
                          .input = problem->input,
                          .output = problem->output,
                          .trans_a = problem->trans_a,
                          .trans_b = problem->trans_b};
    struct config configs[CONFIG_PLANNED_MAX];
    size_t count = config_list_planned(&kind, configs);
    bool may_be_direct = plan_hopper_direct_can(problem);

    for (size_t i = 0; i < count; i++) {
        struct plan candidate = {0};

        if (only_hopper &&
            (configs[i].family != CONFIG_HOPPER || configs[i].schedule == CONFIG_SCHEDULE_STRIP))
            continue;
        if (!config_fits(&configs[i], copy, device->shared_memory_per_block))
            continue;
        if (!can_compute(problem, &configs[i], may_be_direct))
            continue;
        predict(problem, &configs[i], device, repacked, &candidate);
        rank_insert(ranking, &candidate);
    }
}

static enum status rank(const struct problem *problem,
                        const uint64_t address[OPERAND_COUNT],
                        const struct plan_device *device,
                        struct ranking *ranking,
                        struct fault *ret_fault)
{
    enum operand_role unaligned;
    double repacked;
    bool is_aligned, is_hopper;

    ranking->count = 0;
    if (device->is_cpu) {
        choose_cpu(problem, device, &ranking->plan[ranking->count++]);
        return STATUS_OK;
    }
    unaligned = unaligned_operand(problem, address, ROW_ALIGNMENT);
    repacked = repack_bytes(problem, address);
    is_aligned = unaligned == OPERAND_COUNT;
    is_hopper = plan_hopper_can(problem);
    if (is_aligned && is_hopper)
        rank_with(problem, device, CONFIG_COPY_TMA, false, 0, ranking);
    if (ranking->count == 0 && is_aligned)
        rank_with(problem, device, CONFIG_COPY_V16, false, 0, ranking);
    if (is_hopper && !(is_aligned && plan_hopper_is_plain(problem)) &&
        repacked <= PLAN_REPACK_BYTES_MAX)
        rank_with(problem, device, CONFIG_COPY_REPACK, false, repacked, ranking);
    if (!is_aligned && is_hopper)
        rank_with(problem, device, CONFIG_COPY_REALIGN, false, 0, ranking);
    rank_with(problem, device, CONFIG_COPY_ELEMENT, ranking->count > 0 && is_aligned, 0, ranking);
    if (ranking->count == 0)
        return fault_set(ret_fault, STATUS_UNSUPPORTED, "dtype",
                         "no kernel for %s to %s on architecture %u with %u bytes of shared "
                         "memory; architectures 80 86 87 89 90 100 103 120 have kernels for bf16, "
                         "fp16, fp32, fp64 and int8",
                         dtype_name(problem->input), dtype_name(problem->output), device->arch,
                         device->shared_memory_per_block);
    for (size_t i = 0; i < ranking->count; i++)
        explain(device, unaligned, &ranking->plan[i]);
    return STATUS_OK;
}

enum status plan_choose(const struct problem *problem,
                        const uint64_t address[OPERAND_COUNT],
                        const struct plan_device *device,
                        struct plan *ret_plan,
                        struct fault *ret_fault)
{
    struct plan best;
    struct ranking ranking = {.plan = &best, .most = 1};
    enum status status = rank(problem, address, device, &ranking, ret_fault);

    if (status == STATUS_OK)
        *ret_plan = best;
    return status;
}

enum status plan_rank(const struct problem *problem,
                      const uint64_t address[OPERAND_COUNT],
                      const struct plan_device *device,
                      struct plan_ranking *ret_ranking,
                      struct fault *ret_fault)
{
    struct ranking ranking = {.plan = ret_ranking->plan, .most = PLAN_RANKED_MAX};
    enum status status = rank(problem, address, device, &ranking, ret_fault);

    ret_ranking->count = status == STATUS_OK ? ranking.count : 0;
    return status;
}
