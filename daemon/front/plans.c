#include "plans.h"

#include <stdio.h>
#include <string.h>

/* What no configuration's copies look at: they want rows to start on 16 bytes, TMA's tiles on 128.
 */
#define ALIGNMENT 256

static int64_t bits_of(double value)
{
    int64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static struct plans_question question_of(const struct problem *p, const uint64_t offset[])
{
    struct plans_question question = {
        .words = {(int64_t)p->input | (int64_t)p->output << 8 | (int64_t)p->trans_a << 16 |
                      (int64_t)p->trans_b << 17 | (int64_t)p->bias << 18 |
                      (int64_t)p->activation << 20,
                  p->m, p->n, p->k, p->batch, bits_of(p->alpha), bits_of(p->beta)},
    };
    int64_t *word = &question.words[7];

    static_assert(sizeof(*p) == 152, "a new field of a problem is a new word of the question");
    static_assert(ARRAY_SIZE(question.words) == 7 + 3 * OPERAND_COUNT, "every word is filled");
    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        *word++ = p->operand[i].ld;
        *word++ = p->operand[i].stride;
        *word++ = (int64_t)(offset[i] % ALIGNMENT);
    }
    return question;
}

/* Fibonacci hashing, word by word. */
static size_t slot_of(const struct plans_question *question)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < ARRAY_SIZE(question->words); i++) {
        hash = (hash ^ (uint64_t)question->words[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 32;
    }
    return hash % PLANS_ENTRIES;
}

#define ROW_ALIGNMENT 16 /* bytes, what plan.c tells configurations apart by */

static void explain(const struct tuning_entry *tuned, struct plan *plan)
{
    if (tuned->seconds < tuned->first_seconds)
        (void)snprintf(plan->reason, sizeof(plan->reason),
                       "It was the fastest when shapes like this were timed on this device: "
                       "%.4g us, where the model's own choice took %.4g.",
                       tuned->seconds * 1e6, tuned->first_seconds * 1e6);
    else
        (void)snprintf(plan->reason, sizeof(plan->reason),
                       "It is the model's own choice, and none was clearly faster when shapes like "
                       "this were timed on this device: %.4g us.",
                       tuned->seconds * 1e6);
}

/* The tuned configuration among those that can compute the problem; those that are not any more
 * (another version's list, a problem too large for them) are passed over. */
static void
take_tuned(const struct plan_ranking *ranking, const struct tuning_entry *tuned, struct plan *plan)
{
    for (size_t i = 0; i < ranking->count; i++) {
        if (!config_equal(&ranking->plan[i].config, &tuned->config))
            continue;
        *plan = ranking->plan[i];
        plan->measured_seconds = tuned->seconds;
        plan->first_seconds = tuned->first_seconds;
        explain(tuned, plan);
        return;
    }
}

static enum status choose(const struct plans *plans,
                          const struct problem *problem,
                          const uint64_t offset[OPERAND_COUNT],
                          const struct plan_device *device,
                          struct plan *ret_plan,
                          struct fault *ret_fault)
{
    enum status status = plan_choose(problem, offset, device, ret_plan, ret_fault);
    const struct tuning_entry *tuned;
    struct tuning_class class;
    struct plan_ranking ranking;

    if (status != STATUS_OK || !plans->tuning || device->is_cpu)
        return status;
    class = tuning_classify(problem, plan_rows_are_aligned(problem, offset, ROW_ALIGNMENT));
    tuned = tuning_find(plans->tuning, &class);
    if (tuned && plan_rank(problem, offset, device, &ranking, ret_fault) == STATUS_OK)
        take_tuned(&ranking, tuned, ret_plan);
    ret_plan->epoch = plans->tuning->epoch;
    return STATUS_OK;
}

enum status plans_choose(struct plans *plans,
                         const struct problem *problem,
                         const uint64_t offset[OPERAND_COUNT],
                         const struct plan_device *device,
                         struct plan *ret_plan,
                         struct fault *ret_fault)
{
    const struct plans_question question = question_of(problem, offset);
    struct plans_entry *entry = &plans->entries[slot_of(&question)];
    enum status status;

    if (!entry->is_used || memcmp(&entry->question, &question, sizeof(question)) != 0) {
        struct plan plan;

        status = choose(plans, problem, offset, device, &plan, ret_fault);
        if (status != STATUS_OK)
            return status;
        *entry = (struct plans_entry){.is_used = true, .question = question, .plan = plan};
    }
    *ret_plan = entry->plan;
    return STATUS_OK;
}

void plans_forget(struct plans *plans)
{
    for (size_t i = 0; i < PLANS_ENTRIES; i++)
        plans->entries[i].is_used = false;
}
