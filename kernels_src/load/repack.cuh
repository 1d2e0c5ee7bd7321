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

    DEVICE void copy(u32 cta, u32 ctas, u32 thread) const
    {
#pragma unroll 1
        for (u64 first = (u64)cta * chunks_at_once; first < chunks;
             first += (u64)ctas * chunks_at_once)
            gmem_from_gmem((u32)first + thread);
    }
};

} // namespace repacking
