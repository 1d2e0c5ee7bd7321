#include "shapes.h"

#include <stdio.h>
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
