/*
 * The only reader of a configuration's -D values. daemon/plan/config.c writes them; the asserts
 * here are the device's half of that agreement.
 */
#pragma once

#include "base/prelude.cuh"

namespace cfg
{

/* Numbers of enum dtype, daemon/core/dtype.h. */
enum dtype {
    bf16 = 1,
    fp16 = 2,
    fp32 = 3,
    fp64 = 4,
    int8 = 5,
    int32 = 6,
};

/* What multiplies: decides fragment and accumulator layout (mma/). */
enum unit {
    unit_mma_16, /* bf16, fp16 */
    unit_mma_8,  /* int8 */
    unit_mma_64, /* fp64 */
    unit_simt,   /* fp32 on CUDA cores */
    unit_wgmma,  /* bf16, fp16 of the hopper family */
};

/* Numbers of enum config_schedule, daemon/plan/config.h. From `tiled` on: the hopper family. */
enum schedule {
    schedule_mma,
    schedule_simt,
    schedule_tiled,
    schedule_tma,
    schedule_pipelined,
    schedule_persistent,
    schedule_coop,
    schedule_pingpong,
    schedule_split,
    schedule_parts,
    schedule_stream, /* from here on threads load, and neither tensor copies nor wgmma is used */
    schedule_outer,
    schedule_dot,
    schedule_strip,
};

constexpr int input = GEMMD_INPUT;
constexpr int output = GEMMD_OUTPUT;
/* The kernel computes the transpose of D: its A is the job's B transposed, and so on. All that
 * follows is the kernel's side of it; what knows the job's side says so. */
constexpr bool is_swapped = GEMMD_SWAPPED;
constexpr bool trans_a = is_swapped ? !GEMMD_TRANS_B : GEMMD_TRANS_A;
constexpr bool trans_b = is_swapped ? !GEMMD_TRANS_A : GEMMD_TRANS_B;
constexpr int tile_m = is_swapped ? GEMMD_TILE_N : GEMMD_TILE_M;
constexpr int tile_n = is_swapped ? GEMMD_TILE_M : GEMMD_TILE_N;
constexpr int tile_k = GEMMD_TILE_K;
constexpr int stages = GEMMD_STAGES;
constexpr int warps_m = GEMMD_WARPS_M;
constexpr int warps_n = GEMMD_WARPS_N;
constexpr bool copies_elements = GEMMD_COPY == 1; /* CONFIG_COPY_ELEMENT */
constexpr bool realigns = GEMMD_COPY == 4; /* CONFIG_COPY_REALIGN */
constexpr bool stores_anywhere = GEMMD_COPY == 3 || realigns; /* CONFIG_COPY_REPACK */
constexpr int shared_memory = GEMMD_SHARED_MEMORY;
constexpr int ctas_per_multiprocessor = GEMMD_CTAS_PER_MULTIPROCESSOR;

DEVICE constexpr int size_of(int dtype)
{
    return dtype == int8 ? 1 : dtype == bf16 || dtype == fp16 ? 2 : dtype == fp64 ? 8 : 4;
}

constexpr int schedule = GEMMD_SCHEDULE;
constexpr int cluster_m = is_swapped ? GEMMD_CLUSTER_N : GEMMD_CLUSTER_M;
constexpr int cluster_n = is_swapped ? GEMMD_CLUSTER_M : GEMMD_CLUSTER_N;
constexpr int cluster_k = GEMMD_CLUSTER_K; /* CTAs that share a tile, each a part of K */
/* Tiles whose K may be cut, and narrow ones, leave by fragments (epi/store_fragments.cuh). */
constexpr bool is_split =
    schedule == schedule_split || schedule == schedule_parts || schedule == schedule_stream;
/* They leave their parts of the sum, and a kernel behind this one adds them (epi/part_sum.cuh,
 * epi/stream_part.cuh). */
constexpr bool leaves_parts = schedule == schedule_parts || schedule == schedule_stream;
constexpr bool trims_edges = stores_anywhere && !is_split; /* see sched/raster.cuh */
constexpr bool is_hopper = schedule >= schedule_tiled;
constexpr bool is_direct = schedule >= schedule_outer;
constexpr bool has_wgmma = is_hopper && schedule < schedule_stream;
/* Bias and activation: the plan gives them to no other (plan_hopper_finishes). */
constexpr bool finishes = !has_wgmma || stores_anywhere;

constexpr int unit = has_wgmma                  ? unit_wgmma
                     : is_direct                ? unit_simt
                     : input == fp32 ? unit_simt
                     : input == fp64 ? unit_mma_64
                     : input == int8 ? unit_mma_8
                                     : unit_mma_16;
constexpr int input_size = size_of(input);
constexpr int output_size = size_of(output);
constexpr int accumulator_size = input == fp64 ? 8 : 4;
constexpr int warp_m = tile_m / warps_m;
constexpr int warp_n = tile_n / warps_n;

/* Hopper: warps that multiply form groups of four. Specialised schedules have one more group, whose
 * first warp loads; split configurations of one group two more warps, behind the others, or, to
 * realign, four. Cooperative groups share a tile by rows; ping-pong groups have one each. */
constexpr bool is_specialized = schedule >= schedule_coop && has_wgmma;
constexpr bool is_pingpong = schedule == schedule_pingpong;
constexpr int groups = warps_m * warps_n / 4;
constexpr int group_m = is_pingpong ? tile_m : tile_m / groups;
constexpr int sharers = cluster_m * cluster_n; /* CTAs that copy for each other */
constexpr int cluster = sharers * cluster_k;
constexpr bool has_loading_pair = leaves_parts || is_split && groups == 1 && !realigns;
constexpr int loading_warps = !is_specialized ? 0 : has_loading_pair ? 2 : 4;
/* 168 registers a thread at launch, for three groups: 56 + 2 * 224 = 3 * 168. */
constexpr bool moves_registers =
    is_specialized && !has_loading_pair && groups == 2 && ctas_per_multiprocessor == 1;
constexpr int threads = (warps_m * warps_n + loading_warps) * 32;
/* Which tiles leave beside the products of the next one, and which by tensor copies: epi/way_out.cuh.
 * Groups that share a tile end at the same time, and the largest have buffers for half of it. */
constexpr bool leaves_late = schedule == schedule_coop && stages > 1 && tile_m == 128 &&
                             tile_n == 256 && !stores_anywhere && output_size == 2;
constexpr bool leaves_by_copies = !stores_anywhere && output_size == 4;
constexpr int threads_held = (threads + 127) / 128 * 128; /* registers go to warps by fours */

static_assert(stages >= 1, "there is a ring");
static_assert(is_hopper || stages >= 2, "a ring that all fill has at least two slots");
static_assert(is_hopper || cluster == 1 && !is_swapped, "clusters are the hopper family's");
static_assert(is_hopper || schedule == (input == fp32 ? schedule_simt : schedule_mma),
              "fp32 is SIMT, all else mma.sync");
static_assert(is_direct || warp_m * warps_m == tile_m && warp_n * warps_n == tile_n,
              "warps cover the tile");
static_assert(is_direct || tile_k * input_size % 32 == 0, "rows of a K tile are whole pairs of chunks");

static_assert(!has_wgmma || warps_n == 1 && warps_m % 4 == 0, "groups divide the tile by rows");
static_assert(!has_wgmma || group_m % 64 == 0, "wgmma has 64 rows");
static_assert(!has_wgmma || tile_k * input_size % 128 == 0, "whole rows of the 128B swizzle");
static_assert(!is_pingpong || groups == 2, "two groups take turns");
static_assert(!realigns || is_split && groups == 1 && sharers == 1,
              "who realigns copies for itself, and leaves registers as they are");
static_assert(sharers <= 2, "both CTAs of a cluster read what one multicasts");
static_assert(is_split || cluster_k == 1 && !is_swapped, "others store whole tiles, as they are");

} // namespace cfg
