/*
 * A thread's part of a dot product, straight from global memory. Parts take turns along K, so that
 * neighbours read neighbours.
 *
 * Where both operands have K along their rows, by the aligned chunks of A's row, and what of B's
 * lies beside them, shifted there (tile/chunk.cuh). Else, and where K is short, by elements.
 */
#pragma once

#include "base/number.cuh"
#include "tile/chunk.cuh"

namespace dot
{

typedef number<cfg::input> in;

constexpr int elements_at_once = 8; /* of each operand under way */
constexpr int chunks_at_once = 2;
constexpr int chunk = 8; /* elements */

DEVICE float sum_of_elements(u64 g_a, u64 step_a, u64 g_b, u64 step_b, int k, u32 part, u32 parts)
{
    float r_sum = 0;

    g_a += part * step_a;
    g_b += part * step_b;
    step_a *= parts;
    step_b *= parts;
#pragma unroll 1
    for (int left = k - (int)part; left > 0; left -= (int)parts * elements_at_once) {
        u16 r_a[elements_at_once], r_b[elements_at_once];

#pragma unroll
        for (int i = 0; i < elements_at_once; i++) {
            r_a[i] = r_b[i] = 0;
            if ((int)parts * i < left) {
                r_a[i] = ld_global_u16(g_a);
                r_b[i] = ld_global_u16(g_b);
            }
            g_a += step_a;
            g_b += step_b;
        }
#pragma unroll
        for (int i = 0; i < elements_at_once; i++)
            r_sum += in::from_bits(r_a[i]) * in::from_bits(r_b[i]);
    }
    return r_sum;
}

DEVICE float sum_of_words(const u32 (&r_a)[4], const u32 (&r_b)[4], float r_sum)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        r_sum += in::from_bits((u16)r_a[w]) * in::from_bits((u16)r_b[w]);
        r_sum += in::from_bits((u16)(r_a[w] >> 16)) * in::from_bits((u16)(r_b[w] >> 16));
    }
    return r_sum;
}

/* Of two rows that have K along them. */
struct row_pair {
    u64 g_a, g_b;
    int k;

    /* A chunk of A's that has a row's beginning or end in it. */
    DEVICE float sum_of_end(u64 g_chunk, float r_sum) const
    {
        int before = (int)((i64)(g_a - g_chunk) / 2); /* elements of the chunk before the row */
        u32 r_a[4], r_b[4];
        chunk_pair r_pair;

        ld_global_v4_u32(r_a, g_chunk);
        r_pair.regs_from_gmem(g_b + (g_chunk - g_a), g_b, g_b + (u32)k * 2);
        r_pair.take(r_b);
        chunk_keep(r_a, before, k + before);
        chunk_keep(r_b, before, k + before);
        return sum_of_words(r_a, r_b, r_sum);
    }

    /* COUNT chunks, `step` bytes apart, that lie within the row. Where B's row is as far from a
     * chunk's start as A's, its second chunk is read for nothing, but is its row's. */
    template <int COUNT> DEVICE float sum_inside(u64 g_chunk, u32 step, float r_sum) const
    {
        u64 g_low = g_b + (g_chunk - g_a);
        u32 skipped = (u32)g_low & 15;
        u32 r_a[COUNT][4], r_low[COUNT][4], r_high[COUNT][4];

        g_low -= skipped;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            ld_global_v4_u32(r_a[i], g_chunk + i * step);
            ld_global_v4_u32(r_low[i], g_low + i * step);
            ld_global_v4_u32(r_high[i], g_low + i * step + (skipped != 0 ? 16 : 0));
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            u32 r_b[4];

            chunk_across(r_b, r_low[i], r_high[i], skipped);
            r_sum = sum_of_words(r_a[i], r_b, r_sum);
        }
        return r_sum;
    }

    DEVICE float sum_of_chunks(u32 part, u32 parts) const
    {
        u64 g_end = g_a + (u32)k * 2;
        u64 g_chunk = (g_a & ~(u64)15) + part * 16;
        u32 step = parts * 16;
        float r_sum = 0;

        if (g_chunk < g_a) {
            r_sum = sum_of_end(g_chunk, r_sum);
            g_chunk += step;
        }
#pragma unroll 1
        for (; g_chunk + (chunks_at_once - 1) * step + 16 <= g_end;
             g_chunk += chunks_at_once * step)
            r_sum = sum_inside<chunks_at_once>(g_chunk, step, r_sum);
#pragma unroll 1
        for (; g_chunk + 16 <= g_end; g_chunk += step)
            r_sum = sum_inside<1>(g_chunk, step, r_sum);
        if (g_chunk < g_end)
            r_sum = sum_of_end(g_chunk, r_sum);
        return r_sum;
    }
};

} // namespace dot
