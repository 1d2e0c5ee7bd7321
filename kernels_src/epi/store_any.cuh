/*
 * The way out where rows of C and D start anywhere: accumulators through shared memory to D by the
 * warp that has them, eight rows at a time. Inside a row stores are of 16 bytes and aligned.
 *
 * Plain products are rounded first, and leave from shared memory as they lie there
 * (epi/rounded_part.cuh). All others are rounded last: sums stay fp32 until the lane that stores them
 * has C, bias and activation for them, and the ends of rows go by elements. Every byte of C is read
 * by the lane that then writes D's, so D may be C.
 *
 * Who meets whom: the lanes of a warp, which has its part of the group's buffers to itself.
 */
#pragma once

#include "epi/element.cuh"
#include "epi/rounded_part.cuh"
#include "epi/store_tma.cuh"
#include "tile/chunk.cuh"

/* What of a warp's tile is in shared memory at once, in fp32: eight rows (one half of the
 * fragments), and as many columns as fit. */
struct exact_part {
    static constexpr int element_size = 4;
    static constexpr int rows = 8;
    static constexpr int count = (cfg::tile_n * element_size + 511) / 512; /* in a row of the tile */
    static constexpr int cols = cfg::tile_n / count;
    static constexpr int row_size = (cols * element_size + 127) / 128 * 128; /* chunks trade places */

    static_assert(cols * count == cfg::tile_n && cols % 8 == 0, "parts are whole matrices");

    u32 s_rows;
    const out_place &to;
    int row, col; /* of its first element, in D's item */

    DEVICE exact_part(u32 in_s_rows, const out_place &in_to, int in_row, int in_col)
        : s_rows(in_s_rows), to(in_to), row(in_to.row + in_row), col(in_to.col + in_col)
    {
    }

    DEVICE bool has_row(u32 in_row) const
    {
        return row + (int)in_row < to.job.m;
    }

    DEVICE int cols_left() const
    {
        return extent_in(to.job.n - col, cols);
    }

    /* Nothing of these is kept in registers, which the accumulators fill. */
    DEVICE u64 g_row_of_d(u32 in_row) const
    {
        return element_address(to.job.d,
                               to.item * to.job.stride_d + (row + in_row) * to.job.ldd + col);
    }

    DEVICE u64 g_row_of_c(u32 in_row) const
    {
        return element_address(to.job.c,
                               to.item * to.job.stride_c + (row + in_row) * to.job.ldc + col);
    }

    /* Chunks of a row trade places by its number, eight among each other, so that eight rows are in
     * eight different banks. What is beyond eight chunks, 128 bytes, is best added to this: the
     * compiler does not see it. */
    DEVICE u32 s_chunk(u32 in_row, u32 number) const
    {
        return s_rows + in_row * row_size + (number ^ in_row) * 16;
    }

    DEVICE u32 s_element(u32 in_row, u32 in_col) const
    {
        constexpr u32 chunk = 16 / element_size;

        return s_chunk(in_row, in_col / chunk) + in_col % chunk * element_size;
    }
};

struct any_writer {
    typedef rounded_part rounded;
    typedef exact_part exact;

    static constexpr int warp_size = smem::group_buffers_size / 4; /* bytes */

    static_assert(rounded::rows * rounded::pitch <= warp_size || !cfg::stores_anywhere, "parts fit");
    static_assert(exact::rows * exact::row_size <= warp_size, "of either kind");

    u32 s_rows; /* this warp's part of the buffers */
    u32 warp, lane;

    DEVICE any_writer(u32 s_base, int group, u32 in_warp, u32 in_lane)
        : s_rows(smem::buffer(s_base, group, 0) + in_warp * warp_size), warp(in_warp), lane(in_lane)
    {
    }

    /* --- rounded first ----------------------------------------------------------------------- */

    DEVICE void smem_from_accum(const rounded &part, const float *r_accum, float alpha) const
    {
        part.smem_from_accum(r_accum, alpha, lane);
    }

    DEVICE void gmem_from_smem(const rounded &part, const epilogue &) const
    {
        part.gmem_from_smem(lane);
    }

    /* --- rounded last ------------------------------------------------------------------------ */

