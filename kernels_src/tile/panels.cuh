/*
 * What of both operands a tile of entry/gemm_outer.cu has in shared memory: a few K, in fp32.
 *
 * A row of D begins `beyond` elements behind an aligned chunk of memory, from 0 to 7, so chunk j of
 * the tile begins at column 8j - beyond of it. Rows eight apart begin alike, whatever D's leading
 * dimension: a warp has such rows. Its lanes form sets, one for a wide tile, eight for a narrow one;
 * a set has eight of these rows, lane j of it chunk j in each of them. B's panel begins eight columns
 * before the tile; its columns lie by their number modulo 8, so that the lanes of a set, eight
 * columns apart, read neighbours.
 *
 * A tile has a chunk less than a set has lanes: the last lane's is the next tile's first, and the
 * last tile's own, where D ends in it.
 */
#pragma once

#include "base/config.cuh"

namespace panels
{

constexpr int depth = cfg::tile_k; /* K at once */
constexpr int chunk = 8;           /* elements of 16 bytes */
constexpr int classes = 8;         /* of rows that begin alike: warps */
constexpr int lanes = cfg::tile_n / chunk + 1; /* of a set */
constexpr int sets = 32 / lanes;               /* of a warp */
constexpr int class_rows = cfg::tile_m / classes;
constexpr int class_pitch = class_rows + (class_rows % 32 == 0 ? 4 : 0); /* banks differ */
constexpr int rows = class_rows / sets;      /* of a set */
constexpr int columns = (lanes + 1) * chunk; /* of B's panel */
constexpr int pitch = 36; /* of columns alike: eight times four neighbours differ in banks */
constexpr int a_step = classes * class_pitch * 4, b_step = chunk * pitch * 4; /* along K */
constexpr int a_size = depth * a_step, b_size = depth * b_step;
constexpr int slab = 32 * chunk * 4; /* of a warp, on the way out */
constexpr int size = max_of(a_size + b_size, classes * slab);

static_assert(cfg::tile_n == (lanes - 1) * chunk && sets * lanes == 32 && rows * sets == class_rows &&
                  rows % 4 == 0,
              "as above");
static_assert(cfg::threads == classes * 32, "a warp for each class");
static_assert(size == cfg::shared_memory, "daemon/plan/config.c computes the same size");

/* Four rows of a class lie beside each other. */
DEVICE u32 a_of(u32 s_base, u32 k, u32 row)
{
    return s_base + k * a_step + (row % classes * class_pitch + row / classes) * 4;
}

/* Counted from the panel's first column on. */
DEVICE u32 b_of(u32 s_base, u32 k, u32 column)
{
    return s_base + a_size + k * b_step + (column % chunk * pitch + column / chunk) * 4;
}

DEVICE u32 slab_of_warp(u32 s_base, u32 warp)
{
    return s_base + warp * slab;
}

} // namespace panels
