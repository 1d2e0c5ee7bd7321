/*
 * The plan: which configuration computes a problem on a device. Pure, deterministic, no CUDA: the
 * same problem and alignment give the same configuration, whatever the load (same bits).
 */
#pragma once

#include "../core/problem.h"
#include "config.h"

struct plan_device {
    bool is_cpu;
    uint32_t arch; /* as struct config */
    uint32_t multiprocessors;
    uint32_t shared_memory_per_block; /* bytes */
    uint64_t l2_cache;                /* bytes */
    double clock_hz;
    double memory_bytes_per_second;
};

/* True when every row of every operand starts on a multiple of `bytes`. `address[role]` is the
 * operand's address or its offset in a buffer that is itself aligned. */
bool plan_rows_are_aligned(const struct problem *problem,
                           const uint64_t address[OPERAND_COUNT],
                           uint32_t bytes);

#define PLAN_REASON_MAX 256

/* Inputs of more bytes than this are not repacked (CONFIG_COPY_REPACK) but copied element by
 * element: the copies lie in device memory that no client is charged for. Two matrices of 32000
 * rows and columns fit. */
#define PLAN_REPACK_BYTES_MAX 4294967296.0

struct plan {
    struct config config;
    double predicted_seconds;
    /* the model's terms, for `explain` */
    double tensor_seconds, l2_seconds, memory_seconds, fixed_seconds;
    double wave_efficiency; /* 0 to 1 */
    uint64_t tiles;
    uint32_t splits;     /* clusters that share a tile along K, through the workspace; 1: none */
    double repack_bytes; /* of inputs that are copied before the product */
    char reason[PLAN_REASON_MAX]; /* one sentence */
    /* by the front, where there is a tuning database: what plan_choose() leaves 0 */
    uint32_t epoch;          /* of the database that was asked */
    double measured_seconds; /* of this configuration, when a tuner chose it; 0: the model did */
    double first_seconds;    /* of the model's own choice, then */
};

/* Returns STATUS_OK or STATUS_UNSUPPORTED with the fault filled. The problem passed
 * problem_check() and is not empty. */
enum status plan_choose(const struct problem *problem,
                        const uint64_t address[OPERAND_COUNT],
                        const struct plan_device *device,
                        struct plan *ret_plan,
                        struct fault *ret_fault);

#define PLAN_RANKED_MAX CONFIG_PLANNED_MAX

struct plan_ranking {
    size_t count;
    struct plan plan[PLAN_RANKED_MAX];
};

/* The same question, answered with all that can compute the problem, the shortest prediction first:
 * what plan_choose() gives, then what a tuner times beside it. */
enum status plan_rank(const struct problem *problem,
                      const uint64_t address[OPERAND_COUNT],
                      const struct plan_device *device,
                      struct plan_ranking *ret_ranking,
                      struct fault *ret_fault);
