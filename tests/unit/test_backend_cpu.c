#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/backend.h"
#include "../../daemon/worker/cpu_gemm.h"
#include "../../daemon/worker/cpu_memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define POISON 0xa5
#define TAIL   64 /* bytes behind each operand that must survive */

static const enum dtype pairs[][2] = {
    {DTYPE_BF16, DTYPE_BF16},  {DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16},
    {DTYPE_FP16, DTYPE_FP32},  {DTYPE_FP32, DTYPE_FP32}, {DTYPE_FP64, DTYPE_FP64},
    {DTYPE_INT8, DTYPE_INT32},
};

/* --- operands -------------------------------------------------------------------------------- */

struct operand {
    enum dtype dtype;
    int64_t rows, columns, ld, stride, batch; /* as stored */
    size_t shift, size;                       /* first element's offset; bytes in all */
    unsigned char *bytes, *before;
};

struct scene {
    struct operand a, b, c, d;
    struct gemmd_job job;
};

struct setting {
    enum dtype input, output;
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    int pad;      /* elements beyond the row */
    size_t shift; /* bytes before the first element */
    double alpha, beta;
    bool in_place;
};

static double random_value(enum dtype dtype)
{
    if (dtype == DTYPE_INT8)
        return rand() % 256 - 128;
    if (dtype == DTYPE_INT32)
        return rand() - RAND_MAX / 2;
    return 2.0 * rand() / RAND_MAX - 1;
}

static size_t index_of(const struct operand *o, int64_t item, int64_t row, int64_t column)
{
    return item * o->stride + row * o->ld + column;
}

static double at(const struct operand *o, int64_t item, int64_t row, int64_t column)
{
    return dtype_load(o->dtype, o->bytes + o->shift, index_of(o, item, row, column));
}

static void set(struct operand *o, int64_t item, int64_t row, int64_t column, double value)
{
    dtype_store(o->dtype, o->bytes + o->shift, index_of(o, item, row, column), value);
}

/* Everything that is no element is poison: NaN for the floating types. */
static struct operand
operand_make(const struct setting *s, enum dtype dtype, int64_t rows, int64_t columns, int poison)
{
    struct operand o = {.dtype = dtype, .rows = rows, .columns = columns, .batch = s->batch};

    o.ld = MAX(1, columns) + s->pad;
    o.stride = MAX(1, rows) * o.ld + 5;
    o.shift = s->shift;
    o.size = o.shift + o.batch * o.stride * dtype_size(dtype) + TAIL;
    o.bytes = malloc(o.size);
    o.before = malloc(o.size);
    memset(o.bytes, poison, o.size);
    return o;
}

static void operand_fill(struct operand *o)
{
    for (int64_t item = 0; item < o->batch; item++)
        for (int64_t row = 0; row < o->rows; row++)
            for (int64_t column = 0; column < o->columns; column++)
                set(o, item, row, column, random_value(o->dtype));
}

static void operand_free(struct operand *o)
{
    free(o->bytes);
    free(o->before);
}

static struct scene scene_make(const struct setting *s)
{
    struct scene scene = {
        .a = operand_make(s, s->input, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, 0xff),
        .b = operand_make(s, s->input, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, 0xff),
        .c = operand_make(s, s->output, s->m, s->n, 0xff),
        .d = operand_make(s, s->output, s->m, s->n, POISON),
    };

