/*
 * Which way a group's tile leaves by. A kernel has one for plain products, compiled for their speed:
 * from registers, or by tensor copies where elements have 32 bits or a group has two blocks. All else
 * goes the one long way, which is there once and not for each accumulator: it is compiled in every
 * kernel, and run in few.
 */
#pragma once

#include "epi/store_any.cuh"
#include "epi/store_direct.cuh"
#include "epi/store_tma.cuh"

struct way_out {
    u32 s_base;
    int group;
    u32 warp, lane; /* in the group */

    /* Groups that have two blocks each of a shared tile store the one while they multiply the other,
     * so a block has to leave without much of their time (multiplier::run_by_blocks). */
    static constexpr bool is_by_blocks = cfg::schedule == cfg::schedule_coop && cfg::stages > 1 &&
                                         group_tile::blocks == 2 && !cfg::stores_anywhere;
    static constexpr bool is_bulk = is_by_blocks || !cfg::stores_anywhere && cfg::output_size == 4;
    static constexpr bool is_direct = !cfg::stores_anywhere && !is_bulk;

    /* The ends of rows that are not whole chunks are for the long way. */
    DEVICE static bool is_short(const epilogue &op)
    {
        return op.is_plain() && op.job.n % out_chunk == 0;
    }

    DEVICE tile_writer writer() const
    {
        return {s_base, group, warp, lane};
    }

    /* By the whole group. */
    DEVICE void
    gmem_from_accum(const group_tile &tile, const out_place &to, const epilogue &op) const
    {
        if constexpr (is_direct) {
            if (is_short(op)) {
                direct_writer({warp, lane}).gmem_from_accum(tile, to, op);
                return;
            }
        }
        if constexpr (is_bulk && !is_by_blocks) {
            if (is_short(op)) {
                writer().gmem_from_accum(tile, to, op);
                return;
            }
        }
        if constexpr (is_bulk)
            writer().acquire(); /* the long way has the same buffers */
        any_writer(s_base, group, warp, lane).gmem_from_accum(tile, to, op);
    }

    /* Before the CTA leaves. */
    DEVICE void drain() const
    {
        if constexpr (is_bulk)
            writer().drain();
    }
};