    DEVICE void smem_from_accum(const exact &part, const float *r_accum, float) const
    {
        u32 s_pair[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            s_pair[i] = part.s_chunk(lane / 4, i * 2 + lane % 4 / 2) + lane % 2 * 8;
#pragma unroll
        for (int piece = 0; piece < exact::cols / 8; piece++) {
            const float *r_pair = r_accum + piece * 4;

            st_shared_v2_f32(s_pair[piece % 4] + piece / 4 * 128, r_pair[0], r_pair[1]);
        }
    }

    /* One element of a row from shared memory to what D gets. */
    DEVICE static u32
    finish(const exact &part, const epilogue &op, u32 r_c_bits, u32 row, int col)
    {
        float r[1] = {__uint_as_float(ld_shared_u32(part.s_element(row, (u32)col)))};
        float r_c[1] = {out::from_bits((out::bits)r_c_bits)};

        op.apply(r, r_c, part.row + row, part.col + col);
        return out::to_bits(r[0]);
    }

    /* The first element leaves at the front, `next` comes in behind. */
    DEVICE static void shift_in(u32 (&r)[4], u32 next)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 above = i < 3 ? r[i + 1] : next;

            r[i] = cfg::output_size == 4 ? above : shf_r_wrap(r[i], above, 16);
        }
    }

    /* Of the row, `first` to `first` + out_chunk - 1, as far as they exist. One after the other,
     * from C to D in the same words: sums fill the registers, and what an activation takes it may
     * take but once. */
    DEVICE static void
    gmem_from_chunk(const exact &part, const epilogue &op, u64 g_row, u32 row, int first)
    {
        int end = part.cols_left();
        u32 r[4] = {0, 0, 0, 0};

        if (op.reads_c) {
            u64 g_c = part.g_row_of_c(row);
            chunk_pair pair;

            pair.regs_from_gmem(element_address(g_c, first), g_c, element_address(g_c, end));
            pair.take(r);
        }
#pragma unroll 1
        for (int col = first; col < first + out_chunk; col++)
            shift_in(r, col >= 0 && col < end ? finish(part, op, r[0], row, col) : 0);
        if (first >= 0 && first + out_chunk <= end) {
            st_global_v4_u32(element_address(g_row, first), r);
            return;
        }
#pragma unroll 1
        for (int col = first; col < first + out_chunk; col++) {
            if (col >= 0 && col < end)
                gmem_from_bits(element_address(g_row, col), r[0]);
            shift_in(r, 0);
        }
    }

    DEVICE static void gmem_from_bits(u64 g_element, u32 bits)
    {
        if constexpr (cfg::output_size == 2)
            st_global_u16(g_element, (u16)bits);
        else
            st_global_u32(g_element, bits);
    }

    /* Rows of both start on 16 bytes, and end with whole chunks. */
    DEVICE static bool is_aligned(const exact &part, const epilogue &op)
    {
        u64 starts = part.g_row_of_d(0) | (u64)(part.to.job.ldd * cfg::output_size);

        if (op.reads_c)
            starts |= part.g_row_of_c(0) | (u64)(part.to.job.ldc * cfg::output_size);
        return starts % 16 == 0 && part.cols_left() % out_chunk == 0;
    }

    /* A whole chunk of a row, from sums to D. */
    DEVICE static void gmem_from_whole_chunk(
        const exact &part, const epilogue &op, const u32 (&r_c_bits)[4], u32 row, u32 number)
    {
        float r[out_chunk], r_c[out_chunk];
        u32 bits[4];

#pragma unroll
        for (int i = 0; i < out_chunk; i += 4) {
            ld_shared_v4_u32(bits, part.s_chunk(row, (number * out_chunk + i) / 4));
#pragma unroll
            for (int j = 0; j < 4; j++)
                r[i + j] = __uint_as_float(bits[j]);
        }
#pragma unroll
        for (int i = 0; i < out_chunk; i++)
            r_c[i] = out::from_bits((out::bits)(cfg::output_size == 4
                                                    ? r_c_bits[i % 4]
                                                    : r_c_bits[i / 2] >> i % 2 * 16));
        op.apply(r, r_c, part.row + row, part.col + (int)(number * out_chunk));
#pragma unroll
        for (int i = 0; i < 4; i++)
            bits[i] = cfg::output_size == 4 ? __float_as_uint(r[i])
                                            : pack_pair(r[i * 2 % out_chunk], r[i * 2 % out_chunk + 1]);
        st_global_v4_u32(element_address(part.g_row_of_d(row), number * out_chunk), bits);
    }

    /* Some of C is on its way, as much as there are registers for beside the sums. */
    DEVICE void gmem_from_whole_chunks(const exact &part, const epilogue &op) const
    {
        constexpr u32 row_lanes = exact::cols / out_chunk;
        constexpr u32 rows_that_fit = max_of(32 / row_lanes, 1);
        constexpr u32 rows_at_once = rows_that_fit == 3 ? 2 : rows_that_fit;
        constexpr int turns = exact::rows / rows_at_once;
        constexpr int ahead = min_of(turns, group_tile::blocks * cfg::tile_n > 256 ? 2 : 4);
        u32 row = lane / row_lanes, number = lane % row_lanes;

        static_assert(exact::rows % rows_at_once == 0, "all rows have a turn");
        if (row >= rows_at_once || (int)((number + 1) * out_chunk) > part.cols_left())
            return;
#pragma unroll 1
        for (int done = 0; done < turns; done += ahead) {
            u32 r_c[ahead][4];

#pragma unroll
            for (u32 i = 0; i < ahead; i++)
                if (op.reads_c && part.has_row(row + i * rows_at_once))
                    ld_global_v4_u32(r_c[i],
                                     element_address(part.g_row_of_c(row + i * rows_at_once),
                                                     number * out_chunk));
#pragma unroll 1
            for (int i = 0; i < ahead && part.has_row(row); i++, row += rows_at_once) {
                gmem_from_whole_chunk(part, op, r_c[0], row, number);
                /* Registers have no numbers at run time: the next ones come to the front. */
#pragma unroll
                for (int j = 0; j + 1 < ahead; j++)
#pragma unroll
                    for (int word = 0; word < 4; word++)
                        r_c[j][word] = r_c[j + 1][word];
            }
        }
    }

    /* Lanes take D's aligned chunks of a row. */
    DEVICE void gmem_from_any_chunks(const exact &part, const epilogue &op) const
    {
#pragma unroll 1
        for (u32 row = 0; row < exact::rows; row++) {
            u64 g_row = part.g_row_of_d(row);
            int beyond = (int)(g_row & 15) / cfg::output_size;

            if (!part.has_row(row) || part.cols_left() == 0)
                break;
#pragma unroll 1
            for (int first = (int)lane * out_chunk - beyond; first < part.cols_left();
                 first += 32 * out_chunk)
                gmem_from_chunk(part, op, g_row, row, first);
        }
    }

    DEVICE void gmem_from_smem(const exact &part, const epilogue &op) const
    {
        if (is_aligned(part, op))
            gmem_from_whole_chunks(part, op);
        else
            gmem_from_any_chunks(part, op);
    }

    /* --- parts ------------------------------------------------------------------------------- */

    DEVICE static void meet()
    {
        bar_warp_sync(0xffffffffu);
    }

    template <typename PART> struct parts_of {
        static constexpr int halves = 2 * PART::count; /* of rows and columns, in a block */
        static constexpr int count = group_tile::blocks * halves;
    };

    /* Of the part with this number. The indices of accumulators must be constants: it is found by
     * comparing. */
    template <typename PART, int NUMBER = 0>
    DEVICE void smem_from_part(const PART &part, const group_tile &tile, int number, float alpha) const
    {
        constexpr int halves = parts_of<PART>::halves;
        constexpr int block = NUMBER / halves, half = NUMBER / PART::count % 2;
        constexpr int col = NUMBER % PART::count * PART::cols;

        if (number == NUMBER)
            smem_from_accum(part, tile.accum[block] + col / 2 + half * 2, alpha);
        if constexpr (NUMBER + 1 < parts_of<PART>::count)
            smem_from_part<PART, NUMBER + 1>(part, tile, number, alpha);
    }

    /* One after the other. The loop is there once for all of them: what a product rarely needs is
     * to be neither compiled nor fetched for each. */
    template <typename PART>
    DEVICE void gmem_from_parts(const group_tile &tile, const out_place &to, const epilogue &op)
    {
        constexpr int halves = parts_of<PART>::halves;

#pragma unroll 1
        for (int number = 0; number < parts_of<PART>::count; number++) {
            int block = number / halves, half = number / PART::count % 2;
            PART part(s_rows, to, block * block_span + (int)warp * 16 + half * 8,
                      number % PART::count * PART::cols);

            /* The same number, but the compiler takes it for a new one each time: else it would
             * have all sums ready before the loop, in registers that there are not. */
            u32 alpha = shfl_sync_idx(__float_as_uint(op.alpha), 0);

            smem_from_part(part, tile, number, __uint_as_float(alpha));
            meet();
            gmem_from_smem(part, op);
            meet(); /* before the next part overwrites this one */
        }
    }

    DEVICE void gmem_from_accum(const group_tile &tile, const out_place &to, const epilogue &op)
    {
        if (op.is_plain())
            gmem_from_parts<rounded>(tile, to, op);
        else
            gmem_from_parts<exact>(tile, to, op);
    }
};
