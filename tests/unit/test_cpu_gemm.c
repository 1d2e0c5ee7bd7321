#include "../../daemon/worker/cpu_gemm.h"

#include "../support/gemm_scene.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const enum dtype pairs[][2] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

static void check_elements(const struct scene *scene, const struct setting *s)
{
    for (int64_t item = 0; item < s->batch; item++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                const struct reference expected =
                    scene_reference(scene, s, (const int64_t[]){item, i, j});
                const double got = operand_get(&scene->d, item, i, j);

                cr_assert(scene_is_right(s, &expected, got),
                          "%s->%s %ldx%ldx%ld%s%s pad %d shift %zu alpha %g beta %g bias %d "
                          "%s: item %ld (%ld, %ld) is %g, not that of %g",
                          dtype_name(s->input), dtype_name(s->output), s->m, s->n, s->k,
                          s->trans_a ? " ta" : "", s->trans_b ? " tb" : "", s->pad, s->shift,
                          s->alpha, s->beta, (int)s->bias, activation_name(s->activation), item, i,
                          j, got, expected.before);
            }
}

static void run_and_check(struct cpu_gemm *gemm, const struct setting *s)
{
    struct scene scene = scene_make(s);

    cr_assert_eq(cpu_gemm_run(gemm, &scene.job), STATUS_OK);
    check_elements(&scene, s);
    cr_assert(scene_kept_surroundings(&scene), "bytes beside D's elements changed");
    scene_free(&scene);
}

struct engine {
    struct blas blas;
    struct cpu_gemm gemm;
};

static void engine_open(struct engine *engine, const char *library)
{
    blas_init(&engine->blas, library);
    cpu_gemm_init(&engine->gemm, &engine->blas);
}

static void engine_close(struct engine *engine)
{
    cpu_gemm_deinit(&engine->gemm);
    blas_deinit(&engine->blas);
}

/* --- products -------------------------------------------------------------------------------- */

static const int64_t shapes[][3] = {
    {1, 1, 1},  {3, 5, 7},    {17, 1, 33},  {1, 19, 20},  {64, 65, 63},
    {9, 64, 1}, {1030, 3, 5}, {3, 1030, 5}, {3, 5, 2100},
};

static void sweep_layouts(struct cpu_gemm *gemm, struct setting s)
{
    const bool is_integer = s.input == DTYPE_INT8;
    const double scalars[][2] = {{1, 0}, {is_integer ? -3 : 0.7, is_integer ? 5 : -1.25}};

    for (int variant = 0; variant < 16; variant++) {
        s.trans_a = variant & 1;
        s.trans_b = variant & 2;
        s.pad = variant & 4 ? 3 : 0;
        s.batch = variant & 4 ? 3 : 1;
        s.alpha = scalars[variant >> 3][0];
        s.beta = scalars[variant >> 3][1];
        s.in_place = variant & 4;
        s.shift = variant & 1 ? dtype_size(s.input) : 0;
        run_and_check(gemm, &s);
    }
}

static void sweep(const char *library)
{
    struct engine engine;

    engine_open(&engine, library);
    for (size_t p = 0; p < ARRAY_SIZE(pairs); p++)
        for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
            sweep_layouts(&engine.gemm, (struct setting){.input = pairs[p][0],
                                                         .output = pairs[p][1],
                                                         .m = shapes[i][0],
                                                         .n = shapes[i][1],
                                                         .k = shapes[i][2]});
    engine_close(&engine);
}

/* With and without a product, C, a library's way in place. */
Test(cpu_gemm, bias_and_activation_apply_to_all_that_comes_before)
{
    struct engine engine;

    engine_open(&engine, NULL);
    for (size_t p = 0; p < ARRAY_SIZE(pairs); p++)
        for (int variant = 0; variant < BIAS_COUNT * ACTIVATION_COUNT * 4; variant++) {
            const struct setting s = {.input = pairs[p][0],
                                      .output = pairs[p][1],
                                      .m = 9,
                                      .n = 14,
                                      .k = variant & 1 ? 6 : 0,
                                      .batch = 2,
                                      .pad = 1,
                                      .alpha = 2,
                                      .beta = variant & 2 ? -1 : 0,
                                      .in_place = variant & 2,
                                      .bias = variant / 4 % BIAS_COUNT,
                                      .activation = variant / 4 / BIAS_COUNT};

            if (activation_is_valid(s.activation, s.output))
                run_and_check(&engine.gemm, &s);
        }
    engine_close(&engine);
}

Test(cpu_gemm, products_agree_with_a_double_loop)
{
    sweep(NULL);
}

Test(cpu_gemm, products_agree_with_a_double_loop_without_a_library)
{
    sweep("no-such-library.so");
}

