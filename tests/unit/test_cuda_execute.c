/*
 * Jobs through the CUDA backend over the fake driver: what is staged, in which order jobs end, and
 * what a failing call costs. The numbers are the kernels' business (tests/gpu); here a "launch" is
 * a product in plain C that reads its job as a kernel would.
 */
#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/cuda_execute.h"
#include "fake_gpu.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL 7
#define TILE   16
#define CANARY 0x7b

static struct backend *gpu;
static struct fault fault;
static struct fake_driver_launch last_launch;
static struct gemmd_job last_job;

static const float *row(uint64_t base, int64_t stride, int64_t ld, int64_t item, int64_t i)
{
    return (const float *)(uintptr_t)base + item * stride + i * ld;
}

/* fp32, by the BLAS rules; writes exactly the m x n elements. */
static void multiply(const struct fake_driver_launch *launch)
{
    const struct gemmd_feed *feed = launch->parameter;
    const struct gemmd_job *j = &feed->jobs[0];
    bool ta = j->flags & GEMMD_JOB_TRANS_A, tb = j->flags & GEMMD_JOB_TRANS_B;
    last_launch = *launch;
    last_job = *j;
    for (int64_t item = 0; item < j->batch; item++) {
        for (int64_t m = 0; m < j->m; m++) {
            for (int64_t n = 0; n < j->n; n++) {
                double sum = 0;
                for (int64_t k = 0; k < j->k && j->alpha != 0; k++)
                    sum += (double)row(j->a, j->stride_a, j->lda, item, ta ? k : m)[ta ? m : k] *
                           row(j->b, j->stride_b, j->ldb, item, tb ? n : k)[tb ? k : n];
                double c = j->beta != 0 ? row(j->c, j->stride_c, j->ldc, item, m)[n] : 0;
                float *d = (float *)(uintptr_t)row(j->d, j->stride_d, j->ldd, item, m);
                d[n] = (float)(j->alpha * sum + (j->beta != 0 ? j->beta * c : 0));
            }
        }
    }
}

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_driver_on_launch(multiply);
    fake_gpu_load(gpu, (struct link_message){.id = KERNEL,
                                             .threads = 128,
                                             .shared_memory = 64 << 10,
                                             .ctas_per_multiprocessor = 2,
                                             .tile_m = TILE,
                                             .tile_n = TILE});
}

static void close_clean(void)
{
    fake_gpu_close(gpu);
}

