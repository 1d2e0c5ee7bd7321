/*
 * The ring of K tiles between copies and multiplication: how loads of later K tiles run while the
 * current one is multiplied. Two kinds with one face: run() leaves the products of all K tiles in
 * the warp's accumulators, and shared memory drained and free.
 *
 * All threads load and all multiply, so one CTA barrier per K tile says both "the next slot is
 * filled for everybody" and "the slot before is read by everybody".
 */
#pragma once

#include "load/cp_async.cuh"
#include "load/elements.cuh"
#include "mma/warp_tile.cuh"
#include "ptx/sync.cuh"

DEVICE int next_slot(int slot)
{
    return slot + 1 == cfg::stages ? 0 : slot + 1;
}

/* cp.async: stages - 1 K tiles are in flight. Each commit is one group, also past the end of K, so
 * that the count of groups stays the count of K tiles; copies there only write zeros, which costs
 * less than a branch that keeps them apart from the products. */
template <typename WARP> struct async_pipeline {
    operand<tile_a> a;
    operand<tile_b> b;
    u32 s_ring;
    i64 k_left;    /* not yet asked for */
    int fill, use; /* slots */

    DEVICE
    async_pipeline(const operand<tile_a> &in_a, const operand<tile_b> &in_b, u32 in_s_ring, i64 k)
        : a(in_a), b(in_b), s_ring(in_s_ring), k_left(k), fill(0), use(0)
    {
    }

    DEVICE void acquire_and_commit()
    {
        int k = extent_in(k_left, cfg::tile_k);

        smem_from_gmem(smem::a_of_slot(s_ring, fill), a, k);
        smem_from_gmem(smem::b_of_slot(s_ring, fill), b, k);
        k_left -= cfg::tile_k;
        cp_async_commit_group();
        fill = next_slot(fill);
    }

    DEVICE void wait()
    {
        cp_async_wait_group<cfg::stages - 2>();
        bar_sync_0();
    }

    DEVICE warp_slot slot() const
    {
        return {smem::a_of_slot(s_ring, use), smem::b_of_slot(s_ring, use)};
    }

    /* Fragments are read one slice ahead, over the border of K tiles too: the barrier falls
     * between the last read of a slot and the last products from it. */
    DEVICE void multiply(WARP &warp,
                         const typename WARP::fragment &r,
                         typename WARP::fragment &r_next,
                         int slice)
    {
        bool is_last = slice + 1 == WARP::slices;

        if (is_last) {
            use = next_slot(use);
            wait();
        }
        warp.regs_from_smem(r_next, slot(), is_last ? 0 : slice + 1);
        if (slice == 0)
            acquire_and_commit();
        warp.accum_from_regs(r);
    }

    DEVICE void step(WARP &warp, typename WARP::fragment (&r)[2])
    {
#pragma unroll WARP::slices_at_once / 2
        for (int pair = 0; pair < WARP::slices; pair += 2)
#pragma unroll
            for (int i = 0; i < 2; i++)
                multiply(warp, r[i], r[1 - i], pair + i);
    }

    DEVICE void run(WARP &warp, i64 k)
    {
        typename WARP::fragment r[2];

#pragma unroll 1
        for (int i = 0; i < cfg::stages - 1; i++)
            acquire_and_commit();
        wait();
        warp.regs_from_smem(r[0], slot(), 0);
#pragma unroll 1
        while (k_left > -cfg::tile_k * (cfg::stages - 1))
            step(warp, r);
        /* The last look-ahead read a slot whose values nobody uses: it must still be over before a
         * slab lies there. */
        cp_async_wait_group<0>();
        bar_sync_0();
    }
};

/* Element copies: the next K tile waits in registers while this one is multiplied. */
template <typename WARP> struct element_pipeline {
    operand<tile_a> a;
    operand<tile_b> b;
    u32 s_ring;
    i64 k_left;
    chunk_registers<tile_a> r_a;
    chunk_registers<tile_b> r_b;

    DEVICE
    element_pipeline(const operand<tile_a> &in_a, const operand<tile_b> &in_b, u32 in_s_ring, i64 k)
        : a(in_a), b(in_b), s_ring(in_s_ring), k_left(k)
    {
    }

    DEVICE void fetch()
    {
        int k = extent_in(k_left, cfg::tile_k);

        regs_from_gmem(r_a, a, k);
        regs_from_gmem(r_b, b, k);
        k_left -= cfg::tile_k;
    }

    DEVICE void fill(int slot)
    {
        smem_from_regs(smem::a_of_slot(s_ring, slot), r_a, a);
        smem_from_regs(smem::b_of_slot(s_ring, slot), r_b, b);
    }

    DEVICE void multiply(WARP &warp, int slot) const
    {
        warp_slot from = {smem::a_of_slot(s_ring, slot), smem::b_of_slot(s_ring, slot)};

#pragma unroll WARP::slices_at_once
        for (int slice = 0; slice < WARP::slices; slice++) {
            typename WARP::fragment r;

            warp.regs_from_smem(r, from, slice);
            warp.accum_from_regs(r);
        }
    }

    DEVICE void run(WARP &warp, i64 k)
    {
        int slot = 0;

        fetch();
        fill(slot);
        bar_sync_0();
#pragma unroll 1
        for (i64 done = 0; done < k; done += cfg::tile_k) {
            bool is_last = done + cfg::tile_k >= k;

            if (!is_last)
                fetch();
            multiply(warp, slot);
            slot = next_slot(slot);
            if (!is_last)
                fill(slot);
            bar_sync_0();
        }
    }
};

template <bool COPIES_ELEMENTS, typename WARP> struct pipeline_of {
    typedef async_pipeline<WARP> type;
};

template <typename WARP> struct pipeline_of<true, WARP> {
    typedef element_pipeline<WARP> type;
};