    operand_fill(&scene.a);
    operand_fill(&scene.b);
    if (s->beta != 0)
        operand_fill(&scene.c); /* else all of it stays NaN: nobody may look */
    if (s->in_place)
        memcpy(scene.d.bytes, scene.c.bytes, scene.c.size);
    scene.job = (struct gemmd_job){
        .a = (uintptr_t)scene.a.bytes + s->shift,
        .b = (uintptr_t)scene.b.bytes + s->shift,
        .c = (uintptr_t)(s->in_place ? scene.d.bytes : scene.c.bytes) + s->shift,
        .d = (uintptr_t)scene.d.bytes + s->shift,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .batch = s->batch,
        .lda = scene.a.ld,
        .ldb = scene.b.ld,
        .ldc = scene.c.ld,
        .ldd = scene.d.ld,
        .stride_a = scene.a.stride,
        .stride_b = scene.b.stride,
        .stride_c = scene.c.stride,
        .stride_d = scene.d.stride,
        .alpha = s->alpha,
        .beta = s->beta,
        .input = s->input,
        .output = s->output,
        .flags = (s->trans_a ? GEMMD_JOB_TRANS_A : 0) | (s->trans_b ? GEMMD_JOB_TRANS_B : 0),
    };
    memcpy(scene.d.before, scene.d.bytes, scene.d.size);
    return scene;
}

static void scene_free(struct scene *scene)
{
    operand_free(&scene->a);
    operand_free(&scene->b);
    operand_free(&scene->c);
    operand_free(&scene->d);
}

/* --- the reference: a double loop ------------------------------------------------------------ */

struct reference {
    double value, magnitude;
    uint32_t integer;
};

static struct reference
reference_at(const struct scene *scene, const struct setting *s, const int64_t where[3])
{
    const int64_t item = where[0], i = where[1], j = where[2];
    struct reference r = {0};
    uint32_t sum = 0;

    if (s->alpha != 0) {
        for (int64_t l = 0; l < s->k; l++) {
            const double a = s->trans_a ? at(&scene->a, item, l, i) : at(&scene->a, item, i, l);
            const double b = s->trans_b ? at(&scene->b, item, j, l) : at(&scene->b, item, l, j);

            r.value += a * b;
            r.magnitude += fabs(a * b);
            sum += (uint32_t)(int32_t)a * (uint32_t)(int32_t)b;
        }
        r.value *= s->alpha;
        r.magnitude *= fabs(s->alpha);
    }
    r.integer = sum * (uint32_t)(int64_t)s->alpha;
    if (s->beta != 0) {
        const double c = at(&scene->c, item, i, j);

        r.value += s->beta * c;
        r.integer += (uint32_t)(int64_t)s->beta * (uint32_t)(int64_t)c;
    }
    return r;
}

static bool
is_right(const struct setting *s, const struct reference *expected, double got, double c)
{
    if (s->input == DTYPE_INT8)
        return (uint32_t)(int64_t)got == expected->integer;
    if (isnan(expected->value) || isnan(got))
        return isnan(expected->value) && isnan(got);
    if (isinf(expected->value))
        return got == expected->value;
    return fabs(got - expected->value) <= dtype_error_bound(s->input, s->output, s->k,
                                                            expected->value, expected->magnitude,
                                                            fabs(s->beta * c));
}

static void check_elements(const struct scene *scene, const struct setting *s)
{
    for (int64_t item = 0; item < s->batch; item++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                const struct reference expected =
                    reference_at(scene, s, (const int64_t[]){item, i, j});
                const double got = at(&scene->d, item, i, j);
                const double c = s->beta != 0 ? at(&scene->c, item, i, j) : 0;

                cr_assert(is_right(s, &expected, got, c),
                          "%s->%s %ldx%ldx%ld%s%s pad %d shift %zu alpha %g beta %g: item %ld "
                          "(%ld, %ld) is %g, not %g",
                          dtype_name(s->input), dtype_name(s->output), s->m, s->n, s->k,
                          s->trans_a ? " ta" : "", s->trans_b ? " tb" : "", s->pad, s->shift,
                          s->alpha, s->beta, item, i, j, got, expected.value);
            }
}

static void check_surroundings(struct operand *d)
{
    const size_t size = dtype_size(d->dtype);

    for (int64_t item = 0; item < d->batch; item++)
        for (int64_t row = 0; row < d->rows; row++)
            memcpy(d->before + d->shift + index_of(d, item, row, 0) * size,
                   d->bytes + d->shift + index_of(d, item, row, 0) * size, d->columns * size);
    cr_assert_eq(memcmp(d->before, d->bytes, d->size), 0, "bytes beside D's elements changed");
}