Test(cpu_gemm, operands_may_lie_at_any_byte)
{
    struct engine engine;

    engine_open(&engine, NULL);
    for (size_t p = 0; p < ARRAY_SIZE(pairs); p++)
        for (size_t shift = 1; shift < 8; shift += 2) {
            const struct setting s = {.input = pairs[p][0],
                                      .output = pairs[p][1],
                                      .m = 5,
                                      .n = 6,
                                      .k = 7,
                                      .batch = 2,
                                      .trans_b = true,
                                      .pad = 1,
                                      .shift = shift,
                                      .alpha = 2,
                                      .beta = 1,
                                      .in_place = true};

            run_and_check(&engine.gemm, &s);
        }
    engine_close(&engine);
}

/* A is scaled the other way, so that the result is an ordinary number. */
Test(cpu_gemm, scalars_outside_the_range_of_float_are_not_flushed)
{
    static const double scalars[] = {1e-60, 1e-39, 1e39, -1e60};
    struct engine engine;

    engine_open(&engine, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(scalars); i++) {
        const struct setting s = {.input = DTYPE_FP32,
                                  .output = DTYPE_FP32,
                                  .m = 3,
                                  .n = 4,
                                  .k = 5,
                                  .batch = 1,
                                  .alpha = scalars[i]};
        const double scale = fabs(scalars[i]) < 1 ? 1e30 : 1e-30;
        struct scene scene = scene_make(&s);

        for (int row = 0; row < 3; row++)
            for (int l = 0; l < 5; l++)
                operand_set(&scene.a, 0, row, l, scale * operand_get(&scene.a, 0, row, l));
        cr_assert_eq(cpu_gemm_run(&engine.gemm, &scene.job), STATUS_OK);
        check_elements(&scene, &s);
        scene_free(&scene);
    }
    engine_close(&engine);
}

Test(cpu_gemm, without_a_product_to_add_a_and_b_are_not_read)
{
    static const double betas[] = {0, 1, 2};
    struct engine engine;

    engine_open(&engine, NULL);
    for (size_t p = 0; p < ARRAY_SIZE(pairs); p++)
        for (int variant = 0; variant < 12; variant++) {
            const struct setting s = {.input = pairs[p][0],
                                      .output = pairs[p][1],
                                      .m = 6,
                                      .n = 300,
                                      .k = variant & 1 ? 0 : 8,
                                      .batch = 2,
                                      .pad = 2,
                                      .alpha = variant & 1 ? 1 : 0,
                                      .beta = betas[variant / 4],
                                      .in_place = variant & 2};
            struct scene scene = scene_make(&s);

            scene.job.a = scene.job.b = 0; /* absent: reading would be a fault */
            scene.job.lda = scene.job.ldb = INT64_MAX;
            scene.job.stride_a = scene.job.stride_b = INT64_MAX - 1;
            if (s.beta == 0) {
                scene.job.c = 0;
                scene.job.ldc = scene.job.stride_c = INT64_MAX;
            }
            cr_assert_eq(cpu_gemm_run(&engine.gemm, &scene.job), STATUS_OK);
            check_elements(&scene, &s);
            cr_assert(scene_kept_surroundings(&scene), "bytes beside D's elements changed");
            scene_free(&scene);
        }
    engine_close(&engine);
}

Test(cpu_gemm, an_empty_product_touches_nothing)
{
    struct engine engine;

    engine_open(&engine, NULL);
    for (int variant = 0; variant < 3; variant++) {
        const struct gemmd_job job = {.m = variant == 0 ? 0 : 4,
                                      .n = variant == 1 ? 0 : 4,
                                      .k = 4,
                                      .batch = variant == 2 ? 0 : 1,
                                      .alpha = 1,
                                      .beta = 1,
                                      .input = DTYPE_FP32,
                                      .output = DTYPE_FP32};

        cr_assert_eq(cpu_gemm_run(&engine.gemm, &job), STATUS_OK, "variant %d", variant);
    }
    engine_close(&engine);
}

enum {
    VARIANT_TRANS_A = 1,
    VARIANT_TRANS_B = 2,
    VARIANT_COLUMN = 4, /* n = 1 */
    VARIANT_ROW = 8,    /* m = 1 */
    VARIANT_IN_B = 16,  /* the odd value is B's, the zeros are A's */
    VARIANTS = 32,
};

/* One odd value in one operand, zeros opposite to it in the other: 0 * Inf is NaN, and no library
 * may skip a zero. */
static void propagate(struct cpu_gemm *gemm, size_t pair, double odd, int variant)
{
    const struct setting s = {.input = pairs[pair][0],
                              .output = pairs[pair][1],
                              .m = variant & VARIANT_ROW ? 1 : 20,
                              .n = variant & VARIANT_COLUMN ? 1 : 33,
                              .k = 40,
                              .batch = 1,
                              .trans_a = variant & VARIANT_TRANS_A,
                              .trans_b = variant & VARIANT_TRANS_B,
                              .alpha = 1};
    const double in_a = variant & VARIANT_IN_B ? 0 : odd, in_b = variant & VARIANT_IN_B ? odd : 0;
    struct scene scene = scene_make(&s);

    for (int64_t i = 0; i < s.m; i += in_a == 0 ? 3 : s.m)
        operand_set(&scene.a, 0, s.trans_a ? 7 : i, s.trans_a ? i : 7, in_a);
    for (int64_t j = 0; j < s.n; j += in_b == 0 ? 3 : s.n)
        operand_set(&scene.b, 0, s.trans_b ? j : 7, s.trans_b ? 7 : j, in_b);
    cr_assert_eq(cpu_gemm_run(gemm, &scene.job), STATUS_OK);
    check_elements(&scene, &s);
    scene_free(&scene);
}

