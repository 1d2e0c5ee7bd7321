/*
 * The way out: accumulators through a buffer of 64 rows x 128 bytes to D by tensor copies. A group
 * of warps has two buffers in turn, so that one drains while the next is filled; a buffer is waited
 * for just before it is written again.
 *
 * Tensor copies cut at D's edges, but in whole 16 bytes: a row's end within such a chunk would be
 * written over. So D's map ends before it, and threads store the elements that are left.
 *
 * C comes the same way into the buffer that D will leave from: every element is read by the lane
 * that then writes it, so D may be C.
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
#include "ptx/ldmatrix.cuh"
#include "ptx/proxy.cuh"
#include "ptx/shared.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/sync.cuh"
#include "ptx/tma.cuh"

constexpr int buffer_cols = swizzle_row / cfg::output_size;
constexpr int out_chunk = 16 / cfg::output_size;
constexpr int buffer_accums = buffer_cols / 2; /* of one thread */
constexpr int block_parts = cfg::tile_n / buffer_cols;
constexpr int parts = group_tile::blocks * block_parts;

/* Plain products have a way of their own, so this is the one of all others, whatever they are. */
constexpr bool stores_direct = cfg::output_size == 2 && !cfg::stores_anywhere;

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

    /* The edge lies among the columns of a part, and within a chunk. */
    DEVICE bool is_ragged(int from) const
    {
        return cols_left(from) > 0 && cols_left(from) < buffer_cols && job.n % out_chunk != 0;
    }
};

struct tile_writer {
    u32 s_base;
    int group;
    u32 warp, lane; /* in the group */
    int number;     /* of the buffer that comes next */
    u32 c_parities; /* bit per buffer: of the next C to arrive there */

    DEVICE tile_writer(u32 in_s_base, int in_group, u32 in_warp, u32 in_lane)
        : s_base(in_s_base), group(in_group), warp(in_warp), lane(in_lane), number(0), c_parities(0)
    {
    }

    DEVICE bool is_leader() const
    {
        return warp == 0 && lane == 0;
    }

    DEVICE void meet() const
    {
        bar_sync(1 + group, 128);
    }

    DEVICE u32 s_buffer() const
    {
        return smem::buffer(s_base, group, number);
    }

    /* Leader: the next buffer has been read by the copy that left from it. */
    DEVICE void acquire() const
    {
        if (is_leader())
            cp_async_bulk_wait_group_read<1>();
    }

    DEVICE void smem_from_c(const out_place &to, int block, int col) const
    {
        u32 s_barrier = smem::buffer_barrier(s_base, group, number);

        if (!is_leader())
            return;
        mbarrier_arrive_expect_tx(s_barrier, smem::buffer_size);
        cp_async_bulk_tensor_3d_shared_global(s_buffer(), to.maps + GEMMD_TENSOR_C, to.col + col,
                                              to.row + block * block_span, to.item, s_barrier);
    }

    DEVICE void wait_for_c()
    {
        wait_parity(smem::buffer_barrier(s_base, group, number), c_parities >> number & 1);
        c_parities ^= 1u << number;
    }

    /* The last chunk of each row, of which D has the first elements. The buffer is read before the
     * group meets again, so before anyone writes to it. */
    DEVICE void gmem_from_ragged_chunk(const out_place &to, int block, u32 chunk) const
    {
        constexpr int mask = out_chunk - 1;
        u32 row = warp * 32 + lane;
        i64 d_row = to.row + block * block_span + row, left = to.job.n & mask;
        i64 in_d = to.item * to.job.stride_d + d_row * to.job.ldd + to.job.n - left;

        union {
            u32 words[4];
            typename ::number<cfg::output>::bits elements[out_chunk];
        } r;

        if (row >= smem::buffer_rows || d_row >= to.job.m)
            return;
        ld_shared_v4_u32(r.words, s_buffer() + swizzled_offset(row, chunk));
#pragma unroll
        for (int e = 0; e < mask; e++)
            if (e < left)
                st_global_element(to.job.d + (u64)((in_d + e) * cfg::output_size), r.elements[e]);
    }

    DEVICE static void st_global_element(u64 g_element, u16 bits)
    {
        st_global_u16(g_element, bits);
    }

    DEVICE static void st_global_element(u64 g_element, u32 bits)
    {
        st_global_u32(g_element, bits);
    }

