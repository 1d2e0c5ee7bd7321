/*
 * A chunk of D, eight elements of 16 bits in 16 aligned bytes, by one thread.
 */
#pragma once

#include "epi/ops.cuh"
#include "epi/quad.cuh"
#include "sched/raster.cuh"
#include "tile/chunk_size.cuh"

static_assert(cfg::output_size * chunk_elements == chunk_size, "inputs and D are alike");

/* How far the tile's first column lies behind a chunk's start, in every eighth row from `row` on. */
DEVICE u32 elements_beyond(const gemmd_job &job, const raster::place &at, u32 row)
{
    i64 first = at.item * job.stride_d + (at.row + row) * job.ldd + at.col;

    return (u32)element_address(job.d, first) % 16 / cfg::output_size;
}

DEVICE void regs_from_plain(u32 (&r)[4], const epilogue &op, const float (&accum)[chunk_elements])
{
#pragma unroll
    for (int w = 0; w < 4; w++)
        r[w] = pack_pair(op.plain(accum[w * 2]), op.plain(accum[w * 2 + 1]));
}

/* Whether the tile at a place has all columns of a D without gaps between rows, one run of memory
 * that begins with a chunk, and nothing done to it that takes more than a factor. */
DEVICE bool is_run(const gemmd_job &job, const raster::place &at)
{
    return job.n <= cfg::tile_n && job.ldd == job.n && elements_beyond(job, at, 0) == 0 &&
           epilogue(job, at.item).is_plain();
}

DEVICE u32 word_of(const u32 (&r)[4], int number)
{
    return number == 0 ? r[0] : number == 1 ? r[1] : number == 2 ? r[2] : r[3];
}

/* Elements `first` to `end` - 1 of a chunk, which begin or end with it: any number of them is some
 * of four, two and one, the largest where the chunk's own end is. */
DEVICE void gmem_from_side(u64 g_chunk, const u32 (&r)[4], int first, int end)
{
    int count = end - first, odd = count & 1;
    bool is_upper = end == chunk_elements;
    int at_1 = is_upper ? first : end - 1, at_2 = is_upper ? first + odd : end - 2 - odd;

    if (count & 4)
        st_global_v2_u32(element_address(g_chunk, is_upper ? 4 : 0), is_upper ? r[2] : r[0],
                         is_upper ? r[3] : r[1]);
    if (count & 2)
        st_global_u32(element_address(g_chunk, at_2), word_of(r, at_2 / 2));
    if (odd)
        st_global_u16(element_address(g_chunk, at_1), (u16)(word_of(r, at_1 / 2) >> at_1 % 2 * 16));
}

/* Elements `first` to `end` - 1 of a chunk, fewer than eight. */
DEVICE void gmem_from_part(u64 g_chunk, const u32 (&r)[4], int first, int end)
{
    if (first == 0 || end == chunk_elements) {
        gmem_from_side(g_chunk, r, first, end);
        return;
    }
#pragma unroll
    for (int i = 1; i < chunk_elements - 1; i++)
        if (i >= first && i < end)
            st_global_u16(element_address(g_chunk, i), (u16)(r[i / 2] >> i % 2 * 16));
}