/* Submits and takes the completion. */
static enum status run(const struct gemmd_command *command)
{
    struct gemmd_completion completion;
    cr_assert_eq(gpu->operations->submit(gpu, command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    cr_assert_eq(completion.job, command->job);
    cr_assert_leq(completion.started_ns, completion.finished_ns);
    cr_assert_eq(gpu->operations->pending(gpu), 0);
    return (enum status)completion.status;
}

TestSuite(cuda_execute, .init = open_fake);

/* --- staging --------------------------------------------------------------------------------- */

struct shape {
    const char *name;
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    int64_t pad;    /* elements between rows */
    int64_t gap;    /* elements between items */
    int64_t offset; /* elements before the first */
    bool shared_a;  /* stride 0 */
    double alpha, beta;
    bool in_place;
};

static const struct shape shapes[] = {
    {"one element", 1, 1, 1, 1, .alpha = 1},
    {"dense, aligned", 16, 32, 8, 1, .alpha = 1},
    {"dense, odd", 17, 33, 5, 1, .alpha = 2, .beta = 1},
    {"padded rows", 17, 33, 5, 1, .pad = 7, .alpha = 1, .beta = -1},
    {"padded to 16 bytes", 17, 30, 6, 1, .pad = 2, .alpha = 1},
    {"unaligned base", 4, 4, 4, 1, .offset = 1, .alpha = 1},
    {"transposed", 5, 9, 7, 1, true, true, .pad = 1, .alpha = 1},
    {"one column", 40, 1, 3, 1, .pad = 3, .alpha = 1, .beta = 1},
    {"one row", 1, 40, 3, 1, .pad = 3, .alpha = 1, .beta = 1},
    {"dense batch", 4, 4, 4, 5, .alpha = 1},
    {"dense odd batch", 3, 3, 3, 5, .alpha = 1, .beta = 1},
    {"batch of rows", 1, 5, 3, 6, .alpha = 1, .beta = 1},
    {"batch with gaps", 4, 4, 4, 5, .gap = 3, .alpha = 1, .beta = 1},
    {"batch, whole rows of gap", 4, 6, 5, 3, .pad = 1, .gap = 14, .alpha = 1, .beta = 2},
    {"batch, odd gap", 4, 6, 5, 3, .pad = 2, .gap = 5, .alpha = 1, .beta = 2},
    {"many short items", 2, 3, 2, 50, .pad = 1, .gap = 1, .alpha = 1, .beta = 1},
    {"one A for all", 4, 5, 6, 3, .pad = 1, .shared_a = true, .alpha = 1},
    {"in place", 9, 7, 5, 2, .pad = 2, .alpha = 1, .beta = 3, .in_place = true},
    {"no k", 5, 6, 0, 2, .pad = 1, .alpha = 1, .beta = 2},
    {"no alpha", 5, 6, 3, 2, .pad = 1, .alpha = 0, .beta = 2},
    {"nothing but zero", 5, 6, 0, 1, .pad = 1, .alpha = 1},
};

/* Memory that ends where the operand ends, so that a sanitizer sees one byte too many. */
struct matrix {
    float *base, *data;
    int64_t rows, columns, ld, stride, items, size;
};

static struct matrix
matrix_new(int64_t rows, int64_t columns, const struct shape *shape, bool is_shared, unsigned seed)
{
    struct matrix x = {.rows = rows, .columns = columns, .items = is_shared ? 1 : shape->batch};
    x.ld = columns + shape->pad > 0 ? columns + shape->pad : 1;
    x.stride = is_shared ? 0 : rows * x.ld + shape->gap;
    int64_t span = rows && columns ? (x.items - 1) * x.stride + (rows - 1) * x.ld + columns : 0;
    x.size = shape->offset + span;
    cr_assert_eq(posix_memalign((void **)&x.base, 256, (size_t)x.size * 4 + !x.size), 0);
    memset(x.base, CANARY, (size_t)x.size * 4);
    x.data = x.base + shape->offset;
    for (int64_t b = 0; b < x.items; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                x.data[b * x.stride + r * x.ld + c] =
                    (float)((seed = seed * 1103515245 + 12345) >> 28);
    return x;
}

static struct matrix matrix_copy(const struct matrix *from)
{
    struct matrix x = *from;
    x.base = malloc((size_t)x.size * 4 + !x.size);
    memcpy(x.base, from->base, (size_t)x.size * 4);
    x.data = x.base + (from->data - from->base);
    return x;
}

static bool row_is_aligned(const void *data, int64_t ld, int64_t stride)
{
    return (uintptr_t)data % 16 == 0 && ld * 4 % 16 == 0 && stride * 4 % 16 == 0;
}

static void stage(const struct shape *s)
{
    struct matrix a =
        matrix_new(s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s, s->shared_a, 1);
    struct matrix b = matrix_new(s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s, false, 2);
    struct matrix d = matrix_new(s->m, s->n, s, false, 3);
    struct matrix c = s->in_place ? d : matrix_new(s->m, s->n, s, false, 4);
    struct matrix expected = matrix_copy(&d);
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .job = 5, .kernel = KERNEL};
    command.body.gemm = (struct gemmd_job){.a = s->k ? (uintptr_t)a.data : 0,
                                           .b = s->k ? (uintptr_t)b.data : 0,
                                           .c = s->beta != 0 ? (uintptr_t)c.data : 0,
                                           .d = (uintptr_t)expected.data,
                                           .m = s->m,
                                           .n = s->n,
                                           .k = s->k,
                                           .batch = s->batch,
                                           .lda = a.ld,
                                           .ldb = b.ld,
                                           .ldc = c.ld,
                                           .ldd = d.ld,
                                           .stride_a = a.stride,
                                           .stride_b = b.stride,
                                           .stride_c = c.stride,
                                           .stride_d = d.stride,
                                           .alpha = s->alpha,
                                           .beta = s->beta,
                                           .input = DTYPE_FP32,
                                           .output = DTYPE_FP32,
                                           .flags = (s->trans_a ? GEMMD_JOB_TRANS_A : 0) |
                                                    (s->trans_b ? GEMMD_JOB_TRANS_B : 0)};
    struct gemmd_feed feed = {.job_count = 1, .jobs[0] = command.body.gemm};
    multiply(&(struct fake_driver_launch){.parameter = &feed});

    command.body.gemm.d = (uintptr_t)d.data;
    command.body.gemm.flags |=
        GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_B | GEMMD_JOB_HOST_C | GEMMD_JOB_HOST_D;
    cr_expect_eq(run(&command), STATUS_OK, "%s", s->name);
    cr_expect_eq(memcmp(d.base, expected.base, (size_t)d.size * 4), 0, "%s: D differs", s->name);
    cr_expect_eq(last_job.flags & (GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_D), 0, "%s", s->name);
    cr_expect_neq(last_job.d, (uintptr_t)d.data, "%s: D was not staged", s->name);
    if (s->k && s->alpha != 0 && row_is_aligned(a.data, a.ld, a.stride))
        cr_expect(row_is_aligned((void *)(uintptr_t)last_job.a, last_job.lda, last_job.stride_a),
                  "%s: A's copy is less aligned than A", s->name);
    if (row_is_aligned(d.data, d.ld, d.stride))
        cr_expect(row_is_aligned((void *)(uintptr_t)last_job.d, last_job.ldd, last_job.stride_d),
                  "%s: D's copy is less aligned than D", s->name);
    cr_expect_eq(fake_driver_live().scratch, 0, "%s: scratch memory is left", s->name);

    free(a.base);
    free(b.base);
    free(d.base);
    if (!s->in_place)
        free(c.base);
    free(expected.base);
}

Test(cuda_execute, stages_host_operands_and_touches_only_their_elements)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        stage(&shapes[i]);
    close_clean();
}

Test(cuda_execute, scratch_memory_follows_the_elements_not_the_leading_dimension)
{
    struct shape wide = {"wide", 8, 4, 4, 2, .pad = 100000, .gap = 12345, .alpha = 1, .beta = 1};
    stage(&wide);
    cr_expect_lt(fake_driver_scratch_high(), 8192);
    close_clean();
}

Test(cuda_execute, an_absent_operand_is_never_an_address)
{
    struct shape no_alpha = {"no alpha", 4, 4, 4, 1, .alpha = 0};
    stage(&no_alpha);
    cr_expect_eq(last_job.a, 0);
    cr_expect_eq(last_job.b, 0);
    cr_expect_eq(last_job.c, 0);
    close_clean();
}

Test(cuda_execute, a_slice_of_a_staged_job_keeps_the_other_tiles)
{
    float a = 2, b = 3, d[2] = {1, 10};
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .kernel = KERNEL};
    command.body.gemm = (struct gemmd_job){.a = (uintptr_t)&a,
                                           .b = (uintptr_t)&b,
                                           .d = (uintptr_t)d,
                                           .m = 1,
                                           .n = 2,
                                           .k = 1,
                                           .batch = 1,
                                           .lda = 1,
                                           .ldb = 2,
                                           .ldd = 2,
                                           .alpha = 1,
                                           .input = DTYPE_FP32,
                                           .output = DTYPE_FP32,
                                           .flags = GEMMD_JOB_HOST_D,
                                           .first_tile = 1,
                                           .tile_count = 1};
    fake_driver_on_launch(NULL); /* a kernel whose tile is none of these elements */
    for (int i = 1; i >= 0; i--) {
        command.body.gemm.tile_count = (uint64_t)i; /* 0: all the rest */
        cr_expect_eq(run(&command), STATUS_OK);
        cr_expect_eq(d[0], 1);
        cr_expect_eq(d[1], 10);
    }
    close_clean();
}

