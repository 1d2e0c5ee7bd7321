/*
 * Large products whose kernels begin beside the end of the launch before them, over a driver that
 * runs what is queued late and in the most awkward order that neither a stream nor an event
 * forbids: one that is said to have ended has, and what needs its result waits.
 */
#include "../../daemon/worker/cuda_lane.h"
#include "../support/gemm_scene.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { EARLY = 7, PLAIN = 8, PRODUCTS = 5 };

static struct backend *gpu;
static struct fault fault;

static const struct setting setting = {
    .input = DTYPE_BF16, .output = DTYPE_FP32, .m = 40, .n = 50, .k = 9, .batch = 1, .alpha = 1};

static void load(uint64_t id, bool begins_early)
{
    struct link_message request = {.kind = LINK_LOAD,
                                   .id = id,
                                   .threads = 384,
                                   .shared_memory = 200 << 10,
                                   .ctas_per_multiprocessor = 1,
                                   .tile_m = 16,
                                   .tile_n = 32,
                                   .begins_early = begins_early};

    strcpy(request.entry, "gemm");
    cr_assert_eq(gpu->operations->load(gpu, &request, "\177ELF", &fault), 0);
}

static void open_fake(void)
{
    gpu = fake_gpu_open();
    load(EARLY, true);
    load(PLAIN, false);
}

TestSuite(cuda_overlap, .init = open_fake, .timeout = 60);

static void close_clean(void)
{
    fake_gpu_close(gpu);
}

/* The stream that says when it has ended. */
static unsigned submit(uint64_t number, uint64_t kernel, const struct gemmd_job *job)
{
    const struct gemmd_command command = {
        .kind = GEMMD_COMMAND_GEMM, .job = number, .kernel = kernel, .body.gemm = *job};

    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    return fake_driver_last_stream();
}

/* What ends next, while the device goes on one operation at a time. */
static uint64_t wait_for_one(void)
{
    struct gemmd_completion completion;
    int r = 0;

    for (int i = 0; i < 10000 && r == 0; i++) {
        (void)fake_driver_run(1);
        r = gpu->operations->reap(gpu, &completion);
    }
    cr_assert_eq(r, 1, "it never ends");
    cr_expect_eq(completion.status, STATUS_OK);
    return completion.job;
}

static bool is_right(struct scene *scene)
{
    for (int64_t i = 0; i < setting.m; i++)
        for (int64_t j = 0; j < setting.n; j++) {
            struct reference expected =
                scene_reference(scene, &setting, (const int64_t[]){0, i, j});

            if (!scene_is_right(&setting, &expected, operand_get(&scene->d, 0, i, j)))
                return false;
        }
    return scene_kept_surroundings(scene);
}

Test(cuda_overlap, a_product_that_is_said_to_have_ended_has_its_result)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct scene scenes[PRODUCTS];

        fake_driver_lazy(seed);
        for (uint64_t i = 0; i < PRODUCTS; i++) {
            scenes[i] = scene_make(&setting);
            (void)submit(i, i % 3 == 2 ? PLAIN : EARLY, &scenes[i].job);
        }
        for (int i = 0; i < PRODUCTS; i++) {
            uint64_t number = wait_for_one();

            cr_expect(is_right(&scenes[number]), "seed %u: product %lu", seed, number);
        }
        for (int i = 0; i < PRODUCTS; i++)
            scene_free(&scenes[i]);
    }
    close_clean();
}

Test(cuda_overlap, products_that_overlap_by_themselves_have_no_write_between_them)
{
    struct scene scenes[4];
    unsigned ends[4];

    fake_driver_lazy(1);
    for (unsigned i = 0; i < 4; i++) {
        scenes[i] = scene_make(&setting);
        ends[i] = submit(i, i < 2 ? PLAIN : EARLY, &scenes[i].job);
    }
    cr_expect_eq(ends[2], ends[3], "they are on one lane");
    cr_expect_geq(ends[2], CUDA_LANES, "and none launches on the stream of their writes");
    cr_expect_eq(fake_driver_awaited(ends[2]), 1u << CUDA_LANE_OVERLAPPING);
    cr_expect_eq(fake_driver_awaited(CUDA_LANE_OVERLAPPING), 0);
    cr_expect_neq(ends[0], ends[1], "others overlap from two lanes");
    for (int i = 0; i < 4; i++)
        (void)wait_for_one();
    for (int i = 0; i < 4; i++)
        scene_free(&scenes[i]);
    close_clean();
}

Test(cuda_overlap, a_copy_of_a_result_waits_for_the_product_and_not_for_its_end_to_be_told)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct scene first = scene_make(&setting), scene = scene_make(&setting);
        unsigned char *copy = malloc(scene.d.size);
        const struct gemmd_command command = {
            .kind = GEMMD_COMMAND_COPY,
            .job = 3,
            .is_quick = true,
            .body.copy = {.destination = (uintptr_t)copy,
                          .source = (uintptr_t)scene.d.bytes,
                          .size = scene.d.size},
        };

        cr_assert_not_null(copy);
        fake_driver_lazy(seed);
        (void)submit(1, EARLY, &first.job);
        (void)submit(2, EARLY, &scene.job);
        cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
        while (wait_for_one() != 3)
            continue;
        cr_expect(is_right(&scene), "seed %u", seed);
        cr_expect_eq(memcmp(copy, scene.d.bytes, scene.d.size), 0, "seed %u", seed);
        while (gpu->operations->pending(gpu) > 0)
            (void)wait_for_one();
        scene_free(&first);
        scene_free(&scene);
        free(copy);
    }
    close_clean();
}
