#include "gemm_scene.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xa5
#define TAIL   64 /* bytes behind each operand that must survive */

static double random_value(enum dtype dtype)
{
    if (dtype == DTYPE_INT8)
        return rand() % 256 - 128;
    if (dtype == DTYPE_INT32)
        return rand() - RAND_MAX / 2;
    return 2.0 * rand() / RAND_MAX - 1;
}

static size_t operand_index(const struct operand *o, int64_t item, int64_t row, int64_t column)
{
    return item * o->stride + row * o->ld + column;
}

double operand_get(const struct operand *o, int64_t item, int64_t row, int64_t column)
{
    return dtype_load(o->dtype, o->bytes + o->shift, operand_index(o, item, row, column));
}

void operand_set(struct operand *o, int64_t item, int64_t row, int64_t column, double value)
{
    dtype_store(o->dtype, o->bytes + o->shift, operand_index(o, item, row, column), value);
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
                operand_set(o, item, row, column, random_value(o->dtype));
}

static void operand_free(struct operand *o)
{
    free(o->bytes);
    free(o->before);
}

struct scene scene_make(const struct setting *s)
{
    struct scene scene = {
        .a = operand_make(s, s->input, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, 0xff),
        .b = operand_make(s, s->input, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, 0xff),
        .c = operand_make(s, s->output, s->m, s->n, 0xff),
        .bias = operand_make(s, s->output, 1, s->bias == BIAS_PER_ROW ? s->m : s->n, 0xff),
        .d = operand_make(s, s->output, s->m, s->n, POISON),
    };

    operand_fill(&scene.a);
    operand_fill(&scene.b);
    if (s->beta != 0)
        operand_fill(&scene.c); /* else all of it stays NaN: nobody may look */
    if (s->bias != BIAS_NONE)
        operand_fill(&scene.bias);
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
        .flags = (s->trans_a ? GEMMD_JOB_TRANS_A : 0) | (s->trans_b ? GEMMD_JOB_TRANS_B : 0) |
                 (s->bias == BIAS_PER_ROW ? GEMMD_JOB_BIAS_PER_ROW : 0) |
                 (s->bias == BIAS_PER_COLUMN ? GEMMD_JOB_BIAS_PER_COLUMN : 0),
        .activation = s->activation,
        .bias = (uintptr_t)scene.bias.bytes + s->shift,
        .stride_bias = scene.bias.stride,
    };
    memcpy(scene.d.before, scene.d.bytes, scene.d.size);
    return scene;
}

void scene_free(struct scene *scene)
{
    operand_free(&scene->a);
    operand_free(&scene->b);
    operand_free(&scene->c);
    operand_free(&scene->bias);
    operand_free(&scene->d);
}

/* --- the reference: a double loop ------------------------------------------------------------ */

struct reference
scene_reference(const struct scene *scene, const struct setting *s, const int64_t where[3])
{
    const int64_t item = where[0], i = where[1], j = where[2];
    struct reference r = {0};
    uint32_t sum = 0;

    if (s->alpha != 0) {
        for (int64_t l = 0; l < s->k; l++) {
            const double a = s->trans_a ? operand_get(&scene->a, item, l, i)
                                        : operand_get(&scene->a, item, i, l);
            const double b = s->trans_b ? operand_get(&scene->b, item, j, l)
                                        : operand_get(&scene->b, item, l, j);

            r.before += a * b;
            r.magnitude += fabs(a * b);
            if (s->input == DTYPE_INT8)
                sum += (uint32_t)(int32_t)a * (uint32_t)(int32_t)b;
        }
        r.before *= s->alpha;
        r.magnitude *= fabs(s->alpha);
    }
    r.integer = s->input == DTYPE_INT8 ? sum * (uint32_t)(int64_t)s->alpha : 0;
    if (s->beta != 0) {
        const double c = operand_get(&scene->c, item, i, j);

        r.before += s->beta * c;
        r.rest += fabs(s->beta * c);
        if (s->input == DTYPE_INT8)
            r.integer += (uint32_t)(int64_t)s->beta * (uint32_t)(int64_t)c;
    }
    if (s->bias != BIAS_NONE) {
        const double bias = operand_get(&scene->bias, item, 0, s->bias == BIAS_PER_ROW ? i : j);

        r.before += bias;
        r.rest += fabs(bias);
        r.integer += s->input == DTYPE_INT8 ? (uint32_t)(int64_t)bias : 0;
    }
    if (s->activation == ACTIVATION_RELU && (int32_t)r.integer < 0)
        r.integer = 0;
    return r;
}

bool scene_is_right(const struct setting *s, const struct reference *expected, double got)
{
    const struct problem problem = {
        .input = s->input, .output = s->output, .k = s->k, .activation = s->activation};
    const double value = activation_apply(s->activation, expected->before);

    if (s->input == DTYPE_INT8)
        return (uint32_t)(int64_t)got == expected->integer;
    if (isnan(value) || isnan(got))
        return isnan(value) && isnan(got);
    if (isinf(value))
        return got == value;
    return fabs(got - value) <=
           problem_error_bound(&problem, expected->before, expected->magnitude, expected->rest);
}

bool scene_kept_surroundings(struct scene *scene)
{
    struct operand *d = &scene->d;
    const size_t size = dtype_size(d->dtype);

    for (int64_t item = 0; item < d->batch; item++)
        for (int64_t row = 0; row < d->rows; row++)
            memcpy(d->before + d->shift + operand_index(d, item, row, 0) * size,
                   d->bytes + d->shift + operand_index(d, item, row, 0) * size, d->columns * size);
    return memcmp(d->before, d->bytes, d->size) == 0;
}
