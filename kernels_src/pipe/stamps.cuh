/*
 * Stamps: when the events of a K tile's way happened, for `gemmd-bench ladder`. Only a kernel that
 * is compiled with -DGEMMD_STAMPS=1 has them; in all others each call is empty, and the code is what
 * it would be without.
 *
 * All threads of a role read clocks, which costs a few cycles; one of them stores, 16 bytes a K
 * tile, when the first products of the next one have been issued: who issues products waits most of
 * the time for the tensor cores to accept the next of them, and when the last one is accepted, there
 * are hardly a hundred cycles left until they run dry. Those who do not record hold the number of a
 * record that is never written. The records are nobody else's memory: they wait for no grid before.
 */
#pragma once

#include "abi/stamp.h"
#include "mma/wgmma.cuh"
#include "pipe/slot_ring.cuh"

#ifdef GEMMD_STAMPS

#    include "ptx/clock.cuh"
#    include "ptx/global.cuh"

extern "C" {
__device__ struct gemmd_stamps gemmd_stamp_buffer;
}

static_assert(GEMMD_STAMP_GROUP_0 + cfg::groups <= GEMMD_STAMP_LANES, "a lane for each group");

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

    DEVICE static u32 now()
    {
        return (u32)sm_clock64();
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

    /* The timer's time, the clock, and one word more. */
    DEVICE void store_moment(bool is_mine, u64 g_moment, u32 word) const
    {
        u64 ns = globaltimer();
        u32 r[4] = {(u32)ns, (u32)(ns >> 32), now(), word};

        st_global_v4_u32_if(is_mine, g_moment, r);
    }

    DEVICE void open(int lane, bool is_mine)
    {
        if (!is_mine || blockIdx.x >= GEMMD_STAMP_CTAS)
            return;
        next = (blockIdx.x * GEMMD_STAMP_LANES + lane) * GEMMD_STAMP_RECORDS;
        store_moment(true, g_span(), smid());
    }

    DEVICE void close()
    {
        store_moment(record() != last, g_span() + 16, 0);
    }

    DEVICE void store(u32 what, u32 clock0, u32 clock1, u32 clock2)
    {
        u32 r[4] = {what, clock0, clock1, clock2};
        bool is_mine = is_recording();

        st_global_v4_u32_if(is_mine,
                            (u64)&gemmd_stamp_buffer.records[0][0][0] +
                                (u64)record() * sizeof(gemmd_stamp),
                            r);
        next += is_mine;
    }

    DEVICE void copies_issued()
    {
        store(GEMMD_STAMP_COPIES, now(), 0, 0);
    }

    DEVICE void tile_begins()
    {
        expect(GEMMD_STAMP_TILE_BEGIN);
        issued = waited = now();
    }

    DEVICE void slot_seen()
    {
        seen = now();
    }

    /* While the first products of a K tile are under way: the record before, and a look at how many
     * of the K tiles that follow are there already. */
    DEVICE void products_begin(u32 s_base, ring_position at) /* a copy: it walks */
    {
        u32 landed = 0;

        store(next >> what_shift, issued, waited, seen);
#pragma unroll
        for (int i = 1; i < cfg::stages; i++) {
            at.advance();
            landed += mbarrier_test_wait_parity_if(is_recording(),
                                                   smem::full_barrier(s_base, at.slot), at.parity);
        }
        expect(GEMMD_STAMP_K_TILE | landed << GEMMD_STAMP_LANDED_SHIFT);
    }

    /* That, as something to do beside the products (mma/wgmma.cuh). */
    struct beginning {
        stamps &of;
        u32 s_base;
        const ring_position &at;

        DEVICE void operator()(int slice) const
        {
            if (slice == 0)
                of.products_begin(s_base, at);
        }
    };

    DEVICE beginning beside(u32 s_base, const ring_position &at)
    {
        return {*this, s_base, at};
    }

    DEVICE void products_issued()
    {
        issued = now();
    }

    DEVICE void wait_ended()
    {
        waited = now();
    }

    /* All of the tile: the epilogue begins. */
    DEVICE void products_done()
    {
        store(next >> what_shift, issued, waited, now());
    }

    DEVICE void epilogue_ends()
    {
        store(GEMMD_STAMP_TILE_END, now(), 0, 0);
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

    DEVICE static nothing_beside beside(u32, const ring_position &)
    {
        return {};
    }

    DEVICE void products_issued()
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
