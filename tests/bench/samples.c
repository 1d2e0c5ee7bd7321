#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_percentile(struct samples *samples, double percent)
{
    if (samples->count == 0)
        return NAN;
    qsort(samples->values, samples->count, sizeof(double), compare);
    size_t index = (size_t)((double)(samples->count - 1) * percent / 100 + 0.5);
    return samples->values[index];
}

double samples_median(struct samples *samples)
{
    return samples_percentile(samples, 50);
}

void bench_fill(enum dtype dtype, void *memory, size_t count, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double unit = (double)(state >> 33) / 0x1p31;
        dtype_store(dtype, memory, i, dtype == DTYPE_INT8 ? floor(unit * 256) - 128 : 2 * unit - 1);
    }
}
