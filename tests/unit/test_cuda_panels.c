/*
 * Streamed products over a driver that runs what is queued late, and in the most awkward order that
 * neither a stream nor an event forbids: a wait that is missing shows as a wrong element, or as an
 * access to memory that was given back.
 */
#include "../../daemon/worker/cuda_panels.h"
#include "../support/gemm_scene.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL     7
#define HOST_FLAGS 0xf0u

static struct backend *gpu;
static uint64_t random_state = 1;

static int64_t random_upto(int64_t most)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return 1 + (int64_t)((random_state >> 33) % (uint64_t)most);
}

static bool coin(void)
{
    return random_upto(2) == 1;
}

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_gpu_load(gpu, fake_gpu_kernel(KERNEL));
}

static void close_clean(void)
{
    fake_gpu_close(gpu);
}

static void submit(uint64_t number, const struct gemmd_job *job)
{
    const struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM,
                                          .track = GEMMD_TRACK_STREAM,
                                          .job = number,
                                          .kernel = KERNEL,
                                          .body.gemm = *job};

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
}

/* The next product's end, while the device goes on a little at a time. */
static struct gemmd_completion wait_for_one(void)
{
    struct gemmd_completion completion = {0};
    int r = 0;

    for (int i = 0; i < 1000000 && r == 0; i++) {
        (void)fake_driver_run((unsigned)random_upto(8));
        r = gpu->operations->reap(gpu, &completion);
    }
    cr_assert_eq(r, 1, "it never ends");
    return completion;
}

TestSuite(cuda_panels, .init = open_fake, .timeout = 60);

/* --- right results --------------------------------------------------------------------------- */

static struct setting random_setting(void)
{
    static const enum dtype types[][2] = {{DTYPE_BF16, DTYPE_BF16},
                                          {DTYPE_FP16, DTYPE_FP32},
                                          {DTYPE_FP32, DTYPE_FP32},
                                          {DTYPE_FP64, DTYPE_FP64},
                                          {DTYPE_INT8, DTYPE_INT32}};

    static const int64_t most[] = {40, 200, 700};
    const enum dtype *type = types[random_upto(5) - 1];

    return (struct setting){
        .input = type[0],
        .output = type[1],
        .m = random_upto(most[random_upto(3) - 1]),
        .n = random_upto(most[random_upto(3) - 1]),
        .k = random_upto(20),
        .batch = coin() ? 1 : random_upto(6),
        .trans_a = coin(),
        .trans_b = coin(),
        .pad = coin() ? 0 : (int)random_upto(9),
        .alpha = random_upto(9) == 1 ? 0 : 2,
        .beta = coin() ? 0 : -1,
        .in_place = random_upto(4) == 1,
        .bias = (enum bias)(random_upto(BIAS_COUNT) - 1),
        .activation = coin() ? ACTIVATION_NONE : ACTIVATION_RELU,
    };
}

static void check(struct scene *scene, const struct setting *s)
{
    for (int64_t item = 0; item < s->batch; item++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                struct reference expected =
                    scene_reference(scene, s, (const int64_t[]){item, i, j});
                double got = operand_get(&scene->d, item, i, j);

                cr_assert(scene_is_right(s, &expected, got),
                          "%ldx%ldx%ld, %ld items, flags %x: item %ld (%ld, %ld) is %g, not %g",
                          s->m, s->n, s->k, s->batch, scene->job.flags, item, i, j, got,
                          expected.before);
            }
    cr_assert(scene_kept_surroundings(scene), "bytes beside D's elements changed");
}

/* Several under way, of operands on either side, with so little scratch that most do not fit. */
static void stream(unsigned seed)
{
    enum { PRODUCTS = 3 };

    struct setting settings[PRODUCTS];
    struct scene scenes[PRODUCTS];

    random_state = seed;
    gpu->scratch = (uint64_t)random_upto(1 << (15 + seed % 6)) + (1 << 14);
    for (int i = 0; i < PRODUCTS; i++) {
        settings[i] = random_setting();
        scenes[i] = scene_make(&settings[i]);
        scenes[i].job.flags |= (uint32_t)random_upto(31) << 4;
        submit((uint64_t)i, &scenes[i].job);
    }
    for (int i = 0; i < PRODUCTS; i++) {
        struct gemmd_completion completion = wait_for_one();

        cr_assert_eq(completion.job, i);
        cr_assert_eq(completion.status, STATUS_OK);
        check(&scenes[i], &settings[i]);
        scene_free(&scenes[i]);
    }
    cr_assert_leq(fake_driver_live().scratch, CUDA_PANELS_BLOCKS, "scratch memory is left");
}

