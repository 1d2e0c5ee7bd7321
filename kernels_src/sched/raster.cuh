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

DEVICE place place_of(const extent &size, u64 tile)
{
    u64 per_item = size.tiles_m * size.tiles_n;
    u64 item = tile / per_item, in_item = tile - item * per_item;
    u64 per_band = band * size.tiles_n;
    u64 first_row = in_item / per_band * band;
    u64 in_band = in_item - first_row * size.tiles_n;
    u64 rows_left = size.tiles_m - first_row;
    u64 rows = rows_left < band ? rows_left : band; /* the last band is lower */
    u64 col = in_band / rows, row = first_row + (in_band - col * rows);

    return {(i64)item, (i64)row * cfg::tile_m, (i64)col * cfg::tile_n};
}

} // namespace raster