static void run_and_check(struct cpu_gemm *gemm, const struct setting *s)
{
    struct scene scene = scene_make(s);

    cr_assert_eq(cpu_gemm_run(gemm, &scene.job), STATUS_OK);
    check_elements(&scene, s);
    check_surroundings(&scene.d);
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

Test(backend_cpu, products_agree_with_a_double_loop)
{
    sweep(NULL);
}

Test(backend_cpu, products_agree_with_a_double_loop_without_a_library)
{
    sweep("no-such-library.so");
}

Test(backend_cpu, operands_may_lie_at_any_byte)
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
Test(backend_cpu, scalars_outside_the_range_of_float_are_not_flushed)
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
                set(&scene.a, 0, row, l, scale * at(&scene.a, 0, row, l));
        cr_assert_eq(cpu_gemm_run(&engine.gemm, &scene.job), STATUS_OK);
        check_elements(&scene, &s);
        scene_free(&scene);
    }
    engine_close(&engine);
}

Test(backend_cpu, without_a_product_to_add_a_and_b_are_not_read)
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
            if (s.beta == 0)
                scene.job.c = 0;
            cr_assert_eq(cpu_gemm_run(&engine.gemm, &scene.job), STATUS_OK);
            check_elements(&scene, &s);
            check_surroundings(&scene.d);
            scene_free(&scene);
        }
    engine_close(&engine);
}

Test(backend_cpu, an_empty_product_touches_nothing)
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

/* Zeros opposite to the odd value: 0 * Inf is NaN, and no library may skip a zero. */
static void propagate(struct cpu_gemm *gemm, size_t pair, double odd, int variant)
{
    const struct setting s = {.input = pairs[pair][0],
                              .output = pairs[pair][1],
                              .m = variant & 8 ? 1 : 20,
                              .n = variant & 4 ? 1 : 33,
                              .k = 40,
                              .batch = 1,
                              .trans_a = variant & 1,
                              .trans_b = variant & 2,
                              .alpha = 1};
    struct scene scene = scene_make(&s);
    const int64_t row = s.m / 2;

    set(&scene.a, 0, s.trans_a ? 7 : row, s.trans_a ? row : 7, odd);
    for (int64_t j = 0; j < s.n; j += 3)
        set(&scene.b, 0, s.trans_b ? j : 7, s.trans_b ? 7 : j, 0);
    cr_assert_eq(cpu_gemm_run(gemm, &scene.job), STATUS_OK);
    check_elements(&scene, &s);
    scene_free(&scene);
}

Test(backend_cpu, nan_and_inf_reach_exactly_their_row)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    struct engine engine[2];

    engine_open(&engine[0], NULL);
    engine_open(&engine[1], "no-such-library.so");
    for (size_t e = 0; e < 2; e++)
        for (size_t p = 0; p < ARRAY_SIZE(pairs) - 1; p++)
            for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
                for (int variant = 0; variant < 16; variant++)
                    propagate(&engine[e].gemm, p, odd[i], variant);
    engine_close(&engine[0]);
    engine_close(&engine[1]);
}

Test(backend_cpu, int8_sums_are_exact_and_wrap_at_32_bits)
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

Test(backend_cpu, one_input_may_serve_the_whole_batch)
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

Test(backend_cpu, rows_may_lie_further_apart_than_an_int)
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

Test(backend_cpu, what_it_cannot_run_is_unsupported)
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

/* --- the device ------------------------------------------------------------------------------ */

static struct backend *device_open(void)
{
    struct backend *backend = NULL;
    struct fault fault = FAULT_NONE;

    cr_assert_eq(backend_cpu_open(&backend, &fault), 0, "%s", fault.message);
    return backend;
}

static struct gemmd_completion execute(struct backend *backend, const struct gemmd_command *command)
{
    struct gemmd_completion completion = {0};

