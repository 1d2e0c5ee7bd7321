/*
 * Tile order of one product. Tiles of a batch item are numbered in bands of `band` tile rows; in a
 * band the row runs fastest. CTAs that run at the same time then share A and B rows in the L2:
 * about sixteen tile rows by as many columns as the grid has CTAs left.
 *
 * The number decides the tile, never who computes it: slices of the range give the same bits.
 */
#pragma once

#include "abi/job.h"
#include "base/config.cuh"

namespace raster
{

constexpr u32 band = 16;

struct extent {
    u64 tiles_m, tiles_n; /* of one batch item */
};

struct place {
    i64 item;     /* of the batch */
    i64 row, col; /* first element of the tile in D */
};

DEVICE extent extent_of(const gemmd_job &job)
{
    return {((u64)job.m + cfg::tile_m - 1) / cfg::tile_m,
            ((u64)job.n + cfg::tile_n - 1) / cfg::tile_n};
}

DEVICE u64 tiles(const gemmd_job &job, const extent &size)
{
    return size.tiles_m * size.tiles_n * (u64)job.batch;
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

DEVICE place place_of(const extent &size, u64 tile)
{
    u64 per_item = size.tiles_m * size.tiles_n;
    u64 item = quotient(tile, per_item);
    /* From here on 32 bits: an item of 2^32 tiles has no less than 512 GiB of D. */
    u32 in_item = (u32)(tile - item * per_item);
    u32 tiles_m = (u32)size.tiles_m, tiles_n = (u32)size.tiles_n;
    u32 height = tiles_m < band ? tiles_m : band;
    u32 first_row = in_item / (height * tiles_n) * height;
    u32 in_band = in_item - first_row * tiles_n;
    u32 rows = tiles_m - first_row < height ? tiles_m - first_row : height; /* the last is lower */
    u32 col = in_band / rows, row = first_row + (in_band - col * rows);

    return {(i64)item, (i64)row * cfg::tile_m, (i64)col * cfg::tile_n};
}

} // namespace raster
