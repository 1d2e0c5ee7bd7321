/*
 * Eight rows of a warp's sums on their way to rows of D that start anywhere, rounded: in shared
 * memory each lies as far behind a chunk of 16 bytes as in D, so that the chunks of D are those of
 * shared memory. Whole ones leave as they are, ends in pieces of 8, 4 and 2 bytes.
 *
 * To shift chunks on the way out, each out of two neighbours, was half of all instructions.
 */
#pragma once

#include "epi/element.cuh"
#include "epi/quad.cuh"
#include "epi/store_tma.cuh"
#include "ptx/shared.cuh"
#include "ptx/warp.cuh"

struct rounded_part {
    static constexpr int element_size = cfg::output_size;
    static constexpr int rows = smem::part_rows;
    static constexpr int count = (cfg::tile_n * element_size + 511) / 512; /* in a row of the tile */
    static constexpr int cols = cfg::tile_n / count;
    static constexpr int pitch = cols * element_size + smem::chunk_bytes; /* for what a row begins behind a chunk */

    static constexpr int row_lanes = cols / out_chunk;
    static constexpr int rows_at_once = 32 / row_lanes, turns = rows / rows_at_once;

    static_assert(cols * count == cfg::tile_n && cols % 8 == 0, "parts are whole matrices");
    static_assert(rows_at_once * row_lanes == 32 || !cfg::stores_anywhere, "lanes store alike");
    static_assert(pitch % 128 == 16 || !cfg::stores_anywhere, "rows begin in different banks");

    u32 s_rows;
    u64 g_first, g_step; /* of D: the part's first element, from row to row */
    int rows_left, bytes; /* that there are, of rows and of each */

    DEVICE rounded_part(u32 in_s_rows, const out_place &to, int in_row, int in_col)
        : s_rows(in_s_rows), g_step(element_address(0, to.job.ldd))
    {
        int row = to.row + in_row, col = to.col + in_col;

        g_first = element_address(to.job.d, to.item * to.job.stride_d + row * to.job.ldd + col);
        rows_left = extent_in(to.job.m - row, rows);
        bytes = extent_in(to.job.n - col, cols) * element_size;
    }

    DEVICE u64 g_row(u32 row) const
    {
        return g_first + row * g_step;
    }

    /* Between a chunk's start and the row's, bytes. */
    DEVICE u32 beyond(u32 row) const
    {
        return (u32)g_row(row) & 15;
    }

    /* --- sums to shared memory --------------------------------------------------------------- */

    /* A lane has pairs of one row, eight columns apart, which start on words. */
    DEVICE static void smem_from_pairs(u32 s_pair, const float *r_accum, float alpha)
    {
#pragma unroll
        for (int i = 0; i < cols / 8; i++)
            st_shared_u32(s_pair + i * 16,
                          pack_pair(alpha * r_accum[i * 4], alpha * r_accum[i * 4 + 1]));
    }

    /* Or in some rows within one: such a word has the right element of the pair before. */
    DEVICE static void
    smem_from_shifted_pairs(u32 s_pair, const float *r_accum, float alpha, u32 lane)
    {
        bool is_within = s_pair % 4 != 0;
        u32 s_word = s_pair & ~3u, neighbour = (lane & ~3u) | ((lane - 1) & 3);
        float right = 0, before = 0; /* what the first lane puts before its row is no element of D */

#pragma unroll
        for (int i = 0; i < cols / 8; i++) {
            float left = alpha * r_accum[i * 4];

            right = alpha * r_accum[i * 4 + 1];
            float next = __uint_as_float(shfl_sync_idx(__float_as_uint(right), neighbour));
            float carried = lane % 4 == 0 ? before : next;

            st_shared_u32(s_word + i * 16, pack_pair(is_within ? carried : left,
                                                     is_within ? left : right));
            before = next;
        }
        if (is_within && lane % 4 == 3)
            st_shared_u16(s_word + cols * 2 - 12, (u16)pack_pair(right, right));
    }

    DEVICE void smem_from_accum_16(u32 s_pair, const float *r_accum, float alpha, u32 lane) const
    {
        if ((g_first | g_step) % 4 == 0)
            smem_from_pairs(s_pair, r_accum, alpha);
        else
            smem_from_shifted_pairs(s_pair, r_accum, alpha, lane);
    }

