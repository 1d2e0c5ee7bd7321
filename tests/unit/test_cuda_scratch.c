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

static int reserve(uint64_t size)
{
    struct fault fault = FAULT_NONE;

    return cuda_scratch_reserve(&scratch, size, &fault);
}

Test(cuda_scratch, keeps_a_block_that_is_large_enough)
{
    cr_assert_eq(reserve(5 << 20), 0);
    CUdeviceptr first = scratch.address;

    scratch.holder = 7;
    cr_assert_eq(reserve(6 << 20), 0, "blocks are of whole megabytes");
    cr_assert_eq(reserve(100), 0);
    cuda_scratch_trim(&scratch);
    cr_expect_eq(scratch.address, first);
    cr_expect_eq(scratch.holder, 7);
    cr_expect_eq(fake_driver_calls("cuMemAllocAsync"), 1);
    cuda_scratch_deinit(&scratch);
    cr_expect_eq(fake_driver_live().scratch, 0);
}

Test(cuda_scratch, a_larger_block_takes_the_place_of_the_old_one_and_has_no_holder)
{
    cr_assert_eq(reserve(1 << 20), 0);
    scratch.holder = 7;
    cr_assert_eq(reserve(9 << 20), 0);
    cr_expect_geq(scratch.size, 9u << 20);
    cr_expect_eq(scratch.holder, 0);
    cr_expect_eq(fake_driver_live().scratch, 1);
    cuda_scratch_deinit(&scratch);
}

Test(cuda_scratch, gives_back_what_is_too_large_to_keep)
{
    cr_assert_eq(reserve(CUDA_SCRATCH_KEPT + 1), 0);
    cuda_scratch_trim(&scratch);
    cr_expect_eq(scratch.size, 0);
    cr_expect_eq(fake_driver_live().scratch, 0);
}

Test(cuda_scratch, is_empty_and_usable_after_the_device_had_no_memory)
{
    cr_assert_eq(reserve(1 << 20), 0);
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(reserve(9 << 20), DRIVER_E_FAULT);
    cr_expect_eq(scratch.size, 0);
    cr_expect_eq(fake_driver_live().scratch, 0);
    cr_expect_eq(reserve(1 << 20), 0);
    cuda_scratch_deinit(&scratch);
}