    DEVICE void gmem_from_smem(const out_place &to, int block, int col) const
    {
        fence_proxy_async_shared_cta();
        meet();
        if (is_leader()) {
            if (to.cols_left(col) >= out_chunk)
                cp_async_bulk_tensor_3d_global_shared(to.maps + GEMMD_TENSOR_D, to.col + col,
                                                      to.row + block * block_span, to.item,
                                                      s_buffer(), createpolicy_evict_first());
            cp_async_bulk_commit_group(); /* one each time: acquire() counts groups as buffers */
        }
        if (to.is_ragged(col))
            gmem_from_ragged_chunk(to, block, to.cols_left(col) / out_chunk);
    }

    /* 16 rows x 16 columns of 16 bits a time: two 8-column pieces of the accumulators. */
    DEVICE void smem_from_accum_16(const float *r_accum, const epilogue &op) const
    {
        u32 row = warp * 16 + (lane & 15);

#pragma unroll
        for (int piece = 0; piece < buffer_cols / 8; piece += 2) {
            const float *r = r_accum + piece * 4;
            u32 s_row = s_buffer() + swizzled_offset(row, piece + (lane >> 4));
            u32 r_c[4] = {0, 0, 0, 0}, r_d[4];

            if (op.reads_c)
                ldmatrix_x4(r_c, s_row);
#pragma unroll
            for (int i = 0; i < 4; i++)
                r_d[i] = pack_pair(op.apply_c(r[i * 2], number_from_bits(r_c[i])),
                                   op.apply_c(r[i * 2 + 1], number_from_bits(r_c[i] >> 16)));
            stmatrix_x4(s_row, r_d);
        }
    }

    DEVICE static float number_from_bits(u32 bits)
    {
        return ::number<cfg::output>::from_bits((typename ::number<cfg::output>::bits)bits);
    }

    template <bool READS_C>
    DEVICE void smem_from_accum_32(const float *r_accum, const epilogue &op) const
    {
#pragma unroll
        for (int i = 0; i < buffer_accums / 2; i++) {
            u32 row = warp * 16 + i % 2 * 8 + lane / 4, chunk = i / 2 * 2 + lane % 4 / 2;
            u32 s_pair = s_buffer() + swizzled_offset(row, chunk) + lane % 2 * 8;
            float r_c[2];

            if constexpr (READS_C) {
                ld_shared_v2_f32(r_c, s_pair);
                st_shared_v2_f32(s_pair, op.apply_c(r_accum[i * 2], r_c[0]),
                                 op.apply_c(r_accum[i * 2 + 1], r_c[1]));
            } else {
                st_shared_v2_f32(s_pair, op.alpha * r_accum[i * 2], op.alpha * r_accum[i * 2 + 1]);
            }
        }
    }

    template <bool READS_C>
    DEVICE void
    gmem_from_part(const float *r_accum, const out_place &to, const epilogue &op, int block, int col)
    {
        acquire();
        if (READS_C && op.reads_c) {
            smem_from_c(to, block, col);
            wait_for_c();
        } else {
            meet();
        }
        if constexpr (cfg::output_size == 2)
            smem_from_accum_16(r_accum, op);
        else
            smem_from_accum_32<READS_C>(r_accum, op);
        gmem_from_smem(to, block, col);
        number ^= 1;
    }

    /* Parts of the tile one after the other; by recursion, since the indices of accumulators must
     * be constants and no loop of this size is sure to be unrolled. */
    template <bool READS_C, int PART = 0>
    DEVICE void gmem_from_parts(const group_tile &tile, const out_place &to, const epilogue &op)
    {
        constexpr int block = PART / block_parts, col = PART % block_parts * buffer_cols;

        gmem_from_part<READS_C>(tile.accum[block] + col / 2, to, op, block, col);
        if constexpr (PART + 1 < parts)
            gmem_from_parts<READS_C, PART + 1>(tile, to, op);
    }

    DEVICE void gmem_from_accum(const group_tile &tile, const out_place &to, const epilogue &op)
    {
        if (stores_direct || op.reads_c)
            gmem_from_parts<true>(tile, to, op);
        else
            gmem_from_parts<false>(tile, to, op);
    }

    /* Before the CTA leaves: shared memory is nobody's source. That D is written, the end of the
     * grid sees to. */
    DEVICE void drain() const
    {
        if (is_leader())
            cp_async_bulk_wait_group_read<0>();
    }
};
