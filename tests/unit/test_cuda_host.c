#include "../../daemon/worker/cuda_host.h"
#include "../support/fake_driver.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct driver driver;
static struct cuda_device device;
static struct cuda_hosts hosts;

static void open_fake(void)
{
    struct fault fault = FAULT_NONE;

    setenv("GEMMD_LIBCUDA", FAKE_DRIVER, 1);
    fake_driver_reset();
    cr_assert_eq(driver_init(&driver, &fault), 0, "%s", fault.message);
    cuda_hosts_init(&hosts, &driver, &device);
}

TestSuite(cuda_host, .init = open_fake);

static void add(struct cuda_host *host, size_t size)
{
    cuda_host_init(host);
    host->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(host->base, MAP_FAILED);
    host->size = size;
    host->is_writable = true;
    cuda_host_add(host, &hosts);
}

/* A copy from so far into the memory to a device. */
static void use(const struct cuda_host *host, size_t offset, bool is_quick)
{
    const struct gemmd_command command = {
        .kind = GEMMD_COMMAND_COPY,
        .is_quick = is_quick,
        .body.copy = {.source = (uint64_t)(uintptr_t)host->base + offset,
                      .destination = 1 << 20,
                      .size = 16,
                      .flags = GEMMD_JOB_HOST_A},
    };
    cuda_hosts_use(&hosts, &command);
}

Test(cuda_host, large_memory_is_registered_when_it_is_mapped)
{
    struct cuda_host host;

    add(&host, CUDA_HOST_LATE + 4096);
    cr_expect(host.is_registered);
    cuda_host_deinit(&host, &hosts);
    cr_expect_eq(fake_driver_live().registrations, 0);
}

Test(cuda_host, small_memory_is_registered_at_its_second_use)
{
    struct cuda_host host;

    add(&host, 1 << 20);
    cr_expect_not(host.is_registered);
    use(&host, 0, true);
    cr_expect_not(host.is_registered);
    use(&host, 5000, true);
    cr_expect(host.is_registered);
    use(&host, 0, true);
    cr_expect_eq(fake_driver_calls("cuMemHostRegister"), 1);
    cuda_host_deinit(&host, &hosts);
    cr_expect_eq(fake_driver_live().registrations, 0);
}

Test(cuda_host, a_command_that_is_not_quick_registers_what_it_uses)
{
    struct cuda_host host;

    add(&host, 1 << 20);
    use(&host, 0, false);
    cr_expect(host.is_registered);
    cuda_host_deinit(&host, &hosts);
}

Test(cuda_host, what_is_not_used_twice_is_never_registered)
{
    struct cuda_host one, other;

    add(&one, 1 << 20);
    add(&other, 1 << 20);
    use(&one, 0, true);
    use(&other, 0, true);
    cuda_host_deinit(&one, &hosts);
    cuda_host_deinit(&other, &hosts);
    cr_expect_eq(fake_driver_calls("cuMemHostRegister"), 0);
    cr_expect_eq(hosts.late_count, 0);
}

Test(cuda_host, device_memory_of_a_like_address_is_no_use)
{
    const struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY, .is_quick = true};
    struct cuda_host host;
    struct gemmd_command device_copy = command;

    add(&host, 1 << 20);
    device_copy.body.copy.source = (uint64_t)(uintptr_t)host.base;
    device_copy.body.copy.size = 16;
    cuda_hosts_use(&hosts, &device_copy);
    cuda_hosts_use(&hosts, &device_copy);
    cr_expect_not(host.is_registered);
    cuda_host_deinit(&host, &hosts);
}

Test(cuda_host, few_wait_for_their_second_use_and_the_oldest_not_longer)
{
    struct cuda_host list[CUDA_HOST_LATE_MOST + 2];

    for (size_t i = 0; i < ARRAY_SIZE(list); i++)
        add(&list[i], 4096);
    cr_expect_eq(hosts.late_count, CUDA_HOST_LATE_MOST);
    for (size_t i = 0; i < ARRAY_SIZE(list); i++)
        cr_expect_eq(list[i].is_registered, i < 2, "%zu", i);
    for (size_t i = 0; i < ARRAY_SIZE(list); i++)
        cuda_host_deinit(&list[i], &hosts);
    cr_expect_eq(hosts.late_count, 0);
    cr_expect_eq(fake_driver_live().registrations, 0);
}

Test(cuda_host, memory_that_cannot_be_registered_serves_without)
{
    struct cuda_host host;

    fake_driver_fail("cuMemHostRegister", 0, CUDA_ERROR_NOT_PERMITTED);
    add(&host, 1 << 20);
    for (int i = 0; i < 3; i++)
        use(&host, 0, true);
    cr_expect_not(host.is_registered);
    cr_expect_eq(fake_driver_calls("cuMemHostRegister"), 1);
    cuda_host_deinit(&host, &hosts);
}
