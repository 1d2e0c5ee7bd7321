/*
 * Stamps: when the events of a K tile's way happened, for `gemmd-bench ladder`. Only a kernel that
 * is compiled with -DGEMMD_STAMPS=1 has them; in all others each call is empty, and the code is what
 * it would be without.
 *
 * All threads of a role read clocks, which costs a few cycles; one of them stores, 16 bytes a K
 * tile. A store takes hundreds of cycles of the thread that reuses its registers, beside products
 * that keep shared memory busy; so the record of a K tile is stored when the products of the next
 * one have been issued, and nothing is to be done but to wait. Those who do not record hold the number
 * of a record that is never written.
 */
#pragma once

#include "abi/stamp.h"
#include "pipe/slot_ring.cuh"

#ifdef GEMMD_STAMPS

#    include "ptx/clock.cuh"
#    include "ptx/global.cuh"

extern "C" {
__device__ struct gemmd_stamps gemmd_stamp_buffer;
}

struct stamps {
    static constexpr u32 last = GEMMD_STAMP_RECORDS - 1;
    static constexpr u32 what_shift = 24;
    static constexpr u32 record_mask = (1u << what_shift) - 1;

    /* The record that comes next, counted over all lanes, so that what is above a lane's records
     * names it; and above that, what the record will tell of. One register: there are no more. */
    u32 next;
    u32 issued, waited, seen;

    DEVICE stamps() : next(last)
    {
    }

    DEVICE bool is_recording() const
    {
        return (next & last) != last;
    }

    DEVICE u32 record() const
    {
        return next & record_mask;
    }

    DEVICE u64 g_span() const
    {
        return (u64)&gemmd_stamp_buffer.spans[0][0] +
               record() / GEMMD_STAMP_RECORDS * sizeof(gemmd_stamp_span);
    }

    DEVICE void expect(u32 what)
    {
        next = record() | what << what_shift;
    }

    DEVICE void open(int lane, bool is_mine)
    {
        if (!is_mine || blockIdx.x >= GEMMD_STAMP_CTAS)
            return;
        next = (blockIdx.x * GEMMD_STAMP_LANES + lane) * GEMMD_STAMP_RECORDS;
        st_global_u64(g_span(), globaltimer());
        st_global_u32(g_span() + 16, clock_lo());
        st_global_u32(g_span() + 24, smid());
    }

    DEVICE void close()
    {
        if (record() == last)
            return;
        st_global_u64(g_span() + 8, globaltimer());
        st_global_u32(g_span() + 20, clock_lo());
    }

    DEVICE void store(u32 what, u32 clock0, u32 clock1, u32 clock2)
    {
        u32 r[4] = {what, clock0, clock1, clock2};

        if (!is_recording())
            return;
        st_global_v4_u32((u64)&gemmd_stamp_buffer.records[0][0][0] +
                             (u64)record() * sizeof(gemmd_stamp),
                         r);
        next++;
    }

    DEVICE void copies_issued()
    {
        store(GEMMD_STAMP_COPIES, clock_lo(), 0, 0);
    }

    DEVICE void tile_begins()
    {
        expect(GEMMD_STAMP_TILE_BEGIN);
        issued = waited = clock_lo();
    }

    DEVICE void slot_seen()
    {
        seen = clock_lo();
    }

    /* Products run, and there is time: for the record before, and for a look at how many of the K
     * tiles that follow are there already. */
    DEVICE void products_issued(u32 s_base, ring_position at)
    {
        u32 landed = 0;

        store(next >> what_shift, issued, waited, seen);
        if (is_recording()) {
#pragma unroll 1
            for (int i = 1; i < cfg::stages; i++) {
                at.advance();
                landed +=
                    mbarrier_test_wait_parity(smem::full_barrier(s_base, at.slot), at.parity);
            }
        }
        expect(GEMMD_STAMP_K_TILE | landed << GEMMD_STAMP_LANDED_SHIFT);
        issued = clock_lo();
    }

    DEVICE void wait_ended()
    {
        waited = clock_lo();
    }

    /* All of the tile: the epilogue begins. */
    DEVICE void products_done()
    {
        store(next >> what_shift, issued, waited, clock_lo());
    }

    DEVICE void epilogue_ends()
    {
        store(GEMMD_STAMP_TILE_END, clock_lo(), 0, 0);
    }
};

#else

struct stamps {
    DEVICE void open(int, bool)
    {
    }

    DEVICE void close()
    {
    }

    DEVICE void copies_issued()
    {
    }

    DEVICE void tile_begins()
    {
    }

    DEVICE void slot_seen()
    {
    }

    DEVICE void products_issued(u32, ring_position)
    {
    }

    DEVICE void wait_ended()
    {
    }

    DEVICE void products_done()
    {
    }

    DEVICE void epilogue_ends()
    {
    }
};

#endif
