/*
 * Nobody reads what memory held before the last launch that wrote it: kernel_ring.h says which
 * loads that is in question for, and what promises it. A failure that counts old products is the
 * question answered with no: then inputs that dot and outer read before griddepcontrol.wait want
 * loads that pass L1 by, or an acquire.
 */
#include "compile_all.h"
#include "kernel_ring.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>

#define TIMES 50

ParameterizedTestParameters(kernels_ring, every_reader_sees_what_was_written_last)
{
    static size_t numbers[KERNEL_RING_READERS];

    for (size_t i = 0; i < KERNEL_RING_READERS; i++)
        numbers[i] = i;
    return cr_make_param_array(size_t, numbers, KERNEL_RING_READERS);
}

ParameterizedTest(size_t *number,
                  kernels_ring,
                  every_reader_sees_what_was_written_last,
                  .timeout = 300)
{
    static struct compiled compiled[2]; /* writer, reader */
    static struct kernel_ring ring;
    const struct kernel_ring_reader *reader = &kernel_ring_readers[*number];
    const char *device = getenv("GEMMD_TEST_DEVICE");
    bool is_named = device && strcmp(device, "auto") != 0; /* what run-tests says if nobody does */
    struct kernel_ring_report report;
    struct fault fault = FAULT_NONE;

    cr_assert(config_from_text(KERNEL_RING_WRITER, &compiled[0].config));
    cr_assert(config_from_text(reader->configuration, &compiled[1].config));
    cr_assert_eq(kernel_ring_open(&ring, is_named ? device : "cuda", &fault), 0,
                 "no GPU to test on: %s", fault.message);
    cr_assert_eq(compile_all(compiled, 2, &fault), 0, "%s", fault.message);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(compiled[i].r, 0, "%s", compiled[i].result.log);
        cr_assert_eq(kernel_ring_load(&ring, &compiled[i].config, i == 0,
                                      compiled[i].result.cubin.bytes, compiled[i].result.cubin.size,
                                      &fault),
                     0, "%s", fault.message);
        nvrtc_result_deinit(&compiled[i].result);
    }
    cr_assert_eq(
        kernel_ring_run(&ring, &compiled[1].config, reader->splits, TIMES, &report, &fault), 0,
        "%s", fault.message);
    cr_expect_eq(report.wrong, 0, "%s: %llu of %llu are wrong, %llu of them old: first %s",
                 reader->configuration, (unsigned long long)report.wrong,
                 (unsigned long long)report.products, (unsigned long long)report.old, report.first);
    kernel_ring_close(&ring);
}
