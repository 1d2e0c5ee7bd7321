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
        u32 row, chunk; /* of its item, of its row */
        u64 g_from, g_to;
    };

    DEVICE place place_of(u32 number) const
    {
        u32 line = number / row_chunks, chunk = number - line * row_chunks;
        u32 item = line < rows ? 0 : line / rows, row = line - item * rows;

        return {row, chunk,
                operand.source + (u64)((item * operand.stride + row * operand.ld) * 2) + chunk * 16,
                operand.destination +
                    (u64)((item * operand.to_stride + row * operand.to_ld) * 2) + chunk * 16};
    }

    /* From a chunk to the one that lies `threads` behind it: some rows and some chunks. A division
     * for each chunk would take longer than to copy it. */
    struct step {
        u32 rows, chunks;
        u64 from, to;           /* bytes */
        u64 row_from, row_to;   /* more, into the next row */
        u64 item_from, item_to; /* and into the next item */

        DEVICE step(const copier &of)
            : rows(threads / of.row_chunks), chunks(threads - rows * of.row_chunks),
              from((u64)(rows * of.operand.ld * 2) + chunks * 16),
              to((u64)(rows * of.operand.to_ld * 2) + chunks * 16),
              row_from((u64)(of.operand.ld * 2) - (u64)of.row_chunks * 16),
              row_to((u64)(of.operand.to_ld * 2) - (u64)of.row_chunks * 16),
              item_from((u64)(of.operand.stride - of.rows * of.operand.ld) * 2),
              item_to((u64)(of.operand.to_stride - of.rows * of.operand.to_ld) * 2)
        {
        }
    };

    DEVICE void advance(place &at, const step &by) const
    {
        bool is_next = at.chunk + by.chunks >= row_chunks;

        at.chunk += by.chunks - (is_next ? row_chunks : 0);
        at.row += by.rows + is_next;
        at.g_from += by.from + (is_next ? by.row_from : 0);
        at.g_to += by.to + (is_next ? by.row_to : 0);
#pragma unroll 1
        for (; at.row >= rows; at.row -= rows) {
            at.g_from += by.item_from;
            at.g_to += by.item_to;
        }
    }

    DEVICE void gmem_from_gmem(u32 first) const
    {
        place at = place_of(first);
        step by(*this);
        chunk_pair r[chunks_under_way];
        u64 g_to[chunks_under_way];

#pragma unroll
        for (u32 i = 0; i < chunks_under_way; i++) {
            if (first + i * threads < chunks)
                r[i].regs_from_row(at.g_from, (u32)operand.columns * 2 - at.chunk * 16);
            g_to[i] = at.g_to;
            advance(at, by);
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
