/*
 * What a group that multiplies has to know of its next K tile, found out while the products of the
 * one before are being issued. Who issues products waits until the tensor cores accept each of them;
 * when the last one is accepted they have as many cycles left as that one takes, 64 with 128
 * columns. A look at a barrier and descriptors made from the number of a slot take about a hundred,
 * so behind the last product they would keep the tensor cores waiting, once in every K tile.
 */
#pragma once

#include "mma/wgmma.cuh"
#include "pipe/slot_ring.cuh"

struct slot_ahead {
    u32 word;     /* of the slot, for group_tile */
    bool is_full; /* else nobody has looked, or it was not then */

    DEVICE slot_ahead(u32 s_base, const ring_position &at)
        : word(word_at(s_base, at)), is_full(false)
    {
    }

    /* The same number, but the compiler sees that it is the warp's: descriptors are then made in
     * uniform registers, with no moves between products. */
    DEVICE static u32 word_at(u32 s_base, const ring_position &at)
    {
        return shfl_sync_idx(group_tile::slot_word(s_base, at.slot), 0);
    }

    DEVICE void look(u32 s_base, const ring_position &at)
    {
        word = word_at(s_base, at);
        is_full = mbarrier_test_wait_parity(smem::full_barrier(s_base, at.slot), at.parity);
    }
};

/* That, to be done beside the products of the K tile before the one at `at`. */
struct look_ahead {
    slot_ahead &next;
    u32 s_base;
    const ring_position &at;

    DEVICE void operator()(int slice) const
    {
        if (slice == group_tile::slices - 2)
            next.look(s_base, at);
    }
};

template <typename ONE, typename OTHER> struct both_beside {
    ONE one;
    OTHER other;

    DEVICE both_beside(const ONE &first, const OTHER &second) : one(first), other(second)
    {
    }

    DEVICE void operator()(int slice) const
    {
        one(slice);
        other(slice);
    }
};