Test(cpu_gemm, nan_and_inf_reach_exactly_their_row_or_column)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    struct engine engine[2];

    engine_open(&engine[0], NULL);
    engine_open(&engine[1], "no-such-library.so");
    for (size_t e = 0; e < 2; e++)
        for (size_t p = 0; p < ARRAY_SIZE(pairs) - 1; p++)
            for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
                for (int variant = 0; variant < VARIANTS; variant++)
                    propagate(&engine[e].gemm, p, odd[i], variant);
    engine_close(&engine[0]);
    engine_close(&engine[1]);
}

Test(cpu_gemm, int8_sums_are_exact_and_wrap_at_32_bits)
{
    const struct setting s = {.input = DTYPE_INT8,
                              .output = DTYPE_INT32,
                              .m = 2,
                              .n = 3,
                              .k = 140001,
                              .batch = 1,
                              .alpha = 2147483647,
                              .beta = -2147483648.0};
    struct scene scene = scene_make(&s);
    struct engine engine;

    engine_open(&engine, NULL);
    memset(scene.a.bytes, 127, scene.a.size);
    memset(scene.b.bytes, 127, scene.b.size);
    cr_assert_eq(cpu_gemm_run(&engine.gemm, &scene.job), STATUS_OK);
    check_elements(&scene, &s);
    scene_free(&scene);
    engine_close(&engine);
}

Test(cpu_gemm, one_input_may_serve_the_whole_batch)
{
    const struct setting s = {
        .input = DTYPE_FP32, .output = DTYPE_FP32, .m = 4, .n = 5, .k = 6, .batch = 3, .alpha = 1};
    struct scene scene = scene_make(&s);
    struct engine engine;

    engine_open(&engine, NULL);
    scene.job.stride_a = scene.a.stride = 0;
    cr_assert_eq(cpu_gemm_run(&engine.gemm, &scene.job), STATUS_OK);
    check_elements(&scene, &s);
    scene_free(&scene);
    engine_close(&engine);
}

Test(cpu_gemm, rows_may_lie_further_apart_than_an_int)
{
    const int64_t ld = (1ll << 31) + 7;
    const size_t size = (ld + 2) * sizeof(float);
    float *a = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    float b[] = {10, 100}, d[] = {0, 0};
    struct gemmd_job job = {.a = (uintptr_t)a,
                            .b = (uintptr_t)b,
                            .d = (uintptr_t)d,
                            .m = 2,
                            .n = 1,
                            .k = 2,
                            .batch = 1,
                            .lda = ld,
                            .ldb = 1,
                            .ldc = 1,
                            .ldd = 1,
                            .alpha = 1,
                            .input = DTYPE_FP32,
                            .output = DTYPE_FP32};
    struct engine engine;

    cr_assert_neq(a, MAP_FAILED);
    engine_open(&engine, NULL);
    a[0] = 1, a[1] = 2, a[ld] = 3, a[ld + 1] = 4;
    cr_assert_eq(cpu_gemm_run(&engine.gemm, &job), STATUS_OK);
    cr_assert_eq(d[0], 210);
    cr_assert_eq(d[1], 430);
    engine_close(&engine);
    munmap(a, size);
}

/* Else whoever named one looks for a package that is there. */
Test(cpu_gemm, says_that_the_library_which_was_named_is_none)
{
    struct blas blas;

    blas_init(&blas, "no-such-library.so");
    cr_expect(strstr(blas.description, "GEMMD_BLAS"), "%s", blas.description);
    blas_deinit(&blas);
}

Test(cpu_gemm, what_it_cannot_run_is_unsupported)
{
    struct engine engine;
    struct gemmd_job job = {.m = 1, .n = 1, .k = 1, .batch = 1, .alpha = 1};

    engine_open(&engine, NULL);
    job.input = DTYPE_INT8, job.output = DTYPE_FP32;
    cr_assert_eq(cpu_gemm_run(&engine.gemm, &job), STATUS_UNSUPPORTED);
    job.input = 77;
    cr_assert_eq(cpu_gemm_run(&engine.gemm, &job), STATUS_UNSUPPORTED);
    job.input = job.output = DTYPE_FP32;
    job.tile_count = 1;
    cr_assert_eq(cpu_gemm_run(&engine.gemm, &job), STATUS_UNSUPPORTED);
    engine_close(&engine);
}
