#include "stats.h"

static size_t bucket_of(uint64_t nanoseconds)
{
    unsigned exponent;
    size_t bucket;

    if (nanoseconds < 4)
        return (size_t)nanoseconds;
    exponent = 63u - (unsigned)__builtin_clzll(nanoseconds);
    bucket = 4 * (exponent - 1) + ((nanoseconds >> (exponent - 2)) & 3);
    return MIN(bucket, (size_t)STATS_BUCKETS - 1);
}

/* The largest value that bucket_of() puts there. */
static uint64_t bucket_end(size_t bucket)
{
    unsigned exponent = (unsigned)(bucket / 4) + 1;

    if (bucket < 4)
        return bucket;
    return ((4ull + bucket % 4 + 1) << (exponent - 2)) - 1;
}

void stats_record(struct stats_histogram *histogram, uint64_t nanoseconds)
{
    histogram->count++;
    histogram->buckets[bucket_of(nanoseconds)]++;
}

uint64_t stats_quantile(const struct stats_histogram *histogram, double quantile)
{
    uint64_t wanted = (uint64_t)(quantile * (double)histogram->count);
    uint64_t seen = 0;

    if (histogram->count == 0)
        return 0;
    for (size_t i = 0; i < STATS_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > wanted || seen == histogram->count)
            return bucket_end(i);
    }
    return bucket_end(STATS_BUCKETS - 1);
}