/* --- launches -------------------------------------------------------------------------------- */

static struct gemmd_command device_job(uint64_t number, int64_t m, int64_t n, int64_t batch)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .job = number, .kernel = KERNEL};
    command.body.gemm = (struct gemmd_job){
        .m = m, .n = n, .batch = batch, .input = DTYPE_FP32, .output = DTYPE_FP32};
    return command;
}

Test(cuda_execute, the_grid_is_no_larger_than_the_work_or_the_device)
{
    static const struct {
        int64_t m, n, batch;
        uint64_t slice;
        unsigned grid;
    } cases[] = {{1, 1, 1, 0, 1},
                 {16, 17, 1, 0, 2},
                 {33, 17, 1, 0, 6},
                 {16, 16, 3, 0, 3},
                 {1000, 1000, 1, 0, 2 * FAKE_DRIVER_MULTIPROCESSORS},
                 {1000, 1000, 1, 2, 2}};

    fake_driver_on_launch(NULL);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct gemmd_command command = device_job(1, cases[i].m, cases[i].n, cases[i].batch);
        command.body.gemm.tile_count = cases[i].slice;
        cr_expect_eq(run(&command), STATUS_OK);
        cr_expect_eq(fake_driver_last_launch().grid, cases[i].grid, "case %zu", i);
    }
    close_clean();
}