Test(cuda_panels, any_product_is_right_in_any_order_of_the_device)
{
    fake_driver_lazy(1);
    for (unsigned seed = 1; seed <= 60; seed++)
        stream(seed);
    close_clean();
}

/* Large enough that panels of both operands come alternately. */
Test(cuda_panels, a_product_that_computes_for_longer_than_it_copies_is_right)
{
    struct setting setting = {.input = DTYPE_FP64,
                              .output = DTYPE_FP64,
                              .m = 2100,
                              .n = 2200,
                              .k = 2,
                              .batch = 1,
                              .trans_a = true,
                              .alpha = 1};
    struct scene scene = scene_make(&setting);

    scene.job.flags |= HOST_FLAGS;
    fake_driver_lazy(3);
    submit(1, &scene.job);
    cr_expect_eq(wait_for_one().status, STATUS_OK);
    cr_expect_gt(fake_driver_calls("cuLaunchKernelEx"), 10);
    check(&scene, &setting);
    scene_free(&scene);
    close_clean();
}

Test(cuda_panels, a_device_that_keeps_up_gets_it_right_too)
{
    for (unsigned seed = 200; seed <= 210; seed++)
        stream(seed);
    close_clean();
}

/* --- how it runs ----------------------------------------------------------------------------- */

static const struct setting square = {
    .input = DTYPE_BF16, .output = DTYPE_BF16, .m = 700, .n = 700, .k = 8, .batch = 1, .alpha = 1};

Test(cuda_panels, copies_in_kernels_and_copies_out_are_under_way_together)
{
    struct scene scene = scene_make(&square);
    unsigned in, kernels, out;

    scene.job.flags |= HOST_FLAGS;
    gpu->scratch = 200000;
    fake_driver_lazy(1);
    submit(1, &scene.job);
    while (gpu->operations->is_eager(gpu))
        (void)gpu->operations->reap(gpu, &(struct gemmd_completion){0});
    in = fake_driver_calls("cuMemcpy3DAsync") + fake_driver_calls("cuMemcpyHtoDAsync");
    kernels = fake_driver_calls("cuLaunchKernelEx");
    out = fake_driver_calls("cuMemcpyDtoHAsync");
    cr_expect_gt(in + out, 8, "queued before anything has run: %u", in + out);
    cr_expect_gt(kernels, 4);
    (void)wait_for_one();
    scene_free(&scene);
    close_clean();
}

/* Or the bus would stand still at every end of a product, for as long as its last panels compute.
 */
Test(cuda_panels, a_product_comes_in_while_the_one_before_it_is_computed)
{
    enum { PRODUCTS = 4 };

    struct scene scenes[PRODUCTS];

    gpu->scratch = (uint64_t)1 << 28;
    fake_driver_lazy(1);
    for (uint64_t i = 0; i < PRODUCTS; i++) {
        scenes[i] = scene_make(&square);
        scenes[i].job.flags |= HOST_FLAGS;
        submit(i + 1, &scenes[i].job);
    }
    for (int i = 0; i < PRODUCTS; i++)
        (void)wait_for_one();
    cr_expect(fake_driver_awaited(CUDA_LANE_PANELS_IN) & 1u << CUDA_LANE_STREAM,
              "for the end of the product that had the same scratch memory");
    cr_expect_eq(fake_driver_awaited(CUDA_LANE_PANELS_IN) &
                     (1u << CUDA_LANE_PANELS_0 | 1u << CUDA_LANE_PANELS_1),
                 0);
    for (int i = 0; i < PRODUCTS; i++) {
        check(&scenes[i], &square);
        scene_free(&scenes[i]);
    }
    close_clean();
}

