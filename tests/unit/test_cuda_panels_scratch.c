#include "../../daemon/worker/cuda_panels_scratch.h"
#include "../support/fake_driver.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define KEPT ((uint64_t)8 << 20)

static struct driver driver;
static struct cuda_panels_scratch scratch;
static CUstream in, out;
static struct fault fault;

static void open_fake(void)
{
    setenv("GEMMD_LIBCUDA", FAKE_DRIVER, 1);
    fake_driver_reset();
    cr_assert_eq(driver_init(&driver, &fault), 0, "%s", fault.message);
    cr_assert_eq(cu(&driver)->StreamCreateWithPriority(&in, CU_STREAM_NON_BLOCKING, 0), 0);
    cr_assert_eq(cu(&driver)->StreamCreateWithPriority(&out, CU_STREAM_NON_BLOCKING, 0), 0);
    cr_assert_eq(cuda_panels_scratch_init(&scratch, &driver, in, &fault), 0);
}

static void close_clean(void)
{
    (void)cu(&driver)->StreamSynchronize(in);
    (void)cu(&driver)->StreamSynchronize(out);
    cuda_panels_scratch_deinit(&scratch);
    cr_expect_eq(fake_driver_live().scratch, 0);
    cr_expect_eq(fake_driver_live().events, 0);
}

TestSuite(cuda_panels_scratch, .init = open_fake);

static CUdeviceptr take(uint64_t size)
{
    CUdeviceptr address = 0;

    cr_assert_eq(cuda_panels_scratch_take(&scratch, size, &address, &fault), 0);
    return address;
}

static void end(void)
{
    cr_assert_eq(cuda_panels_scratch_end(&scratch, out, KEPT, &fault), 0);
}

Test(cuda_panels_scratch, products_take_turns)
{
    CUdeviceptr first = take(1000), second;

    end();
    second = take(500);
    end();
    cr_expect_neq(first, second);
    cr_expect_eq(take(1000), first);
    end();
    cr_expect_eq(take(100), second);
    end();
    cr_expect_eq(fake_driver_calls("cuMemAllocAsync"), 2);
    close_clean();
}

Test(cuda_panels_scratch, a_block_waits_for_the_product_that_had_it_and_for_no_other)
{
    (void)take(1000);
    end();
    (void)take(1000);
    cr_expect_eq(fake_driver_calls("cuStreamWaitEvent"), 0);
    end();
    (void)take(1000);
    cr_expect_eq(fake_driver_calls("cuStreamWaitEvent"), 1);
    end();
    close_clean();
}

Test(cuda_panels_scratch, a_block_grows_in_its_place)
{
    (void)take(1000);
    end();
    (void)take(1000);
    end();
    (void)take(5000);
    end();
    cr_expect_eq(fake_driver_calls("cuMemFreeAsync"), 1);
    cr_expect_eq(fake_driver_live().scratch, 2);
    close_clean();
}

Test(cuda_panels_scratch, what_is_too_large_to_keep_is_given_back_at_its_products_end)
{
    (void)take(KEPT + 1);
    end();
    (void)cu(&driver)->StreamSynchronize(in);
    cr_expect_eq(fake_driver_live().scratch, 0);
    (void)take(1000);
    end();
    close_clean();
}

Test(cuda_panels_scratch, gives_back_all_but_what_a_product_has)
{
    cr_expect_not(cuda_panels_scratch_give_back(&scratch, false));
    (void)take(1000);
    end();
    (void)take(1000);
    cr_expect(cuda_panels_scratch_give_back(&scratch, true));
    cr_expect_eq(fake_driver_live().scratch, 1);
    cr_expect_not(cuda_panels_scratch_give_back(&scratch, true));
    end();
    cr_expect(cuda_panels_scratch_give_back(&scratch, false));
    cr_expect_eq(fake_driver_live().scratch, 0);
    close_clean();
}

Test(cuda_panels_scratch, is_usable_after_the_device_had_no_memory)
{
    CUdeviceptr address = 0;

    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(cuda_panels_scratch_take(&scratch, 1000, &address, &fault), DRIVER_E_FAULT);
    cr_expect_eq(address, 0);
    cr_expect_neq(take(1000), 0);
    end();
    close_clean();
}
