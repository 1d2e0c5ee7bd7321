#include "shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANDOM_EXTENT_MAX 16384

static bool parse(const char *line, struct shape *ret_shape, bool *ret_is_known)
{
    struct shape shape = {0};
    char dtype[16], layout[8];
    long long m, n, k;
    if (sscanf(line, "%23[^,],%15[^,],%7[^,],%lld,%lld,%lld", shape.group, dtype, layout, &m, &n,
               &k) != 6)
        return false;
    if (strlen(layout) != 2 || strspn(layout, "nt") != 2 || m < 1 || n < 1 || k < 1)
        return false;

    *ret_is_known = dtype_from_name(dtype, strlen(dtype), &shape.dtype);
    shape.trans_a = layout[0] == 't';
    shape.trans_b = layout[1] == 't';
    shape.m = m;
    shape.n = n;
    shape.k = k;
    *ret_shape = shape;
    return true;
}

int shapes_read(const char *path, const char *group, struct shape *ret_shapes, size_t *ret_count)
{
    char line[256];
    size_t count = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "gemmd-bench: %s: %m\n", path);
        return -1;
    }
    for (int number = 1; fgets(line, sizeof(line), file) && count < SHAPES_MAX; number++) {
        struct shape shape;
        bool is_known;
        if (number == 1 || line[0] == '#' || line[0] == '\n')
            continue;
        if (!parse(line, &shape, &is_known)) {
            fprintf(stderr, "gemmd-bench: %s:%d: not group,dtype,layout,m,n,k\n", path, number);
            fclose(file);
            return -1;
        }
        if (group && strcmp(group, shape.group) != 0)
            continue;
        if (is_known)
            ret_shapes[count++] = shape;
        else
            printf("# left out, no such dtype yet: %s", line);
    }
    fclose(file);
    *ret_count = count;
    return 0;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static int64_t draw_extent(uint64_t *state, bool is_rounded)
{
    double unit = (double)(draw(state) >> 11) * 0x1p-53;
    int64_t extent = (int64_t)exp2(unit * log2(RANDOM_EXTENT_MAX + 1.0));

    return is_rounded ? (extent + 15) / 16 * 16 : extent;
}

static bool rows_are_aligned(const struct shape *shape)
{
    struct problem problem = shape_problem(shape);

    return problem.operand[OPERAND_A].ld * 2 % 16 == 0 &&
           problem.operand[OPERAND_B].ld * 2 % 16 == 0 &&
           problem.operand[OPERAND_D].ld * 2 % 16 == 0;
}

void shapes_random(size_t count, uint64_t seed, bool is_mixed, struct shape *ret_shapes)
{
    uint64_t state = seed;

    for (size_t i = 0; i < count; i++) {
        struct shape *shape = &ret_shapes[i];
        bool is_rounded = i % 2;
        uint64_t kind = draw(&state) >> 32;

        *shape = (struct shape){.dtype = DTYPE_BF16, .trans_b = true};
        if (is_mixed) {
            shape->dtype = kind & 1 ? DTYPE_FP16 : DTYPE_BF16;
            shape->trans_a = kind & 2;
            shape->trans_b = kind & 4;
        }
        shape->m = draw_extent(&state, is_rounded);
        shape->n = draw_extent(&state, is_rounded);
        shape->k = draw_extent(&state, is_rounded);
        (void)snprintf(shape->group, sizeof(shape->group), "random-%s",
                       rows_are_aligned(shape) ? "aligned" : "unaligned");
    }
}

bool shape_from_text(const char *size, const char *dtype, const char *layout, struct shape *ret)
{
    struct shape shape = {0};
    long long m, n, k;
    char rest;
    if (sscanf(size, "%lldx%lldx%lld%c", &m, &n, &k, &rest) != 3 || m < 1 || n < 1 || k < 1)
        return false;
    if (strlen(layout) != 2 || strspn(layout, "nt") != 2)
        return false;
    if (!dtype_from_name(dtype, strlen(dtype), &shape.dtype) || shape.dtype == DTYPE_INT32)
        return false;
    shape.m = m;
    shape.n = n;
    shape.k = k;
    shape.trans_a = layout[0] == 't';
    shape.trans_b = layout[1] == 't';
    *ret = shape;
    return true;
}

struct shape shape_from_options(int argc, char **argv, const char *fallback)
{
    const char *size = bench_option(argc, argv, "--shape", fallback);
    const char *dtype = bench_option(argc, argv, "--dtype", "bf16");
    const char *layout = bench_option(argc, argv, "--layout", "nt");
    struct shape shape;
    if (!shape_from_text(size, dtype, layout, &shape)) {
        fprintf(stderr,
                "gemmd-bench: --shape %s --dtype %s --layout %s: allowed are MxNxK; bf16, fp16, "
                "fp32, fp64, int8; nn, nt, tn, tt\n",
                size, dtype, layout);
        exit(EXIT_USAGE);
    }
    return shape;
}

struct problem shape_problem(const struct shape *shape)
{
    struct problem problem = {.input = shape->dtype,
                              .output = dtype_default_output(shape->dtype),
                              .m = shape->m,
                              .n = shape->n,
                              .k = shape->k,
                              .batch = 1,
                              .trans_a = shape->trans_a,
                              .trans_b = shape->trans_b,
                              .alpha = 1};
    problem_leave_layouts(&problem);
    problem_fill_defaults(&problem);
    return problem;
}

double shape_flop(const struct shape *shape)
{
    return 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
}

void shape_bytes(const struct shape *shape, size_t ret_bytes[3])
{
    static const enum operand_role roles[] = {OPERAND_A, OPERAND_B, OPERAND_D};
    struct problem problem = shape_problem(shape);
    for (int i = 0; i < 3; i++)
        ret_bytes[i] = (problem_span(&problem, roles[i]) + 255) / 256 * 256;
}
