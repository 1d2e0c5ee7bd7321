#include "../../daemon/front/slab.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static uv_loop_t loop;
static struct worker_process worker; /* never started: memory is only entered */
static struct slabs slabs;
static const struct worker_operations nothing;

static void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &nothing), 0);
    slabs_init(&slabs, &worker);
}

static void stop(void)
{
    slabs_deinit(&slabs);
    cr_expect(list_is_empty(&worker.memories));
}

TestSuite(slab, .init = start, .fini = stop, .timeout = 30);

static unsigned told;

static void count_changes(struct slab_cut *cut)
{
    (void)cut;
    told++;
}

static void give_when_changed(struct slab_cut *cut)
{
    told++;
    slab_give(cut);
}

static void take(uint64_t size, struct slab_cut *cut)
{
    *cut = (struct slab_cut){.changed = count_changes};
    list_init(&cut->link);
    cr_assert_eq(slab_take(&slabs, size, cut), 0);
}

/* Random sizes, taken and given back: no two cuts of a slab meet, all are aligned. */
Test(slab, cuts_never_overlap)
{
    static struct slab_cut cuts[200];

    srand(7);
    for (int step = 0; step < 20000; step++) {
        struct slab_cut *cut = &cuts[rand() % 200];

        if (cut->slab)
            slab_give(cut);
        else
            take(1 + (uint64_t)rand() % (rand() % 4 ? 3000 : SLAB_CUT_MAX), cut);
        if (step % 100 != 0)
            continue;
        for (int i = 0; i < 200; i++) {
            cr_assert_eq(cuts[i].offset % SLAB_ALIGNMENT, 0);
            for (int j = 0; cuts[i].slab && j < i; j++)
                cr_assert(cuts[i].slab != cuts[j].slab ||
                          cuts[i].offset + cuts[i].size <= cuts[j].offset ||
                          cuts[j].offset + cuts[j].size <= cuts[i].offset);
        }
    }
    for (int i = 0; i < 200; i++)
        slab_give(&cuts[i]);
}

Test(slab, thousand_small_ones_share_few)
{
    static struct slab_cut cuts[1000];

    for (int i = 0; i < 1000; i++)
        take(1000, &cuts[i]);
    cr_expect_eq(slabs.count, 1);
    for (int i = 0; i < 1000; i++)
        slab_give(&cuts[i]);
    cr_expect_eq(slabs.count, 0);
}

Test(slab, largest_cuts_fill_it)
{
    struct slab_cut cuts[3];

    for (int i = 0; i < 3; i++)
        take(SLAB_CUT_MAX, &cuts[i]);
    cr_expect_eq(slabs.count, 2);
    for (int i = 0; i < 3; i++)
        slab_give(&cuts[i]);
}

Test(slab, has_the_devices_unit_where_that_is_more)
{
    struct slab_cut cut;

    worker.device.allocation_unit = 16 << 20;
    take(1, &cut);
    cr_expect_eq(slab_memory(&cut)->size, 16 << 20);
    slab_give(&cut);
}

Test(slab, tells_each_cut_and_may_lose_them_all_meanwhile)
{
    struct slab_cut cuts[3];

    for (int i = 0; i < 3; i++)
        take(100, &cuts[i]);
    slab_memory(&cuts[0])->changed(slab_memory(&cuts[0]));
    cr_expect_eq(told, 3);
    for (int i = 0; i < 3; i++)
        cuts[i].changed = give_when_changed;
    slab_memory(&cuts[0])->changed(slab_memory(&cuts[0]));
    cr_expect_eq(told, 6);
    cr_expect_eq(slabs.count, 0);
}

/* Telling one lets the queue go on: what ends there may have been the last user of another. */
static struct slab_cut neighbours[3];

static void give_the_others_when_changed(struct slab_cut *cut)
{
    told++;
    for (int i = 0; i < 3; i++) {
        if (&neighbours[i] != cut)
            slab_give(&neighbours[i]);
    }
}

Test(slab, told_one_may_take_its_neighbours_with_it)
{
    for (int i = 0; i < 3; i++) {
        take(100, &neighbours[i]);
        neighbours[i].changed = give_the_others_when_changed;
    }
    slab_memory(&neighbours[0])->changed(slab_memory(&neighbours[0]));
    cr_expect_eq(told, 1);
    cr_expect_eq(slabs.count, 1);
    slab_give(&neighbours[0]);
}

Test(slab, lost_one_is_not_cut_again)
{
    struct slab_cut first, second;

    take(100, &first);
    slab_memory(&first)->state = MEMORY_LOST;
    take(100, &second);
    cr_expect_neq(first.slab, second.slab);
    slab_give(&first);
    slab_give(&second);
}
