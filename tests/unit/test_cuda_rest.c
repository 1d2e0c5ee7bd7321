/*
 * Memory that the driver gives back only when the device rests (daemon/worker/cuda_memory.h): it is
 * kept until then, the device comes to rest for it, and goes on.
 */
#include "../../daemon/worker/cuda_memory.h"
#include "../support/gemm_scene.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KERNEL = 7, HOST_FLAGS = 0xf0, HOST_MEMORY = 1, DEVICE_MEMORY = 2, LARGE = 8 << 20 };

static struct backend *gpu;
static struct fault fault;

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_gpu_load(gpu, fake_gpu_kernel(KERNEL));
}

static void close_clean(void)
{
    fake_gpu_close(gpu);
}

TestSuite(cuda_rest, .init = open_fake, .fini = close_clean, .timeout = 60);

static uint64_t map(enum link_memory_kind kind, uint64_t id)
{
    const struct link_message request = {
        .kind = LINK_MAP, .memory_kind = kind, .id = id, .size = LARGE, .writable = 1};
    int fd = kind == LINK_MEMORY_HOST ? memfd_create("test", MFD_CLOEXEC) : -1;
    uint64_t address;

    if (fd >= 0)
        cr_assert_eq(ftruncate(fd, LARGE), 0);
    cr_assert_eq(gpu->operations->map(gpu, &request, &fd, &address, &fault), 0);
    fd_closep(&fd);
    return address;
}

static void submit_zeros(uint64_t address)
{
    const struct gemmd_command command = {
        .kind = GEMMD_COMMAND_ZERO, .job = 1, .body.copy = {.destination = address, .size = LARGE}};

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
}

/* As the worker's loop does at every turn. */
static int turn(void)
{
    struct gemmd_completion completion;

    return gpu->operations->reap(gpu, &completion);
}

static unsigned registered(void)
{
    return fake_driver_live().registrations;
}

Test(cuda_rest, host_memory_is_given_back_at_once_while_nothing_is_under_way)
{
    (void)map(LINK_MEMORY_HOST, HOST_MEMORY);
    cr_expect_eq(registered(), 1);
    gpu->operations->unmap(gpu, HOST_MEMORY);
    cr_expect(gpu->operations->is_eager(gpu), "or the loop would sleep");
    (void)turn();
    cr_expect_eq(registered(), 0);
    cr_expect_not(gpu->operations->is_eager(gpu));
}

/* The driver would wait for what is under way, and the worker with it. */
Test(cuda_rest, host_memory_is_given_back_when_what_is_under_way_has_ended)
{
    (void)map(LINK_MEMORY_HOST, HOST_MEMORY);
    fake_driver_hold(true);
    submit_zeros(map(LINK_MEMORY_DEVICE_CREATE, DEVICE_MEMORY));
    gpu->operations->unmap(gpu, HOST_MEMORY);
    cr_expect_eq(turn(), 0);
    cr_expect_eq(registered(), 1);
    cr_expect_not(gpu->operations->is_eager(gpu));
    fake_driver_hold(false);
    cr_assert_eq(turn(), 1);
    (void)turn();
    cr_expect_eq(registered(), 0);
}

Test(cuda_rest, memory_of_the_device_is_given_back_beside_what_is_under_way)
{
    uint64_t address = map(LINK_MEMORY_DEVICE_CREATE, DEVICE_MEMORY);

    (void)map(LINK_MEMORY_DEVICE_CREATE, DEVICE_MEMORY + 1);
    fake_driver_hold(true);
    submit_zeros(address);
    gpu->operations->unmap(gpu, DEVICE_MEMORY + 1);
    cr_expect_eq(fake_driver_live().mappings, 1);
    fake_driver_hold(false);
    cr_assert_eq(turn(), 1);
}

Test(cuda_rest, is_wanted_when_the_device_does_not_come_to_it_by_itself)
{
    (void)map(LINK_MEMORY_HOST, HOST_MEMORY);
    fake_driver_hold(true);
    submit_zeros(map(LINK_MEMORY_DEVICE_CREATE, DEVICE_MEMORY));
    cr_expect_not(gpu->operations->wants_rest(gpu));
    gpu->operations->unmap(gpu, HOST_MEMORY);
    (void)usleep(CUDA_MEMORY_CLOSING_NS / 1000);
    cr_expect(gpu->operations->wants_rest(gpu));
    fake_driver_hold(false);
    cr_assert_eq(turn(), 1);
    (void)turn();
    cr_expect_not(gpu->operations->wants_rest(gpu), "there is no more to wait for");
}

/* A second of them, with the others waiting, would be too long. */
Test(cuda_rest, comes_between_two_steps_of_a_streamed_product)
{
    static const struct setting setting = {.input = DTYPE_BF16,
                                           .output = DTYPE_BF16,
                                           .m = 700,
                                           .n = 700,
                                           .k = 8,
                                           .batch = 1,
                                           .alpha = 1};
    static const int64_t last[] = {0, 699, 699};
    struct scene scene = scene_make(&setting);
    struct reference expected;
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM,
                                    .track = GEMMD_TRACK_STREAM,
                                    .job = 1,
                                    .kernel = KERNEL,
                                    .body.gemm = scene.job};

    command.body.gemm.flags |= HOST_FLAGS;
    gpu->scratch = 1 << 14;
    (void)map(LINK_MEMORY_HOST, HOST_MEMORY);
    fake_driver_lazy(1);
    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    gpu->operations->unmap(gpu, HOST_MEMORY);
    (void)usleep(CUDA_MEMORY_CLOSING_NS / 1000);
    for (; registered() == 1; (void)fake_driver_run(1))
        cr_assert_eq(turn(), 0, "the product ends before");
    while (turn() == 0)
        (void)fake_driver_run(1);
    expected = scene_reference(&scene, &setting, last);
    cr_expect(scene_is_right(&setting, &expected, operand_get(&scene.d, 0, last[1], last[2])));
    scene_free(&scene);

    (void)map(LINK_MEMORY_HOST, HOST_MEMORY);
    gpu->operations->unmap(gpu, HOST_MEMORY);
    (void)turn();
    cr_expect_eq(registered(), 0, "nor does the product count when it is over");
}

Test(cuda_rest, that_never_comes_keeps_nothing_when_the_worker_ends)
{
    (void)map(LINK_MEMORY_HOST, HOST_MEMORY);
    fake_driver_hold(true);
    submit_zeros(map(LINK_MEMORY_DEVICE_CREATE, DEVICE_MEMORY));
    gpu->operations->unmap(gpu, HOST_MEMORY);
}
