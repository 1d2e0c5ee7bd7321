/*
 * What the soak's processes share: a page of what each client saw, which outlives it when it is
 * killed, and the list of products, which is the same in all.
 */
#pragma once

#include "bench.h"

#include "../../daemon/core/problem.h"

#include <stdatomic.h>

#define SOAK_CLIENTS_MAX 64
#define SOAK_WHY         200
#define SOAK_FD          3 /* the page, in a client */

/* One place among the clients; killed and started again, it goes on counting. */
struct soak_seat {
    atomic_ulong answers;  /* right ones */
    atomic_ulong wrong;    /* results beyond the error bound */
    atomic_ulong lost;     /* errors that no rule allows */
    atomic_ulong in_place; /* GPU_FAULT of a product that overwrites its input: a rule */
    char why[SOAK_WHY];    /* the first that was wrong or lost */
};

struct soak_page {
    atomic_bool is_over;
    struct soak_seat seats[SOAK_CLIENTS_MAX];
};

enum soak_place {
    SOAK_PLAIN, /* memory of the client's: inline or staged by the library */
    SOAK_HOST,
    SOAK_DEVICE,
};

struct soak_case {
    struct problem problem; /* packed, row-major, checked */
    enum soak_place place;
    bool is_in_place; /* C is D */
};

/* So many, all different; `has_large` appends one that a GPU computes in slices. */
#define SOAK_CASES_MAX 64
size_t soak_cases(bool has_large, struct soak_case ret_cases[SOAK_CASES_MAX]);
size_t soak_operand_bytes(const struct soak_case *one, enum operand_role role);
