/*
 * The way out of plain products in 32 bits: accumulators through two buffers of 64 rows x 128 bytes,
 * of each group of warps, to D by tensor copies. The warps go on when the last buffers are full; the
 * copies end by themselves.
 *
 * Tensor copies cut at D's edges, but in whole 16 bytes: rows that end within such a chunk go by
 * threads (epi/store_any.cuh), as does whatever reads C.
 *
 * Who meets whom: the group's four warps, at the named barrier 1 + group. The group's first thread
 * issues all copies, so their order and completion are its own business.
 */
#pragma once

#include "epi/ops.cuh"
#include "epi/quad.cuh"
#include "mma/wgmma.cuh"
#include "pipe/slot_ring.cuh"
#include "ptx/global.cuh"
#include "ptx/proxy.cuh"
#include "ptx/shared.cuh"
#include "ptx/sync.cuh"
#include "ptx/tma.cuh"

constexpr int buffer_cols = swizzle_row / cfg::output_size;
constexpr int out_chunk = 16 / cfg::output_size;
constexpr int buffer_accums = buffer_cols / 2; /* of one thread */

/* Where the group's tile lies in C and D. */
struct out_place {
    const gemmd_job &job;
    const gemmd_tensor_map *maps; /* of the job */
    int row, col, item;

    /* To D's right edge, from a column of the tile. */
    DEVICE int cols_left(int from) const
    {
        return (int)job.n - (col + from);
    }
};

struct tile_writer {
    u32 s_base;
    int group;
    u32 warp, lane; /* in the group */

    DEVICE bool is_leader() const
    {
        return warp == 0 && lane == 0;
    }

    DEVICE void meet() const
    {
        bar_sync(1 + group, 128);
    }

    DEVICE u32 s_buffer(int number) const
    {
        return smem::buffer(s_base, group, number);
    }

    /* All of the group: the copies that left from the buffers have read them. */
    DEVICE void acquire() const
    {
        if (is_leader())
            cp_async_bulk_wait_group_read<0>();
        meet();
    }

    DEVICE void smem_from_accum(u32 s_buffer, const float *r_accum, const epilogue &op) const
    {
#pragma unroll
        for (int i = 0; i < buffer_accums / 2; i++) {
            u32 row = warp * 16 + i % 2 * 8 + lane / 4, chunk = i / 2 * 2 + lane % 4 / 2;

            st_shared_v2_f32(s_buffer + swizzled_offset(row, chunk) + lane % 2 * 8,
                             op.plain(r_accum[i * 2]), op.plain(r_accum[i * 2 + 1]));
        }
    }

    /* Leader: whatever of it lies in D. */
    DEVICE void gmem_from_smem(const out_place &to, int number, int block, int col) const
    {
        if (to.cols_left(col) > 0)
            cp_async_bulk_tensor_3d_global_shared(to.maps + GEMMD_TENSOR_D, to.col + col,
                                                  to.row + block * block_span, to.item,
                                                  s_buffer(number), createpolicy_evict_first());
    }

    /* COLS columns of a block, as many at a time as the buffers hold. */
    template <int COLS>
    DEVICE void gmem_from_columns(const float *r_accum,
                                  const out_place &to,
                                  const epilogue &op,
                                  int block,
                                  int col) const
    {
        constexpr int buffers = min_of(COLS / buffer_cols, 2);

        acquire();
#pragma unroll
        for (int i = 0; i < buffers; i++)
            smem_from_accum(s_buffer(i), r_accum + i * buffer_accums, op);
        fence_proxy_async_shared_cta();
        meet();
        if (is_leader()) {
#pragma unroll
            for (int i = 0; i < buffers; i++)
                gmem_from_smem(to, i, block, col + i * buffer_cols);
            cp_async_bulk_commit_group();
        }
        if constexpr (COLS > buffers * buffer_cols)
            gmem_from_columns<COLS - buffers * buffer_cols>(r_accum + buffers * buffer_accums, to,
                                                            op, block, col + buffers * buffer_cols);
    }

    /* By recursion, since the indices of accumulators must be constants and no loop of this size is
     * sure to be unrolled. */
    template <int BLOCK = 0>
    DEVICE void gmem_from_accum(const group_tile &tile, const out_place &to, const epilogue &op) const
    {
        gmem_from_columns<cfg::tile_n>(tile.accum[BLOCK], to, op, BLOCK, 0);
        if constexpr (BLOCK + 1 < group_tile::blocks)
            gmem_from_accum<BLOCK + 1>(tile, to, op);
    }

    /* Before the CTA leaves: shared memory is nobody's source. That D is written, the end of the
     * grid sees to. */
    DEVICE void drain() const
    {
        if (is_leader())
            cp_async_bulk_wait_group_read<0>();
    }
};
