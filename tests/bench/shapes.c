#include "shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    for (int i = 0; i < OPERAND_COUNT; i++)
        problem.operand[i] = (struct problem_operand){PROBLEM_DEFAULT, PROBLEM_DEFAULT};
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
