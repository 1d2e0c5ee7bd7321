/*
 * Stamps: when the events of a K tile's way happened, for `gemmd-bench ladder`. Only a kernel that
 * is compiled with -DGEMMD_STAMPS=1 has them; in all others each call is empty, and the code is what
 * it would be without.
 *
 * One thread of a role records, a store of 8 bytes an event; all others hold the number of a record
 * that is never written. One register: what is above a lane's records in the number names the lane.
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

    u32 next; /* record, counted over all lanes */

    DEVICE stamps() : next(last)
    {
    }

    DEVICE bool is_recording() const
    {
        return (next & last) != last;
    }

    DEVICE u64 g_span() const
    {
        return (u64)&gemmd_stamp_buffer.spans[0][0] +
               next / GEMMD_STAMP_RECORDS * sizeof(gemmd_stamp_span);
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

    DEVICE void add(u32 event, u32 value = 0)
    {
        if (!is_recording())
            return;
        st_global_u64((u64)&gemmd_stamp_buffer.records[0][0][0] + (u64)next * sizeof(gemmd_stamp),
                      clock_lo() | (u64)(event | value << 8) << 32);
        next++;
    }

    /* How many of the K tiles that follow are there already: while products run, so that nobody
     * waits for the answer. */
    DEVICE void add_landed(u32 s_base, ring_position at)
    {
        u32 count = 0;

        if (!is_recording())
            return;
#pragma unroll 1
        for (int i = 1; i < cfg::stages; i++) {
            at.advance();
            count += mbarrier_test_wait_parity(smem::full_barrier(s_base, at.slot), at.parity);
        }
        add(GEMMD_STAMP_LANDED, count);
    }

    DEVICE void close()
    {
        if (next == last)
            return;
        st_global_u64(g_span() + 8, globaltimer());
        st_global_u32(g_span() + 20, clock_lo());
    }
};

#else

struct stamps {
    DEVICE void open(int, bool)
    {
    }

    DEVICE void add(u32, u32 = 0)
    {
    }

    DEVICE void add_landed(u32, ring_position)
    {
    }

    DEVICE void close()
    {
    }
};

#endif