    DEVICE void smem_from_accum_32(u32 s_pair, const float *r_accum, float alpha) const
    {
#pragma unroll
        for (int i = 0; i < cols / 8; i++) {
            st_shared_f32(s_pair + i * 32, alpha * r_accum[i * 4]);
            st_shared_f32(s_pair + i * 32 + 4, alpha * r_accum[i * 4 + 1]);
        }
    }

    DEVICE void smem_from_accum(const float *r_accum, float alpha, u32 lane) const
    {
        u32 row = lane / 4;
        u32 s_pair = s_rows + row * pitch + beyond(row) + lane % 4 * 2 * element_size;

        if constexpr (element_size == 2)
            smem_from_accum_16(s_pair, r_accum, alpha, lane);
        else
            smem_from_accum_32(s_pair, r_accum, alpha);
    }

    /* --- shared memory to D ------------------------------------------------------------------ */

    /* Chunk `number` of some rows, one in each turn, where it is one of D's. */
    DEVICE void gmem_from_chunks(u32 first_row, u32 number) const
    {
        u32 s_chunk = s_rows + first_row * pitch + number * 16;
        u32 r[turns][4];

#pragma unroll
        for (int i = 0; i < turns; i++)
            ld_shared_v4_u32(r[i], s_chunk + i * (rows_at_once * pitch));
#pragma unroll
        for (int i = 0; i < turns; i++) {
            u64 g_row_start = g_row(first_row + i * rows_at_once);
            int first = (int)(number * 16) - (int)((u32)g_row_start & 15);

            st_global_v4_u32_if((int)(first_row + i * rows_at_once) < rows_left && first >= 0 &&
                                    first + 16 <= bytes,
                                g_row_start + (i64)first, r[i]);
        }
    }

    /* Bytes `begin` to `end` of a chunk, one of which is the chunk's own. */
    DEVICE static void gmem_from_end(u64 g_chunk, u32 s_chunk, u32 begin, u32 end)
    {
        bool is_front = end == 16;
        u32 size = end - begin;
        u32 at_8 = is_front ? 8 : 0;
        u32 at_4 = is_front ? 16 - (size & 12) : size & 8;
        u32 at_2 = is_front ? begin : size & 12;

        if (size & 8)
            st_global_u64(g_chunk + at_8, ld_shared_u64(s_chunk + at_8));
        if (size & 4)
            st_global_u32(g_chunk + at_4, ld_shared_u32(s_chunk + at_4));
        if (element_size == 2 && (size & 2))
            st_global_u16(g_chunk + at_2, ld_shared_u16(s_chunk + at_2));
    }

    /* Of a row that begins and ends within a chunk. */
    DEVICE static void gmem_from_middle(u64 g_chunk, u32 s_chunk, u32 begin, u32 end)
    {
#pragma unroll 1
        for (u32 at = begin; at < end; at += element_size)
            if constexpr (element_size == 2)
                st_global_u16(g_chunk + at, ld_shared_u16(s_chunk + at));
            else
                st_global_u32(g_chunk + at, ld_shared_u32(s_chunk + at));
    }

    /* Two lanes for each row: one has the chunk that it begins in, one the chunk that it ends in.
     * Where these are one, both store the same. A whole chunk is none of theirs: of 16 bytes no bit
     * below is set. */
    DEVICE void gmem_from_ends(u32 lane) const
    {
        u32 row = lane / 2, behind = beyond(row) + (u32)bytes;
        bool is_back = lane % 2 != 0;
        u32 number = is_back ? behind / 16 : 0;
        u32 begin = number == 0 ? beyond(row) : 0, end = is_back ? behind % 16 : min_of(behind, 16u);
        u64 g_chunk = g_row(row) - beyond(row) + number * 16;
        u32 s_chunk = s_rows + row * pitch + number * 16;

        if ((int)row >= rows_left) /* no more than eight: the other lanes have nothing */
            return;
        if (begin != 0 && end != 16)
            gmem_from_middle(g_chunk, s_chunk, begin, end);
        else
            gmem_from_end(g_chunk, s_chunk, begin, end);
    }

    DEVICE void gmem_from_smem(u32 lane) const
    {
        gmem_from_chunks(lane / row_lanes, lane % row_lanes);
        gmem_from_ends(lane);
    }
};