    cr_assert_eq(backend->operations->submit(backend, command), 0);
    cr_assert_eq(backend->operations->pending(backend), 1);
    cr_assert_eq(backend->operations->reap(backend, &completion), 1);
    cr_assert_eq(backend->operations->reap(backend, &completion), 0);
    cr_assert_eq(completion.job, command->job);
    cr_assert_leq(completion.started_ns, completion.finished_ns);
    return completion;
}

Test(backend_cpu, device_says_what_it_is)
{
    struct backend *backend = device_open();

    cr_assert_eq(backend->device.kind, LINK_DEVICE_CPU);
    cr_assert_geq(backend->device.multiprocessors, 1);
    cr_assert_gt(backend->device.memory, 1u << 20);
    cr_assert_gt(strlen(backend->device.name), 0);
    cr_assert_gt(strlen(backend->device.driver), 0);
    backend->operations->close(backend);
}

Test(backend_cpu, device_memory_is_zeroed_sealed_and_shared_by_its_descriptor)
{
    struct backend *backend = device_open();
    struct link_message request = {
        .memory_kind = LINK_MEMORY_DEVICE_CREATE, .id = 1, .size = 100000};
    struct fault fault = FAULT_NONE;
    uint64_t first = 0, second = 0;
    int fd = -1;

    cr_assert_eq(backend->operations->map(backend, &request, &fd, &first, &fault), 0);
    cr_assert_geq(fd, 0);
    cr_assert(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
    for (int i = 0; i < 100000; i++)
        cr_assert_eq(((char *)(uintptr_t)first)[i], 0);
    strcpy((char *)(uintptr_t)first + 99000, "kept");
    backend->operations->unmap(backend, 1);

    request.memory_kind = LINK_MEMORY_DEVICE_IMPORT;
    request.id = 2;
    cr_assert_eq(backend->operations->map(backend, &request, &fd, &second, &fault), 0);
    cr_assert_eq(fd, -1, "consumed");
    cr_assert_str_eq((char *)(uintptr_t)second + 99000, "kept");
    backend->operations->close(backend);
}

Test(backend_cpu, host_memory_is_mapped_read_only_unless_asked)
{
    struct backend *backend = device_open();
    struct link_message request = {.memory_kind = LINK_MEMORY_HOST, .id = 1, .size = 4096};
    struct fault fault = FAULT_NONE;
    uint64_t address = 0;
    int fd, null = open("/dev/zero", O_RDONLY);

    for (uint32_t writable = 0; writable < 2; writable++) {
        fd = memfd_create("host", MFD_CLOEXEC);
        cr_assert_eq(ftruncate(fd, 4096), 0);
        request.id = request.writable = writable;
        cr_assert_eq(backend->operations->map(backend, &request, &fd, &address, &fault), 0);
        cr_assert_eq(fd, -1, "consumed");
        cr_assert_eq(read(null, (void *)(uintptr_t)address, 1), writable ? 1 : -1);
    }
    close(null);
    backend->operations->close(backend);
}

Test(backend_cpu, a_size_beyond_the_descriptor_is_refused_by_name)
{
    static const uint64_t sizes[] = {0, 4097, UINT64_MAX};
    struct backend *backend = device_open();
    int fd = memfd_create("host", MFD_CLOEXEC);

    cr_assert_eq(ftruncate(fd, 4096), 0);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct link_message request = {.memory_kind = LINK_MEMORY_HOST, .size = sizes[i]};
        struct fault fault = FAULT_NONE;
        uint64_t address;

        cr_assert_eq(backend->operations->map(backend, &request, &fd, &address, &fault),
                     BACKEND_E_FAULT);
        cr_assert_str_eq(fault.argument, "size");
        cr_assert_eq(fault.status, STATUS_INVALID_ARGUMENT);
        cr_assert_geq(fd, 0, "not consumed");
    }
    close(fd);
    backend->operations->close(backend);
}

