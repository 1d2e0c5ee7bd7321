#include "plans.h"

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
                      (int64_t)p->trans_b << 17,
                  p->m, p->n, p->k, p->batch, bits_of(p->alpha), bits_of(p->beta)},
    };
    int64_t *word = &question.words[7];

    static_assert(sizeof(*p) == 128, "a new field of a problem is a new word of the question");
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

        status = plan_choose(problem, offset, device, &plan, ret_fault);
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
