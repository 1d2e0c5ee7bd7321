/*
 * Chunks of 16 bytes where rows do not start on them: what is wanted lies across two aligned
 * chunks, and is shifted out of the pair in registers.
 */
#pragma once

#include "ptx/global.cuh"
#include "ptx/shf.cuh"

/* Bytes `skipped` to `skipped` + 15 of low and high; skipped: 0 to 15. */
DEVICE void chunk_across(u32 (&r)[4], const u32 (&low)[4], const u32 (&high)[4], u32 skipped)
{
    u32 words[7] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2]};

    /* Registers have no index: by two words, or not, then by one. */
    if (skipped & 8) {
#pragma unroll
        for (int i = 0; i < 5; i++)
            words[i] = words[i + 2];
        words[5] = high[3];
    }
    if (skipped & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++)
            words[i] = words[i + 1];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        r[i] = shf_r_wrap(words[i], words[i + 1], skipped * 8);
}

/* Elements `first` to `end` - 1 of a chunk of 16-bit elements stay, all others become zero. */
DEVICE void chunk_keep(u32 (&r)[4], int first, int end)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        u32 low = w * 2 >= first && w * 2 < end ? 0xffff : 0;
        u32 high = w * 2 + 1 >= first && w * 2 + 1 < end ? 0xffff0000 : 0;

        r[w] &= low | high;
    }
}

/* Elements before `end` stay. */
DEVICE void chunk_cut(u32 (&r)[4], int end)
{
#pragma unroll
    for (int w = 0; w < 4; w++)
        r[w] = end > w * 2 + 1 ? r[w] : end > w * 2 ? r[w] & 0xffff : 0;
}

/* The aligned chunks around 16 bytes, of which those from g_begin to g_end are a row's. A chunk is
 * read when it has at least one byte of the row, so no page is touched that the row has no part in.
 */
struct chunk_pair {
    u32 low[4], high[4];
    u32 skipped;

    DEVICE void regs_from_gmem(u64 g_first, u64 g_begin, u64 g_end)
    {
        u64 g_low = g_first & ~(u64)15;

        skipped = (u32)(g_first & 15);
#pragma unroll
        for (int i = 0; i < 4; i++)
            low[i] = high[i] = 0;
        if (g_low + 16 > g_begin && g_low < g_end)
            ld_global_v4_u32(low, g_low);
        if (skipped != 0 && g_low + 32 > g_begin && g_low + 16 < g_end)
            ld_global_v4_u32(high, g_low + 16);
    }

    /* The same, of a row that goes on for `left` bytes from g_first, at least one. */
    DEVICE void regs_from_row(u64 g_first, u32 left)
    {
        u64 g_low;

        skipped = (u32)g_first & 15;
        g_low = g_first - skipped;
#pragma unroll
        for (int i = 0; i < 4; i++)
            high[i] = 0;
        ld_global_v4_u32(low, g_low);
        if (skipped != 0 && left > 16 - skipped)
            ld_global_v4_u32(high, g_low + 16);
    }

    DEVICE void take(u32 (&r)[4]) const
    {
        chunk_across(r, low, high, skipped);
    }
};
