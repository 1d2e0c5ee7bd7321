/*
 * Which elements of D the threads of a CTA compute: of all items in one line, row after row. Where
 * K runs along the rows of B (trans_b), threads beside each other share an element; else they have
 * elements beside each other, which lie beside each other in B too.
 *
 * How many share an element follows from the product, neither from the grid nor from the block of it
 * that a job may be: same bits.
 */
#pragma once

#include "abi/job.h"
#include "base/config.cuh"
#include "ptx/shared.cuh"
#include "ptx/sync.cuh"
#include "ptx/warp.cuh"

struct element_walk {
    struct place {
        i64 item, row, col;
    };

    static constexpr bool shares_side_by_side = cfg::trans_b;

    const gemmd_job &job;
    u32 thread, together; /* that share an element */
    u32 at_once, step;    /* elements of a CTA, of all of them */
    u32 part, next, count;
    place at;

    DEVICE element_walk(const gemmd_job &of, u32 cta, u32 ctas, u32 in_thread)
        : job(of), thread(in_thread)
    {
        u32 total = (u32)of.m * (u32)of.n * (u32)of.batch;
        u32 first = of.first_tile < total ? (u32)of.first_tile : total;

        count = total - first;
        if (of.tile_count != 0 && of.tile_count < count)
            count = (u32)of.tile_count;
        together = gemmd_dot_threads(&of, total);
        at_once = cfg::threads / together;
        step = at_once * ctas;
        next = at_once * cta;
        part = shares_side_by_side ? thread % together : thread / at_once;
    }

    /* All threads of a CTA agree. */
    DEVICE bool has_any() const
    {
        return next < count;
    }

    DEVICE void advance()
    {
        next += step;
    }

    /* This thread's element; false when there is none. */
    DEVICE bool find()
    {
        u32 in_job = next + (shares_side_by_side ? thread / together : thread % at_once);
        u32 number = (u32)job.first_tile + in_job, cols = (u32)job.n, size = (u32)job.m * cols;
        u32 item = number < size ? 0 : number / size, in_item = number - item * size;
        u32 row = in_item < cols ? 0 : in_item / cols;

        at = {item, row, in_item - row * cols};
        return in_job < count;
    }

    DEVICE static float from_lane(float r, u32 mask)
    {
        return __uint_as_float(shfl_sync_bfly(__float_as_uint(r), mask));
    }

    /* What the threads of an element have, for its first one: within a warp in pairs, then through
     * shared memory, whose sums that one adds in order. s_partial: a word a thread. All threads of
     * the CTA meet twice where an element has threads of several warps: when all sums are there,
     * and when they are read, before the next ones come. */
    DEVICE float sum_of_parts(float r, u32 s_partial) const
    {
        return shares_side_by_side ? sum_of_neighbours(r, s_partial) : sum_of_columns(r, s_partial);
    }

    DEVICE static float sum_in_warp(float r, u32 first_mask, u32 end_mask)
    {
        for (u32 mask = first_mask; mask < end_mask; mask *= 2)
            r += from_lane(r, mask);
        return r;
    }

    /* Some sums, `step` words apart, by an element's first thread. */
    DEVICE float sum_of_partials(u32 s_first, u32 step, u32 count_of) const
    {
        float r = 0;

        bar_sync_0();
        if (part == 0)
            for (u32 i = 0; i < count_of; i++)
                r += ld_shared_f32(s_first + i * step * 4);
        bar_sync_0();
        return r;
    }

    /* An element's threads are lanes of a warp, or all of some warps. */
    DEVICE float sum_of_neighbours(float r, u32 s_partial) const
    {
        r = sum_in_warp(r, 1, together < 32 ? together : 32);
        if (together <= 32)
            return r;
        if (thread % 32 == 0)
            st_shared_f32(s_partial + thread / 32 * 4, r);
        return sum_of_partials(s_partial + thread / 32 * 4, 1, together / 32);
    }

    /* They are at_once threads apart: every warp has some of each, or of some elements one each. */
    DEVICE float sum_of_columns(float r, u32 s_partial) const
    {
        u32 elements = at_once < 32 ? at_once : 32; /* of a warp */

        if (together == 1)
            return r;
        r = sum_in_warp(r, at_once, 32);
        if (thread % 32 < elements)
            st_shared_f32(s_partial + (thread / 32 * elements + thread % 32) * 4, r);
        return sum_of_partials(s_partial + thread * 4, at_once,
                               cfg::threads / 32 * elements / at_once);
    }
};
