/*
 * Kernels whose tile is an element of D, over the fake driver: how many threads share an element
 * decides in which order its sum is added, so all blocks of a product have as many.
 */
#include "../support/gemm_scene.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL     7
#define THREADS    256
#define HOST_FLAGS 0xf0u

static struct backend *gpu;

static struct {
    unsigned launches;
    uint32_t least, most; /* threads of an element */
} seen;

static void note_threads(const struct fake_driver_launch *launch)
{
    const struct gemmd_job *job = &((const struct gemmd_feed *)launch->parameter)->jobs[0];
    uint32_t threads = gemmd_dot_threads(job, (uint64_t)(job->m * job->n * job->batch));

    seen.least = seen.launches == 0 ? threads : MIN(seen.least, threads);
    seen.most = MAX(seen.most, threads);
    seen.launches++;
}

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_driver_on_launch(note_threads);
    fake_gpu_load(gpu, (struct link_message){.id = KERNEL,
                                             .threads = THREADS,
                                             .ctas_per_multiprocessor = 4,
                                             .tile_m = 1,
                                             .tile_n = 1});
}

static void close_fake(void)
{
    gpu->operations->close(gpu);
}

TestSuite(cuda_dot, .init = open_fake, .fini = close_fake, .timeout = 60);

static void run(enum gemmd_track track, const struct gemmd_job *job)
{
    struct gemmd_command command = {
        .kind = GEMMD_COMMAND_GEMM, .track = track, .kernel = KERNEL, .body.gemm = *job};
    struct gemmd_completion completion;
    int r = 0;

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    while (r == 0)
        r = gpu->operations->reap(gpu, &completion);
    cr_assert_eq(r, 1);
    cr_assert_eq(completion.status, STATUS_OK);
}

static const struct setting setting = {.input = DTYPE_BF16,
                                       .output = DTYPE_FP32,
                                       .m = 500,
                                       .n = 3,
                                       .k = 1001,
                                       .batch = 2,
                                       .trans_b = true,
                                       .alpha = 1};

/* The less memory, the smaller the blocks. */
Test(cuda_dot, blocks_of_any_size_have_the_threads_of_the_whole_product)
{
    struct scene scene = scene_make(&setting);
    uint32_t whole = gemmd_dot_threads(&scene.job, (uint64_t)(setting.m * setting.n * 2));

    scene.job.flags |= HOST_FLAGS;
    for (int i = 15; i < 28; i += 4) {
        gpu->scratch = (uint64_t)1 << i;
        run(GEMMD_TRACK_STREAM, &scene.job);
    }
    cr_expect_gt(seen.launches, 50);
    cr_expect_eq(seen.least, whole);
    cr_expect_eq(seen.most, whole);
    scene_free(&scene);
}

/* 512 elements: eight threads each, by their own number; of a product of so many more, one. */
Test(cuda_dot, the_grid_is_for_the_threads_that_elements_have)
{
    struct gemmd_job job = {.m = 16,
                            .n = 32,
                            .k = 64,
                            .batch = 1,
                            .lda = 64,
                            .ldb = 32,
                            .ldd = 32,
                            .alpha = 1,
                            .input = DTYPE_BF16,
                            .output = DTYPE_BF16};

    run(GEMMD_TRACK_MAIN, &job);
    cr_expect_eq(fake_driver_last_launch().grid, 512 * 8 / THREADS);
    job.product_elements = 1 << 16;
    run(GEMMD_TRACK_MAIN, &job);
    cr_expect_eq(fake_driver_last_launch().grid, 512 / THREADS);
}