Test(backend_cpu, more_memory_than_there_is_is_refused)
{
    struct backend *backend = device_open();

    for (int shift = 45; shift < 64; shift += 9) {
        struct link_message request = {.memory_kind = LINK_MEMORY_DEVICE_CREATE,
                                       .size = 1ull << shift};
        struct fault fault = FAULT_NONE;
        uint64_t address;
        int fd = -1;

        cr_assert_eq(backend->operations->map(backend, &request, &fd, &address, &fault),
                     BACKEND_E_FAULT);
        cr_assert_eq(fault.status, STATUS_OUT_OF_MEMORY);
        cr_assert_eq(fd, -1);
    }
    backend->operations->close(backend);
}

/* A tree like /proc and /sys/fs/cgroup, below a directory of its own. */
static void write_file(const char *root, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    cr_assert(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

Test(backend_cpu, available_memory_is_what_machine_and_control_groups_leave)
{
    char root[] = "/tmp/gemmd-test-XXXXXX", cgroup[64], command[64];
    uint64_t available;

    cr_assert(mkdtemp(root));
    snprintf(cgroup, sizeof(cgroup), "%s/cgroup", root);
    write_file(root, "meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n");
    cr_assert_eq(cpu_memory_available(root, cgroup), 5000 * 1024, "no control groups at all");

    write_file(root, "self/cgroup", "4:memory:/old\n0::/slice/unit\n");
    write_file(root, "cgroup/slice/unit/memory.max", "max\n");
    write_file(root, "cgroup/slice/unit/memory.current", "123\n");
    cr_assert_eq(cpu_memory_available(root, cgroup), 5000 * 1024, "groups without a limit");

    write_file(root, "cgroup/slice/memory.max", "1000000\n");
    write_file(root, "cgroup/slice/memory.current", "900000\n");
    write_file(root, "cgroup/slice/memory.stat",
               "file 9\ninactive_file 300000\nactive_file 5000\n");
    available = cpu_memory_available(root, cgroup);
    cr_assert_eq(available, 1000000 - (900000 - 305000), "the limit of a group further up");

    write_file(root, "cgroup/slice/memory.max", "1000\n");
    cr_assert_eq(cpu_memory_available(root, cgroup), 0, "a group over its limit");
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

Test(backend_cpu, kernels_are_refused_and_unknown_memory_is_ignored)
{
    struct backend *backend = device_open();
    struct link_message request = {.id = 3};
    struct fault fault = FAULT_NONE;

    cr_assert_eq(backend->operations->load(backend, &request, "cubin", &fault), BACKEND_E_FAULT);
    cr_assert_eq(fault.status, STATUS_UNSUPPORTED);
    backend->operations->unload(backend, 3);
    backend->operations->unmap(backend, 12345);
    backend->operations->close(backend);
}

Test(backend_cpu, copies_and_zero_fills)
{
    struct backend *backend = device_open();
    char bytes[64] = "the quick brown fox";
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY, .job = 9};

    command.body.copy.source = (uintptr_t)bytes;
    command.body.copy.destination = (uintptr_t)(bytes + 4); /* overlapping, as memmove */
    command.body.copy.size = 20;
    cr_assert_eq(execute(backend, &command).status, STATUS_OK);
    cr_assert_str_eq(bytes + 4, "the quick brown fox");
    command.kind = GEMMD_COMMAND_ZERO;
    cr_assert_eq(execute(backend, &command).status, STATUS_OK);
    cr_assert_eq(bytes[3], ' ');
    cr_assert_eq(bytes[4], 0);
    cr_assert_eq(bytes[22], 0);
    command.body.copy.size = 0;
    command.body.copy.destination = 0;
    cr_assert_eq(execute(backend, &command).status, STATUS_OK);
    command.kind = 99;
    cr_assert_eq(execute(backend, &command).status, STATUS_UNSUPPORTED);
    backend->operations->close(backend);
}
