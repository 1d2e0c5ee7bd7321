/*
 * The memory that a command touches, as intervals of addresses: what decides which commands may be
 * on the device at the same time. An interval runs from an operand's first byte to its last, so
 * blocks side by side in one matrix count as touching each other; that costs overlap, never order.
 *
 * Host and device addresses never meet in the address space of a CUDA process. Pure C, no state.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/std.h"

#define ACCESSES_MAX 5 /* A, B, C, the bias, D */

struct access {
    uint64_t begin, end; /* bytes [begin, end) */
    bool is_write;
};

struct accesses {
    uint64_t job; /* the front's number */
    size_t count;
    struct access of[ACCESSES_MAX];
};

/* `command` was checked by the front: sizes do not overflow. */
void accesses_of(const struct gemmd_command *command, struct accesses *ret_accesses);

/* What a product writes; of one that is empty, nothing. */
struct access access_of_output(const struct gemmd_job *job);
/* Whether A or B of a product share a byte with it. */
bool access_touches_inputs(const struct access *access, const struct gemmd_job *job);

/* Whether the order of the two matters. Slices of one job write different tiles: it does not. */
bool accesses_conflict(const struct accesses *a, const struct accesses *b);