Test(cuda_execute, an_empty_product_launches_nothing)
{
    static const int64_t sizes[][3] = {{0, 4, 1}, {4, 0, 1}, {4, 4, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct gemmd_command command = device_job(1, sizes[i][0], sizes[i][1], sizes[i][2]);
        cr_expect_eq(run(&command), STATUS_OK);
    }
    cr_expect_eq(fake_driver_calls("cuLaunchKernelEx"), 0);
    close_clean();
}

Test(cuda_execute, a_job_for_an_unknown_kernel_fails_alone)
{
    struct gemmd_command command = device_job(1, 1, 1, 1);
    gpu->operations->unload(gpu, KERNEL);
    cr_expect_eq(run(&command), STATUS_INTERNAL);
    close_clean();
}

/* --- the queue ------------------------------------------------------------------------------- */

Test(cuda_execute, a_busy_device_has_no_completions_and_reap_does_not_block)
{
    struct gemmd_completion completion;
    fake_driver_on_launch(NULL);
    fake_driver_hold(true);
    for (uint64_t i = 0; i < gpu->operations->depth; i++) {
        struct gemmd_command command = device_job(i, 1, 1, 1);
        cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
        cr_assert_eq(gpu->operations->reap(gpu, &completion), 0);
    }
    cr_expect_eq(gpu->operations->pending(gpu), gpu->operations->depth);
    fake_driver_hold(false);
    for (uint64_t i = 0; i < gpu->operations->depth; i++) {
        cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
        cr_assert_eq(completion.job, i);
    }
    cr_expect_eq(gpu->operations->reap(gpu, &completion), 0);
    cr_expect_eq(gpu->operations->pending(gpu), 0);
    close_clean();
}

/* The device counts in 32 bits, the worker in 64. */
Test(cuda_execute, the_count_of_jobs_passes_32_bits)
{
    struct driver driver;
    struct cuda_kernels kernels;
    struct cuda_execute execute;
    struct gemmd_completion completion;
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY};
    cr_assert_eq(driver_init(&driver, &fault), 0);
    cuda_kernels_init(&kernels, &driver);
    cr_assert_eq(cuda_execute_init(&execute, &driver, &kernels, 1, &fault), 0);
    struct cuda_lane *lane = &execute.lanes.lane[0]; /* an idle device's first choice */
    lane->submitted = lane->finished = UINT32_MAX - 2;
    *lane->done = UINT32_MAX - 2;
    for (uint64_t i = 0; i < 6; i++) {
        command.job = i;
        cr_assert_eq(cuda_execute_submit(&execute, &command), 0);
        cr_assert_eq(cuda_execute_reap(&execute, &completion), 1);
        cr_assert_eq(completion.job, i);
        cr_assert_eq(cuda_execute_reap(&execute, &completion), 0);
    }
    cuda_execute_deinit(&execute);
    close_clean();
}

Test(cuda_execute, looking_for_completions_makes_no_driver_call_for_a_while)
{
    struct gemmd_command command = device_job(1, 1, 1, 1);
    struct gemmd_completion completion;
    fake_driver_on_launch(NULL);
    fake_driver_hold(true);
    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 0); /* may ask once */
    unsigned asked = fake_driver_calls("cuStreamQuery");
    for (int i = 0; i < 100; i++)
        cr_assert_eq(gpu->operations->reap(gpu, &completion), 0);
    cr_expect_leq(fake_driver_calls("cuStreamQuery"), asked + 2);
    fake_driver_hold(false);
    cr_assert_eq(gpu->operations->reap(gpu, &completion), 1);
    close_clean();
}

