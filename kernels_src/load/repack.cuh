/*
 * Inputs whose rows start anywhere, copied to rows that start on 16 bytes, which tensor copies ask
 * for. A launch of its own before the product's: every input is read once here, where the product
 * reads it once for each row or column of tiles.
 *
 * A thread has several chunks of the copy under way, a multiple of the CTA's threads apart, so
 * that loads and stores of a warp are whole lines and enough of them are in flight to fill the
 * memory's pipes. What lies between a row's end and the end of its last chunk is whatever stood
 * beside the source: tensor maps end at the last column.
 */
#pragma once

#include "abi/job.h"
#include "tile/chunk.cuh"

namespace repacking
{

constexpr int threads = GEMMD_REPACK_THREADS;
constexpr int ctas_per_multiprocessor = 4;
constexpr u32 chunks_at_once = GEMMD_REPACK_CHUNKS;
constexpr u32 chunks_under_way = chunks_at_once / threads; /* of a thread */
constexpr u32 chunk_elements = 8; /* all inputs have 16 bits */

/* The daemon bounds what it copies: chunks are counted in 32 bits. */
struct copier {
    const gemmd_repack_operand &operand;
    u32 rows, row_chunks, chunks;

    DEVICE copier(const gemmd_repack_operand &of)
        : operand(of), rows((u32)of.rows),
          row_chunks((u32)((of.columns + chunk_elements - 1) / chunk_elements)),
          chunks((u32)of.rows * row_chunks * (u32)of.items)
    {
    }

    struct place {
        u64 g_from, g_row_end, g_to;
    };

    DEVICE place place_of(u32 number) const
    {
        u32 line = number / row_chunks, column = (number - line * row_chunks) * chunk_elements;
        u32 item = line / rows, row = line - item * rows;
        u64 g_row = operand.source + (u64)((item * operand.stride + row * operand.ld) * 2);

        return {g_row + column * 2, g_row + (u64)(operand.columns * 2),
                operand.destination +
                    (u64)((item * operand.to_stride + row * operand.to_ld + column) * 2)};
    }

    DEVICE void gmem_from_gmem(u32 first) const
    {
        chunk_pair r[chunks_under_way];
        u64 g_to[chunks_under_way];

#pragma unroll
        for (u32 i = 0; i < chunks_under_way; i++) {
            u32 number = first + i * threads;

            if (number >= chunks)
                continue;
            place at = place_of(number);
            r[i].regs_from_gmem(at.g_from, at.g_from, at.g_row_end);
            g_to[i] = at.g_to;
        }
#pragma unroll
        for (u32 i = 0; i < chunks_under_way; i++) {
            u32 r_chunk[4];

            if (first + i * threads >= chunks)
                continue;
            r[i].take(r_chunk);
            st_global_v4_u32(g_to[i], r_chunk);
        }
    }

    /* To the L2, what gmem_from_gmem() will read. */
    DEVICE void prefetch(u32 first) const
    {
#pragma unroll
        for (u32 i = 0; i < chunks_under_way; i++)
            if (first + i * threads < chunks)
                prefetch_global_l2(place_of(first + i * threads).g_from);
    }
};

/* A CTA's turns, each of chunks_at_once chunks of one operand: those of A, then those of B. */
struct walk {
    const gemmd_repack &what;
    u32 turn, step, thread;
    u32 turns_a, turns;

    DEVICE walk(const gemmd_repack &of, u32 cta, u32 ctas, u32 in_thread)
        : what(of), turn(cta), step(ctas), thread(in_thread), turns_a(turns_of(of.operand[0])),
          turns(turns_a + turns_of(of.operand[1]))
    {
    }

    DEVICE static u32 turns_of(const gemmd_repack_operand &operand)
    {
        return (copier(operand).chunks + chunks_at_once - 1) / chunks_at_once;
    }

    DEVICE copier operand() const
    {
        return copier(what.operand[turn < turns_a ? 0 : 1]);
    }

    DEVICE u32 first() const
    {
        return (turn < turns_a ? turn : turn - turns_a) * chunks_at_once + thread;
    }

    /* The first turn's, while the grid before this one still runs. */
    DEVICE void prefetch() const
    {
        if (turn < turns)
            operand().prefetch(first());
    }

    DEVICE void copy()
    {
#pragma unroll 1
        for (; turn < turns; turn += step)
            operand().gmem_from_gmem(first());
    }
};

} // namespace repacking