Test(cuda_panels, no_more_is_queued_than_the_driver_holds)
{
    struct scene scene = scene_make(&square);

    scene.job.flags |= HOST_FLAGS;
    gpu->scratch = 1 << 14;
    fake_driver_lazy(1);
    submit(1, &scene.job);
    for (int i = 0; i < 1000 && gpu->operations->is_eager(gpu); i++)
        (void)gpu->operations->reap(gpu, &(struct gemmd_completion){0});
    cr_expect(!gpu->operations->is_eager(gpu));
    cr_expect_eq(fake_driver_calls("cuLaunchKernelEx"), CUDA_PANELS_AHEAD);
    (void)wait_for_one();
    scene_free(&scene);
    close_clean();
}

/* A large product that is streamed, and a small command beside it. */
struct pair {
    struct scene large, small;
    struct gemmd_command command;
};

static const struct setting tiny = {
    .input = DTYPE_FP32, .output = DTYPE_FP32, .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1};

static struct pair pair_make(uint64_t scratch)
{
    struct pair pair = {.large = scene_make(&square), .small = scene_make(&tiny)};

    pair.large.job.flags |= HOST_FLAGS;
    pair.command = (struct gemmd_command){
        .kind = GEMMD_COMMAND_GEMM, .job = 2, .kernel = KERNEL, .body.gemm = pair.small.job};
    gpu->scratch = scratch;
    return pair;
}

static void pair_check(struct pair *pair)
{
    check(&pair->small, &tiny);
    check(&pair->large, &square);
    scene_free(&pair->small);
    scene_free(&pair->large);
    close_clean();
}

Test(cuda_panels, other_products_are_done_while_one_streams)
{
    struct pair pair = pair_make(1 << 14);

    fake_driver_lazy(1);
    submit(1, &pair.large.job);
    cr_assert_eq(gpu->operations->submit(gpu, &pair.command), 0);
    cr_expect_eq(wait_for_one().job, 2);
    cr_expect_eq(wait_for_one().job, 1);
    pair_check(&pair);
}

/* A streamed product may take a second, in which there is room for ten thousand others. */
Test(cuda_panels, any_number_of_products_is_done_while_one_streams)
{
    struct pair pair = pair_make(1 << 14);

    pair.command.is_quick = true;
    submit(1, &pair.large.job);
    fake_driver_stop_stream(CUDA_LANE_STREAM);
    for (; pair.command.job < 1000; pair.command.job++) {
        cr_assert_lt(gpu->operations->pending(gpu), gpu->operations->depth,
                     "no place for number %lu", pair.command.job);
        cr_assert_eq(gpu->operations->submit(gpu, &pair.command), 0);
        cr_expect_eq(wait_for_one().job, pair.command.job);
    }
    fake_driver_hold(false);
    cr_expect_eq(wait_for_one().job, 1);
    pair_check(&pair);
}

/* --- failures -------------------------------------------------------------------------------- */

Test(cuda_panels, a_failing_call_ends_that_product_and_no_other)
{
    static const char *const calls[] = {"cuMemcpyHtoDAsync", "cuLaunchKernelEx",
                                        "cuMemcpyDtoHAsync", "cuStreamWaitEvent", "cuEventRecord"};

    gpu->scratch = 1 << 16;
    fake_driver_lazy(1);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        struct setting dense = {.input = DTYPE_FP32,
                                .output = DTYPE_FP32,
                                .m = 300,
                                .n = 8,
                                .k = 16,
                                .batch = 1,
                                .trans_b = true,
                                .alpha = 1};
        struct scene first = scene_make(&dense), second = scene_make(&dense);

        first.job.flags |= HOST_FLAGS;
        second.job.flags |= HOST_FLAGS;
        fake_driver_fail(calls[i], 1, CUDA_ERROR_INVALID_VALUE);
        submit(1, &first.job);
        submit(2, &second.job);
        cr_expect_eq(wait_for_one().status, STATUS_INTERNAL, "%s", calls[i]);
        cr_expect_eq(wait_for_one().status, STATUS_OK, "%s", calls[i]);
        check(&second, &dense);
        cr_expect_leq(fake_driver_live().scratch, CUDA_PANELS_BLOCKS, "%s", calls[i]);
        scene_free(&first);
        scene_free(&second);
    }
    close_clean();
}

