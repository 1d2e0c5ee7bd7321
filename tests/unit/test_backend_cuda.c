/*
 * The CUDA backend over the fake driver: what it finds, maps, loads and gives back, and
 * what it does when the driver says no: device, memory, kernels. test_cuda_execute.c has the jobs.
 */
#include "../../daemon/worker/cuda_host.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KERNEL 7
#define TILE   16

static struct backend *gpu;
static struct fault fault;

static void open_fake(void)
{
    gpu = fake_gpu_open();
}

static void close_clean(void)
{
    fake_gpu_close(gpu);
}

static struct link_message kernel_request(void)
{
    struct link_message request = {.kind = LINK_LOAD,
                                   .id = KERNEL,
                                   .threads = 128,
                                   .shared_memory = 64 << 10,
                                   .ctas_per_multiprocessor = 2,
                                   .tile_m = TILE,
                                   .tile_n = TILE};
    strcpy(request.entry, "gemm");
    strcpy(request.configuration, "test");
    return request;
}

static int load_kernel(const char *image)
{
    struct link_message request = kernel_request();
    return gpu->operations->load(gpu, &request, image, &fault);
}

static int memory_file(size_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static int map(enum link_memory_kind kind, uint64_t id, uint64_t size, int *fd, uint64_t *address)
{
    struct link_message request = {.kind = LINK_MAP,
                                   .memory_kind = kind,
                                   .id = id,
                                   .size = size,
                                   .allocation = size,
                                   .writable = 1};
    return gpu->operations->map(gpu, &request, fd, address, &fault);
}

TestSuite(backend_cuda, .init = open_fake);

/* --- device ---------------------------------------------------------------------------------- */

Test(backend_cuda, says_which_device_it_is)
{
    cr_expect_str_eq(gpu->device.name, "Fake 0");
    cr_expect_str_eq(gpu->device.uuid, FAKE_DRIVER_UUID);
    cr_expect_eq(gpu->device.kind, LINK_DEVICE_CUDA);
    cr_expect_eq(gpu->device.compute_major, 9);
    cr_expect_eq(gpu->device.multiprocessors, FAKE_DRIVER_MULTIPROCESSORS);
    cr_expect_eq(gpu->device.driver_version, 13000);
    cr_expect_eq(strncmp(gpu->device.driver, "CUDA 13.0 driver", 16), 0);
    cr_expect_str_eq(getenv("CUDA_MODULE_LOADING"), "EAGER");
    close_clean();
}

Test(backend_cuda, finds_a_device_by_index_and_by_uuid)
{
    static const char *const selectors[] = {"cuda:1", "GPU-10111213-1415-1617-1819-1A1B1C1D1E1F"};
    close_clean();
    for (size_t i = 0; i < ARRAY_SIZE(selectors); i++) {
        cr_assert_eq(backend_cuda_open(selectors[i], NULL, &gpu, &fault), 0);
        cr_expect_str_eq(gpu->device.name, "Fake 1");
        close_clean();
    }
}

Test(backend_cuda, says_why_a_device_is_absent)
{
    static const char *const selectors[] = {"cuda:2", "cuda:", "cuda:1x", "cuda:-1", "GPU-00", ""};
    close_clean();
    for (size_t i = 0; i < ARRAY_SIZE(selectors); i++) {
        fault = FAULT_NONE;
        cr_expect_eq(backend_cuda_open(selectors[i], NULL, &gpu, &fault), BACKEND_E_ABSENT);
        cr_expect(strstr(fault.message, "the driver shows 2"), "%s", fault.message);
    }
}

Test(backend_cuda, is_absent_without_a_driver)
{
    setenv("GEMMD_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    cr_expect_eq(backend_cuda_open("cuda", NULL, &gpu, &fault), BACKEND_E_ABSENT);
    cr_expect(strstr(fault.message, "/nowhere/libcuda.so.1"), "%s", fault.message);
}

Test(backend_cuda, gives_everything_back_when_opening_fails_at_any_call)
{
    static const char *const calls[] = {"cuInit",
                                        "cuDriverGetVersion",
                                        "cuDeviceGetCount",
                                        "cuDeviceGet",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuCtxSetCurrent",
                                        "cuMemGetAllocationGranularity",
                                        "cuDeviceGetDefaultMemPool",
                                        "cuMemPoolSetAttribute",
                                        "cuStreamCreateWithPriority",
                                        "cuMemHostAlloc",
                                        "cuMemHostGetDevicePointer"};
    static const struct fake_driver_live none;
    close_clean();
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        fake_driver_reset();
        fake_driver_fail(calls[i], 0, CUDA_ERROR_SYSTEM_NOT_READY);
        cr_expect_eq(backend_cuda_open("cuda", NULL, &gpu, &fault), BACKEND_E_ABSENT, "%s",
                     calls[i]);
        struct fake_driver_live live = fake_driver_live();
        cr_expect_eq(memcmp(&live, &none, sizeof(none)), 0, "%s", calls[i]);
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

Test(backend_cuda, device_memory_is_zero_and_outlives_the_worker_by_its_descriptor)
{
    int fd = -1;
    uint64_t address;
    cr_assert_eq(map(LINK_MEMORY_DEVICE_CREATE, 1, 100, &fd, &address), 0, "%s", fault.message);
    cr_assert_geq(fd, 0);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(((char *)(uintptr_t)address)[i], 0);
    strcpy((char *)(uintptr_t)address, "kept");
    close_clean();

    cr_assert_eq(backend_cuda_open("cuda", NULL, &gpu, &fault), 0);
    cr_assert_eq(map(LINK_MEMORY_DEVICE_IMPORT, 1, 100, &fd, &address), 0);
    cr_expect_eq(fd, -1, "an imported descriptor is consumed");
    cr_expect_str_eq((char *)(uintptr_t)address, "kept");
    gpu->operations->unmap(gpu, 1);
    cr_expect_eq(fake_driver_live().mappings, 0);
    close_clean();
}

Test(backend_cuda, out_of_device_memory_is_that_requests_fault)
{
    static const uint64_t sizes[] = {(uint64_t)2 << 30, UINT64_MAX / 2, UINT64_MAX};

    static const enum status statuses[] = {STATUS_OUT_OF_MEMORY, STATUS_OUT_OF_MEMORY,
                                           STATUS_INVALID_ARGUMENT};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        int fd = -1;
        uint64_t address;
        cr_assert_eq(map(LINK_MEMORY_DEVICE_CREATE, 1, sizes[i], &fd, &address), BACKEND_E_FAULT);
        cr_expect_eq(fault.status, statuses[i], "%s", fault.message);
        cr_expect_eq(fd, -1);
    }
    close_clean();
}

Test(backend_cuda, gives_scratch_memory_back_before_it_says_out_of_memory)
{
    int fd = -1;
    uint64_t address;
    fake_driver_fail("cuMemCreate", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(map(LINK_MEMORY_DEVICE_CREATE, 1, 100, &fd, &address), 0, "%s", fault.message);
    cr_expect_eq(fake_driver_calls("cuMemPoolTrimTo"), 1);
    close(fd);
    close_clean();
}

static int shared_memory(size_t size)
{
    int fd = memfd_create(FAKE_DRIVER_MEMORY, MFD_CLOEXEC);
    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    return fd;
}

/* Whatever fails, it is the client's fault and leaves nothing behind. */
Test(backend_cuda, undoes_an_import_that_fails_half_way)
{
    static const char *const calls[] = {"cuMemImportFromShareableHandle",
                                        "cuMemGetAllocationPropertiesFromHandle",
                                        "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        int fd = shared_memory(FAKE_DRIVER_GRANULARITY);
        uint64_t address;
        fake_driver_fail(calls[i], 0, CUDA_ERROR_INVALID_VALUE);
        cr_expect_eq(map(LINK_MEMORY_DEVICE_FOREIGN, 1, 4096, &fd, &address), BACKEND_E_FAULT);
        cr_expect_eq(fault.status, STATUS_INVALID_ARGUMENT, "%s", calls[i]);
        cr_expect_eq(fake_driver_live().mappings + fake_driver_live().handles, 0, "%s", calls[i]);
        close(fd);
    }
    close_clean();
}

Test(backend_cuda, import_for_reading_cannot_be_written)
{
    struct link_message request = {.kind = LINK_MAP,
                                   .memory_kind = LINK_MEMORY_DEVICE_FOREIGN,
                                   .id = 1,
                                   .size = 4096,
                                   .offset = 8192,
                                   .allocation = FAKE_DRIVER_GRANULARITY};
    int fd = shared_memory(FAKE_DRIVER_GRANULARITY), probe[2];
    uint64_t address;
    cr_assert_eq(pwrite(fd, "there", 6, 8192), 6);
    cr_assert_eq(gpu->operations->map(gpu, &request, &fd, &address, &fault), 0);
    cr_expect_eq(fd, -1);
    cr_expect_str_eq((char *)(uintptr_t)address, "there");
    cr_assert_eq(pipe(probe), 0);
    cr_assert_eq(write(probe[1], "x", 1), 1);
    cr_expect_lt(read(probe[0], (void *)(uintptr_t)address, 1), 0);
    close_clean();
}

Test(backend_cuda, undoes_a_mapping_that_fails_half_way)
{
    static const char *const calls[] = {"cuMemCreate",
                                        "cuMemAddressReserve",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemsetD8Async",
                                        "cuStreamSynchronize",
                                        "cuMemExportToShareableHandle"};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        int fd = -1;
        uint64_t address;
        fake_driver_fail(calls[i], 0, CUDA_ERROR_INVALID_VALUE);
        int r = map(LINK_MEMORY_DEVICE_CREATE, 1, 100, &fd, &address);
        cr_expect_eq(r, BACKEND_E_FAULT, "%s", calls[i]);
        cr_expect_eq(fd, -1);
        struct fake_driver_live live = fake_driver_live();
        cr_expect_eq(live.handles + live.ranges + live.mappings, 0, "%s", calls[i]);
    }
    close_clean();
}

#define LARGE (CUDA_HOST_LATE + 5000)

Test(backend_cuda, host_memory_is_mapped_registered_and_given_back)
{
    int fd = memory_file(LARGE), kept = dup(fd);
    uint64_t address;
    cr_assert_eq(map(LINK_MEMORY_HOST, 1, LARGE, &fd, &address), 0, "%s", fault.message);
    cr_expect_eq(fd, -1);
    ((char *)(uintptr_t)address)[4999] = 'x';
    char read_back;
    cr_assert_eq(pread(kept, &read_back, 1, 4999), 1);
    cr_expect_eq(read_back, 'x');
    cr_expect_eq(fake_driver_live().registrations, 1);
    cr_expect_eq(fake_driver_register_flags() & CU_MEMHOSTREGISTER_READ_ONLY, 0);
    gpu->operations->unmap(gpu, 1);
    gpu->operations->unmap(gpu, 1); /* unknown by now: ignored */
    cr_expect_eq(gpu->operations->reap(gpu, &(struct gemmd_completion){0}), 0);
    cr_expect_eq(fake_driver_live().registrations, 0);
    close_clean();
}

Test(backend_cuda, read_only_host_memory_is_registered_as_such)
{
    int fd = memory_file(LARGE);
    uint64_t address;
    struct link_message request = {
        .kind = LINK_MAP, .memory_kind = LINK_MEMORY_HOST, .id = 1, .size = LARGE, .writable = 0};
    cr_assert_eq(gpu->operations->map(gpu, &request, &fd, &address, &fault), 0);
    cr_expect(fake_driver_register_flags() & CU_MEMHOSTREGISTER_READ_ONLY);
    close_clean();
}

Test(backend_cuda, host_memory_that_cannot_be_registered_still_serves)
{
    int fd = memory_file(LARGE);
    uint64_t address;
    fake_driver_fail("cuMemHostRegister", 0, CUDA_ERROR_NOT_PERMITTED);
    cr_assert_eq(map(LINK_MEMORY_HOST, 1, LARGE, &fd, &address), 0);
    cr_expect_neq(address, 0);
    close_clean();
}

Test(backend_cuda, a_descriptor_smaller_than_claimed_is_refused)
{
    int fd = memory_file(4096);
    uint64_t address;
    cr_assert_eq(map(LINK_MEMORY_HOST, 1, 4097, &fd, &address), BACKEND_E_FAULT);
    cr_expect_eq(fault.status, STATUS_INVALID_ARGUMENT);
    cr_expect_geq(fd, 0, "not consumed");
    close(fd);
    close_clean();
}

/* --- kernels --------------------------------------------------------------------------------- */

Test(backend_cuda, a_refused_cubin_carries_the_drivers_text)
{
    cr_assert_eq(load_kernel("not a cubin"), BACKEND_E_FAULT);
    cr_expect(strstr(fault.message, "cuModuleLoadData"), "%s", fault.message);
    cr_expect(strstr(fault.message, "the fake driver says so"), "%s", fault.message);
    close_clean();
}

Test(backend_cuda, a_kernel_that_does_not_fit_is_refused)
{
    struct link_message request = kernel_request();
    request.shared_memory = 228 << 10;
    cr_expect_eq(gpu->operations->load(gpu, &request, "\177ELF", &fault), BACKEND_E_FAULT);
    request = kernel_request();
    request.threads = 2048;
    cr_expect_eq(gpu->operations->load(gpu, &request, "\177ELF", &fault), BACKEND_E_FAULT);
    request = kernel_request();
    strcpy(request.entry, "other");
    cr_expect_eq(gpu->operations->load(gpu, &request, "\177ELF", &fault), BACKEND_E_FAULT);
    close_clean();
}
