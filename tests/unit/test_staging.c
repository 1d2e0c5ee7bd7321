#include "../../daemon/front/staging.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static uv_loop_t loop;
static struct worker_process worker; /* never started: memory is only entered */
static struct staging staging;
static const struct worker_operations nothing;

static void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &nothing), 0);
    staging_init(&staging, &worker);
}

static void stop(void)
{
    staging_deinit(&staging);
    cr_expect(list_is_empty(&worker.memories));
}

TestSuite(staging, .init = start, .fini = stop);

static bool overlap(const struct staging_region *a, const struct staging_region *b)
{
    return a->chunk == b->chunk && a->offset < b->offset + b->size &&
           b->offset < a->offset + a->size;
}

Test(staging, regions_are_aligned_and_apart_whatever_the_order)
{
    enum { REGIONS = 60, ROUNDS = 3000 };

    struct staging_region regions[REGIONS] = {0};
    unsigned seed = 5;

    for (int round = 0; round < ROUNDS; round++) {
        struct staging_region *one = &regions[rand_r(&seed) % REGIONS];

        if (one->chunk) {
            staging_give(one);
            continue;
        }
        cr_assert_eq(staging_take(&staging, 1 + (uint64_t)rand_r(&seed) % (1u << 20), one), 0);
        cr_assert_eq(one->offset % STAGING_ALIGNMENT, 0);
        for (int i = 0; i < REGIONS; i++)
            cr_assert(&regions[i] == one || !regions[i].chunk || !overlap(one, &regions[i]));
    }
    for (int i = 0; i < REGIONS; i++)
        staging_give(&regions[i]);
    cr_expect_eq(staging.bytes, 0);
}

Test(staging, reuses_what_was_given_back)
{
    struct staging_region a = {0}, b = {0}, c = {0};

    cr_assert_eq(staging_take(&staging, 5000, &a), 0);
    cr_assert_eq(staging_take(&staging, 5000, &b), 0);
    staging_give(&a);
    cr_assert_eq(staging_take(&staging, 4096, &c), 0);
    cr_expect_eq(c.offset, 0);
    staging_give(&b);
    staging_give(&c);
}

Test(staging, takes_a_largest_message_and_keeps_one_empty_chunk)
{
    struct staging_region a = {0}, b = {0};

    cr_assert_eq(staging_take(&staging, STAGING_CHUNK, &a), 0);
    cr_assert_eq(staging_take(&staging, STAGING_CHUNK, &b), 0);
    cr_expect_neq(a.chunk, b.chunk);
    (void)memset(staging_data(&b), 1, STAGING_CHUNK);
    staging_give(&a);
    staging_give(&b);
    cr_expect(!list_is_empty(&staging.chunks));
    cr_expect_eq(staging.chunks.next, staging.chunks.previous);
}

Test(staging, does_not_use_memory_that_the_worker_refused)
{
    struct staging_region a = {0}, b = {0};

    cr_assert_eq(staging_take(&staging, 100, &a), 0);
    staging_memory(&a)->state = MEMORY_LOST;
    cr_assert_eq(staging_take(&staging, 100, &b), 0);
    cr_expect_neq(a.chunk, b.chunk);
    staging_give(&a);
    staging_give(&b);
}

Test(staging, keeps_an_empty_chunk_until_the_worker_has_mapped_it)
{
    struct staging_region a = {0}, b = {0}, c = {0};
    struct memory *memory;

    cr_assert_eq(staging_take(&staging, STAGING_CHUNK, &a), 0);
    cr_assert_eq(staging_take(&staging, STAGING_CHUNK, &b), 0);
    memory = staging_memory(&b);
    memory->is_asked = true; /* and not answered */
    staging_give(&b);
    cr_assert_eq(staging_take(&staging, STAGING_CHUNK, &c), 0);
    cr_expect_eq(staging_memory(&c), memory);
    staging_give(&c);
    memory->state = MEMORY_MAPPED;
    memory->changed(memory);
    cr_expect_eq(staging.chunks.next, staging.chunks.previous, "one chunk is left");
    staging_give(&a);
}