Test(cuda_panels, a_device_with_little_memory_left_is_content_with_less_scratch)
{
    struct setting setting = {.input = DTYPE_FP32,
                              .output = DTYPE_FP32,
                              .m = 700,
                              .n = 16,
                              .k = 8000,
                              .batch = 1,
                              .alpha = 0.5};
    struct scene scene = scene_make(&setting);

    scene.job.flags |= HOST_FLAGS;
    gpu->scratch = (uint64_t)1 << 28;
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    submit(1, &scene.job);
    cr_expect_eq(wait_for_one().status, STATUS_OK);
    cr_expect_eq(fake_driver_calls("cuMemAllocAsync"), 2);
    check(&scene, &setting);
    scene_free(&scene);
    close_clean();
}

/* --- scratch memory -------------------------------------------------------------------------- */

Test(cuda_panels, products_in_a_row_take_two_blocks_in_turn)
{
    struct scene scene = scene_make(&square);
    unsigned allocations = 0;

    scene.job.flags |= HOST_FLAGS;
    gpu->scratch = 1 << 20;
    fake_driver_lazy(5);
    for (uint64_t i = 0; i < 20; i++) {
        submit(2 * i + 1, &scene.job);
        submit(2 * i + 2, &scene.job);
        for (int j = 0; j < 2; j++)
            cr_expect_eq(wait_for_one().status, STATUS_OK);
        if (i == 0)
            allocations = fake_driver_calls("cuMemAllocAsync");
    }
    cr_expect_eq(allocations, CUDA_PANELS_BLOCKS);
    cr_expect_eq(fake_driver_calls("cuMemAllocAsync"), allocations);
    cr_expect_eq(fake_driver_calls("cuMemFreeAsync"), 0);
    check(&scene, &square);
    scene_free(&scene);
    close_clean();
}

Test(cuda_panels, blocks_that_are_kept_give_way_to_another_products_scratch_memory)
{
    struct pair pair = pair_make(1 << 20);

    pair.command.body.gemm.flags |= HOST_FLAGS;
    submit(1, &pair.large.job);
    cr_expect_eq(wait_for_one().status, STATUS_OK);
    cr_expect_gt(fake_driver_live().scratch, 0);
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(gpu->operations->submit(gpu, &pair.command), 0);
    cr_expect_eq(wait_for_one().status, STATUS_OK);
    cr_expect_eq(fake_driver_live().scratch, 0);
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(gpu->operations->submit(gpu, &pair.command), 0);
    cr_expect_eq(wait_for_one().status, STATUS_OUT_OF_MEMORY, "there is no more to give back");
    pair_check(&pair);
}

Test(cuda_panels, a_k_of_which_no_panel_fits_takes_more_scratch_up_to_the_device)
{
    struct scene scene = scene_make(&square);
    int64_t k = scene.job.k;

    scene.job.flags |= HOST_FLAGS;
    gpu->scratch = 4096;
    submit(1, &scene.job);
    cr_expect_eq(wait_for_one().status, STATUS_OK);
    check(&scene, &square);
    scene.job.k = scene.job.lda = (int64_t)1 << 40;
    submit(2, &scene.job);
    cr_expect_eq(wait_for_one().status, STATUS_OUT_OF_MEMORY);
    scene.job.k = scene.job.lda = k;
    scene_free(&scene);
    close_clean();
}

Test(cuda_panels, a_lost_device_is_noticed_while_a_product_streams)
{
    struct scene scene = scene_make(&square);
    struct gemmd_completion completion;
    int r = 0;

    scene.job.flags |= HOST_FLAGS;
    gpu->scratch = 1 << 14;
    fake_driver_lazy(1);
    submit(1, &scene.job);
    fake_driver_break(CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 1000 && r == 0; i++)
        r = gpu->operations->reap(gpu, &completion);
    cr_expect_lt(r, 0);
    scene_free(&scene);
}
