/*
 * Plans that were chosen before. Choosing rates every configuration there is, which takes 4 us, a
 * tenth of a small product's whole way; programs ask for few shapes, again and again. A plan
 * follows from its question (plan.h) and from the tuning database, which names itself by its epoch
 * (tuning.h), so what is remembered is what would be chosen.
 *
 * Owner: the server, by value. Thread: loop.
 */
#pragma once

#include "../plan/plan.h"
#include "../plan/tuning.h"

#define PLANS_ENTRIES 256 /* shapes of a large model, with room for collisions */

/* All that plan_choose() may look at, but the device. */
struct plans_question {
    int64_t words[22];
};

struct plans_entry {
    bool is_used;
    struct plans_question question;
    struct plan plan;
};

struct plans {
    struct tuning *tuning; /* borrowed; NULL: none */
    struct plans_entry entries[PLANS_ENTRIES];
};

/* As plan_choose(), for the device since the last plans_forget(); what was the fastest when shapes
 * of the class were timed goes before what the model says. Faults are not remembered. */
enum status plans_choose(struct plans *plans,
                         const struct problem *problem,
                         const uint64_t offset[OPERAND_COUNT],
                         const struct plan_device *device,
                         struct plan *ret_plan,
                         struct fault *ret_fault);
/* The device is another one, or known better; or the tuning database changed. */
void plans_forget(struct plans *plans);
