/*
 * The ring of kernel_ring.c without a GPU, over the driver of tests/support: right products are
 * found right, and a reader of what was there before is found, and called by that name.
 */
#include "../support/fake_driver.h"
#include "kernel_ring.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_SIZE (KERNEL_RING_SIDE * KERNEL_RING_SIDE * 2)

static struct kernel_ring ring;
static struct fault fault;
static struct config reader;

static void load(const char *configuration, bool is_writer, struct config *ret_config)
{
    cr_assert(config_from_text(configuration, ret_config), "%s", configuration);
    cr_assert_eq(kernel_ring_load(&ring, ret_config, is_writer, "\177ELF", 4, &fault), 0, "%s: %s",
                 configuration, fault.message);
}

static void open_fake(void)
{
    struct config writer;

    setenv("GEMMD_LIBCUDA", FAKE_DRIVER, 1);
    fake_driver_reset();
    cr_assert_eq(kernel_ring_open(&ring, "cuda", &fault), 0, "%s", fault.message);
    load(KERNEL_RING_WRITER, true, &writer);
}

TestSuite(ring, .init = open_fake, .timeout = 100);

static struct kernel_ring_report run(const struct kernel_ring_reader *of)
{
    struct kernel_ring_report report;

    load(of->configuration, false, &reader);
    cr_assert_eq(kernel_ring_run(&ring, &reader, of->splits, 1, &report, &fault), 0, "%s: %s",
                 of->configuration, fault.message);
    return report;
}

static void close_clean(void)
{
    static const struct fake_driver_live none;
    struct fake_driver_live live;

    kernel_ring_close(&ring);
    live = fake_driver_live();
    cr_expect_eq(memcmp(&live, &none, sizeof(none)), 0, "something was not given back");
}

/* The driver's products are the same whatever the kernel: every fifth has all kinds of memory. */
Test(ring, finds_nothing_where_every_reader_sees_what_was_written_last)
{
    for (size_t i = 0; i < KERNEL_RING_READERS; i++)
        load(kernel_ring_readers[i].configuration, false, &reader);
    for (size_t i = 0; i < KERNEL_RING_READERS; i += 5) {
        struct kernel_ring_report report = run(&kernel_ring_readers[i]);

        cr_expect_gt(report.products, 0);
        cr_expect_eq(report.wrong, 0, "%s: %s", kernel_ring_readers[i].configuration, report.first);
    }
    close_clean();
}

/* --- what is in question are inputs that are read without a wait ----------------------------- */

static unsigned settled, waiting;

static void count_readers(const struct fake_driver_launch *launch)
{
    const struct gemmd_job *job = ((const struct gemmd_tensor_feed *)launch->parameter)->jobs;
    uint64_t slot = (job->a - kernel_ring_slots(&ring)) / SLOT_SIZE;

    if (slot < KERNEL_RING_SLOTS)
        *(job->flags & GEMMD_JOB_INPUTS_SETTLED ? &settled : &waiting) += 1;
}

Test(ring, reads_most_of_what_was_written_before_the_last_launch_without_a_wait)
{
    fake_driver_on_launch(count_readers);
    (void)run(&kernel_ring_readers[0]);
    cr_expect_gt(waiting, 0);
    cr_expect_eq(settled, (KERNEL_RING_SLOTS - 1) * waiting, "%u wait, %u do not", waiting,
                 settled);
    close_clean();
}

/* --- a multiprocessor that keeps what it has read -------------------------------------------- */

#define NO_SLOT KERNEL_RING_SLOTS

static char before[KERNEL_RING_SLOTS][SLOT_SIZE]; /* it was last written */
static unsigned served;

static uint64_t slot_of(uint64_t address)
{
    return MIN((address - kernel_ring_slots(&ring)) / SLOT_SIZE, NO_SLOT);
}

static void serve_what_was_before(gemmd_u64 *address)
{
    uint64_t slot = slot_of(*address);

    if (slot == NO_SLOT)
        return;
    *address = (uintptr_t)before[slot] + (*address - kernel_ring_slots(&ring)) % SLOT_SIZE;
    served++;
}

/* To every other reader. */
static void run_with_old_lines(const struct fake_driver_launch *launch)
{
    static unsigned readers;
    struct fake_driver_launch changed = *launch;
    struct gemmd_feed feed = {.job_count = 1};
    uint64_t written;

    feed.jobs[0] = ((const struct gemmd_tensor_feed *)launch->parameter)->jobs[0];
    written = slot_of(feed.jobs[0].d);
    if (written != NO_SLOT) {
        memcpy(before[written], (const void *)(uintptr_t)feed.jobs[0].d, SLOT_SIZE);
    } else if (readers++ % 2 == 0) {
        serve_what_was_before(&feed.jobs[0].a);
        serve_what_was_before(&feed.jobs[0].c);
    }
    changed.parameter = &feed;
    fake_driver_product(&changed);
}

Test(ring, finds_readers_of_what_was_there_before)
{
    static const struct kernel_ring_reader dot = {"sm90a.bf16.bf16.nt.1x1x16.s1.c1x1.dot.element",
                                                  1};

    fake_driver_on_launch(run_with_old_lines);
    struct kernel_ring_report report = run(&dot);

    cr_expect_gt(served, 0);
    cr_expect_eq(report.wrong, report.products / 2);
    cr_expect_eq(report.old, report.wrong);
    cr_expect_not_null(strstr(report.first, "after it was written"));
    close_clean();
}
