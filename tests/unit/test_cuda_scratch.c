#include "../../daemon/worker/cuda_scratch.h"
#include "../support/fake_driver.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct driver driver;
static struct cuda_scratch scratch;

static void open_fake(void)
{
    struct fault fault = FAULT_NONE;

    setenv("GEMMD_LIBCUDA", FAKE_DRIVER, 1);
    fake_driver_reset();
    cr_assert_eq(driver_init(&driver, &fault), 0, "%s", fault.message);
    cuda_scratch_init(&scratch, &driver, NULL);
}

TestSuite(cuda_scratch, .init = open_fake);

#define LATEST 3 /* launch */
#define LARGE  (CUDA_SCRATCH_MIDDLE + 1)

static int next(uint64_t size)
{
    struct fault fault = FAULT_NONE;

    return cuda_scratch_next(&scratch, size, LATEST, &fault);
}

Test(cuda_scratch, keeps_a_block_that_is_large_enough)
{
    cr_assert_eq(next(LARGE), 0);
    CUdeviceptr first = cuda_scratch_address(&scratch);

    cr_assert_eq(next(LARGE), 0);
    cr_assert_eq(next(100), 0, "of such a block four places are made");
    cuda_scratch_trim(&scratch);
    cr_expect_eq(scratch.block, first);
    cr_expect_eq(fake_driver_calls("cuMemAllocAsync"), 1);
    cuda_scratch_deinit(&scratch);
    cr_expect_eq(fake_driver_live().scratch, 0);
}

Test(cuda_scratch, a_larger_block_takes_the_place_of_the_old_one)
{
    cr_assert_eq(next(LARGE), 0);
    cr_assert_eq(next(2 * LARGE), 0);
    cr_expect_geq(scratch.size, 2 * LARGE);
    cr_expect_eq(fake_driver_live().scratch, 1);
    cuda_scratch_deinit(&scratch);
}

Test(cuda_scratch, gives_small_uses_places_in_turn)
{
    CUdeviceptr places[CUDA_SCRATCH_PLACES];

    for (int i = 0; i < CUDA_SCRATCH_PLACES; i++) {
        cr_assert_eq(next(CUDA_SCRATCH_SMALL), 0);
        places[i] = cuda_scratch_address(&scratch);
        for (int j = 0; j < i; j++)
            cr_expect_geq(MAX(places[i], places[j]) - MIN(places[i], places[j]),
                          CUDA_SCRATCH_SMALL);
        cr_expect_geq(places[i], scratch.block);
        cr_expect_leq(places[i] + CUDA_SCRATCH_SMALL, scratch.block + scratch.size);
    }
    cr_assert_eq(next(1), 0, "what is smaller takes them, too");
    cr_expect_eq(cuda_scratch_address(&scratch), places[0]);
    cuda_scratch_deinit(&scratch);
}

Test(cuda_scratch, gives_larger_uses_two_places)
{
    cr_assert_eq(next(CUDA_SCRATCH_MIDDLE), 0);
    CUdeviceptr first = cuda_scratch_address(&scratch);

    cr_assert_eq(next(CUDA_SCRATCH_SMALL + 1), 0);
    cr_expect_neq(cuda_scratch_address(&scratch), first);
    cr_assert_eq(next(CUDA_SCRATCH_SMALL + 1), 0);
    cr_expect_eq(cuda_scratch_address(&scratch), first);
    cuda_scratch_deinit(&scratch);
}

Test(cuda_scratch, takes_every_place_for_read_by_the_latest_launch_when_a_block_is_divided_anew)
{
    cr_assert_eq(next(1 << 20), 0);
    for (int i = 0; i < CUDA_SCRATCH_PLACES; i++)
        scratch.reader[i] = 0;
    cr_assert_eq(next(1 << 20), 0);
    cr_expect_eq(scratch.reader[scratch.place], 0);
    cr_assert_eq(next(2 << 20), 0, "of a larger block");
    cr_expect_eq(scratch.reader[scratch.place], LATEST);
    scratch.reader[0] = 0;
    cr_assert_eq(next(LARGE), 0, "in one place");
    cr_expect_eq(scratch.reader[0], LATEST);
    scratch.reader[1] = 0;
    cr_assert_eq(next(1 << 20), 0, "in four of the same block");
    cr_expect_eq(scratch.reader[1], LATEST);
    cuda_scratch_deinit(&scratch);
}

Test(cuda_scratch, forgets_who_filled_a_place_with_the_next_one)
{
    cr_assert_eq(next(LARGE), 0);
    scratch.holder = 7;
    cr_assert_eq(next(LARGE), 0);
    cr_expect_eq(scratch.holder, 0);
    cuda_scratch_deinit(&scratch);
}

Test(cuda_scratch, gives_back_what_is_too_large_to_keep)
{
    cr_assert_eq(next(CUDA_SCRATCH_KEPT + 1), 0);
    cuda_scratch_trim(&scratch);
    cr_expect_eq(scratch.size, 0);
    cr_expect_eq(fake_driver_live().scratch, 0);
}

Test(cuda_scratch, is_empty_and_usable_after_the_device_had_no_memory)
{
    cr_assert_eq(next(1 << 20), 0);
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(next(LARGE), DRIVER_E_FAULT, "a larger one");
    cr_expect_eq(scratch.size, 0);
    cr_expect_eq(fake_driver_live().scratch, 0);
    cr_expect_eq(next(1 << 20), 0);
    cuda_scratch_deinit(&scratch);
}