/* --- failures -------------------------------------------------------------------------------- */

Test(cuda_execute, no_scratch_memory_is_that_jobs_fault_and_keeps_the_order)
{
    float x = 1;
    struct gemmd_command command = device_job(3, 1, 1, 1);
    command.body.gemm.d = (uintptr_t)&x;
    command.body.gemm.ldd = 1;
    command.body.gemm.flags = GEMMD_JOB_HOST_D;
    fake_driver_fail("cuMemAllocAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(run(&command), STATUS_OUT_OF_MEMORY);
    cr_expect_eq(x, 1, "D is untouched");
    cr_expect_eq(run(&command), STATUS_OK);
    close_clean();
}

Test(cuda_execute, a_failing_call_in_a_staged_job_leaves_d_alone_and_nothing_behind)
{
    static const char *const calls[] = {"cuMemcpyHtoDAsync", "cuLaunchKernelEx"};
    float c = 4, x = 1;
    struct gemmd_command command = device_job(3, 1, 1, 1);
    command.body.gemm.c = (uintptr_t)&c;
    command.body.gemm.d = (uintptr_t)&x;
    command.body.gemm.ldc = command.body.gemm.ldd = 1;
    command.body.gemm.beta = 1;
    command.body.gemm.flags = GEMMD_JOB_HOST_C | GEMMD_JOB_HOST_D;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        fake_driver_fail(calls[i], 0, CUDA_ERROR_INVALID_VALUE);
        cr_expect_eq(run(&command), STATUS_INTERNAL, "%s", calls[i]);
        cr_expect_eq(x, 1, "%s", calls[i]);
        cr_expect_eq(fake_driver_live().scratch, 0, "%s", calls[i]);
    }
    cr_expect_eq(run(&command), STATUS_OK);
    cr_expect_eq(x, 4);
    close_clean();
}

Test(cuda_execute, a_sticky_error_is_reported_as_a_lost_device)
{
    struct gemmd_command command = device_job(1, 1, 1, 1);
    struct gemmd_completion completion;
    fake_driver_on_launch(NULL);
    fake_driver_hold(true);
    cr_assert_eq(gpu->operations->submit(gpu, &command), 0);
    fake_driver_break(CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_expect_lt(gpu->operations->reap(gpu, &completion), 0);
    cr_expect_lt(gpu->operations->submit(gpu, &command), 0);
    gpu->operations->close(gpu); /* frees what it can without a device */
}

/* --- copies ---------------------------------------------------------------------------------- */

Test(cuda_execute, copies_and_fills_between_any_two_kinds_of_memory)
{
    static const struct {
        uint32_t flags;
        const char *call;
    } kinds[] = {{0, "cuMemcpyDtoDAsync"},
                 {GEMMD_JOB_HOST_A, "cuMemcpyHtoDAsync"},
                 {GEMMD_JOB_HOST_D, "cuMemcpyDtoHAsync"},
                 {GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_D, "cuLaunchHostFunc"}};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char from[8] = "abcdefg", to[8] = "1234567";
        struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY, .job = i};
        command.body.copy = (struct gemmd_copy){.destination = (uintptr_t)to,
                                                .source = (uintptr_t)from,
                                                .size = 3,
                                                .flags = kinds[i].flags};
        unsigned before = fake_driver_calls(kinds[i].call);
        cr_expect_eq(run(&command), STATUS_OK);
        cr_expect_str_eq(to, "abc4567");
        cr_expect_eq(fake_driver_calls(kinds[i].call), before + 1);

        command.kind = GEMMD_COMMAND_ZERO;
        cr_expect_eq(run(&command), STATUS_OK);
        cr_expect_eq(memcmp(to, "\0\0\0004567", 7), 0);
    }
    close_clean();
}

Test(cuda_execute, a_copy_of_nothing_touches_nothing)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY};
    cr_expect_eq(run(&command), STATUS_OK);
    command.kind = GEMMD_COMMAND_ZERO;
    cr_expect_eq(run(&command), STATUS_OK);
    close_clean();
}
