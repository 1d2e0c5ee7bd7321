/*
 * Which way a group's tile leaves by. Every kernel has one, compiled for its speed: from registers, by
 * tensor copies where elements have 32 bits, or beside the next tile's products where groups that
 * share a tile have the most sums (multiplier::run_late). All but the first go through buffers in
 * shared memory (tile/smem_hopper.cuh). All are for plain products in whole chunks of 16 bytes; all else is
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

    DEVICE tile_writer writer() const
    {
        return {s_base, group, warp, lane};
    }

    static_assert(!cfg::leaves_late || late_tile::half_cols == 2 * buffer_cols, "half a tile fills them");

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
        else if constexpr (cfg::leaves_by_copies)
            writer().gmem_from_accum(tile, to, op);
        else
            direct_writer({warp, lane}).gmem_from_accum(tile, to, op);
    }

    /* Before the CTA leaves. */
    DEVICE void drain() const
    {
        if constexpr (cfg::leaves_by_copies)
            writer().drain();
    }
};
