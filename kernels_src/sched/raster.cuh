/*
 * Order of the units of one product; a unit is what a cluster computes, cluster_m x cluster_n tiles
 * (one, without clusters). Units of a batch item are numbered in bands of about sixteen tile rows;
 * in a band the row runs fastest. CTAs that run at the same time then share A and B rows in the L2:
 * those of the band, and as many columns as the grid has CTAs left. Kernels that leave out products
 * where D ends early have such units last.
 *
 * The number decides the unit, never who computes it: slices of the range give the same bits.
 */
#pragma once

#include "abi/job.h"
#include "base/config.cuh"

namespace raster
{

constexpr u32 unit_m = cfg::tile_m * cfg::cluster_m;
constexpr u32 unit_n = cfg::tile_n * cfg::cluster_n;
constexpr u32 band = 16 / cfg::cluster_m;

/* The plan gives the hopper family only products of less than 2^31 units. */
template <bool IS_SMALL> struct number_of {
    typedef u64 type;
};

template <> struct number_of<true> {
    typedef u32 type;
};

typedef number_of<cfg::is_hopper>::type number; /* of a unit, or a count of them */

struct extent {
    number units_m, units_n; /* of one batch item */
};

struct place {
    i64 item;     /* of the batch */
    i64 row, col; /* first element of the unit in D, or in its transpose when that is computed */
};

DEVICE extent extent_of(const gemmd_job &job)
{
    u64 rows = cfg::is_swapped ? job.n : job.m, cols = cfg::is_swapped ? job.m : job.n;

    return {(number)((rows + unit_m - 1) / unit_m), (number)((cols + unit_n - 1) / unit_n)};
}

DEVICE number units(const gemmd_job &job, const extent &size)
{
    return size.units_m * size.units_n * (number)job.batch;
}

/* a / b. What the compiler makes of a 64-bit division is a hundred instructions and many registers,
 * where 32 bits nearly always suffice: the other way is slow, but short. */
DEVICE u64 quotient(u64 a, u64 b)
{
    u64 result = 0, rest = 0;

    if ((a | b) >> 32 == 0)
        return (u32)a / (u32)b;
#pragma unroll 1
    for (int bit = 63; bit >= 0; bit--) {
        bool fits;

        rest = rest << 1 | (a >> bit & 1);
        fits = rest >= b;
        rest -= fits ? b : 0;
        result = result << 1 | fits;
    }
    return result;
}

DEVICE u32 quotient(u32 a, u32 b)
{
    return a / b;
}

/* By rows and columns of units. 32 bits: an item of 2^32 tiles has no less than 512 GiB of D. */
DEVICE place place_in_item(i64 item, u32 units_m, u32 units_n, u32 in_item)
{
    u32 height = units_m < band ? units_m : band;
    u32 first_row = in_item < height * units_n ? 0 : in_item / (height * units_n) * height;
    u32 in_band = in_item - first_row * units_n;
    u32 rows = units_m - first_row < height ? units_m - first_row : height; /* the last is lower */
    u32 col = in_band / rows, row = first_row + (in_band - col * rows);

    return {item, (i64)row * unit_m, (i64)col * unit_n};
}

/* The units that D fills, as above, then those that it ends in: the right column, and what is left
 * of the last row. They have less to do, and what has less to do comes last. */
DEVICE place place_with_edges(i64 item, u32 units_m, u32 units_n, u32 in_item, const gemmd_job &job)
{
    u32 whole_m = (u32)(job.m / unit_m), whole_n = (u32)(job.n / unit_n), whole = whole_m * whole_n;

    if (in_item < whole)
        return place_in_item(item, whole_m, whole_n, in_item);
    in_item -= whole;
    if (whole_n < units_n && in_item < units_m)
        return {item, (i64)in_item * unit_m, (i64)whole_n * unit_n};
    if (whole_n < units_n)
        in_item -= units_m;
    return {item, (i64)whole_m * unit_m, (i64)in_item * unit_n};
}

DEVICE place place_of(const extent &size, number unit, const gemmd_job &job)
{
    number per_item = size.units_m * size.units_n;
    /* Small products are of one item and one band, and have no time for divisions. */
    number item = unit < per_item ? 0 : quotient(unit, per_item);
    u32 in_item = (u32)(unit - item * per_item);
    u32 units_m = (u32)size.units_m, units_n = (u32)size.units_n;

    if constexpr (cfg::trims_edges)
        return place_with_edges((i64)item, units_m, units_n, in_item, job);
    return place_in_item((i64)item, units_m, units_n, in_item);
}

} // namespace raster
