/*
 * Which way a group's tile leaves by. Every kernel has one, compiled for its speed: from registers, by
 * tensor copies where elements have 32 bits, or beside the next tile's products where groups that
 * share a tile have the most sums. All are for plain products in whole chunks of 16 bytes; all else is
 * for kernels whose threads store anything anywhere (the plan sees to it, plan_hopper_finishes): beside
 * each other in one kernel, what few products need took a quarter of its compile time and half of its
 * code.
 */
#pragma once

#include "epi/store_any.cuh"
#include "epi/store_direct.cuh"
#include "epi/store_late.cuh"
#include "epi/store_tma.cuh"

struct way_out {
    u32 s_base;
    int group;
    u32 warp, lane; /* in the group */

    /* Groups that share a tile end at the same time, and the largest have buffers for half of it
     * (multiplier::run_late). */
    static constexpr bool is_late = cfg::schedule == cfg::schedule_coop && cfg::stages > 1 &&
                                    cfg::tile_m == 128 && cfg::tile_n == 256 &&
                                    !cfg::stores_anywhere && cfg::output_size == 2;
    static constexpr bool is_bulk = !cfg::stores_anywhere && cfg::output_size == 4;

    DEVICE tile_writer writer() const
    {
        return {s_base, group, warp, lane};
    }

    static_assert(!is_late || late_tile::half_cols == 2 * buffer_cols, "half a tile fills them");

    DEVICE late_writer late() const
    {
        return {smem::buffer(s_base, group, 0), warp, lane};
    }

    /* By the whole group; a late tile has a way of its own. */
    DEVICE void
    gmem_from_accum(const group_tile &tile, const out_place &to, const epilogue &op) const
    {
        if constexpr (cfg::stores_anywhere)
            any_writer(s_base, group, warp, lane).gmem_from_accum(tile, to, op);
        else if constexpr (is_bulk)
            writer().gmem_from_accum(tile, to, op);
        else
            direct_writer({warp, lane}).gmem_from_accum(tile, to, op);
    }

    /* Before the CTA leaves. */
    DEVICE void drain() const
    {
        if constexpr (is_bulk)
            writer().drain();
    }
};
