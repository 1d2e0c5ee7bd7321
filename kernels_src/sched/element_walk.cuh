/*
 * Which elements of D the threads of a CTA compute: of all items in one line, row after row. Where
 * rows of op(B)'s columns are what K runs along (trans_b), threads beside each other share an
 * element; else they have elements beside each other, which lie beside each other in B too.
 *
 * How many share an element follows from the product, not from the grid: same bits.
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
        together = gemmd_dot_threads(of.k, total);
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

    /* What the threads of an element have, for its first one. Within a warp in pairs, then through
     * shared memory, by a sum for each warp, or thread, in order. s_partial: a word a thread. */
    DEVICE float sum_of_parts(float r, u32 s_partial) const
    {
        u32 apart = shares_side_by_side ? 1 : at_once; /* threads of one element */
        u32 lanes = shares_side_by_side ? (together < 32 ? together : 32) : 32;
        u32 each = apart < 32 ? apart : 32; /* sums of a warp */
        u32 count_of = cfg::threads / 32 * each / at_once;

        for (u32 mask = apart; mask < lanes; mask *= 2)
            r += from_lane(r, mask);
        if (shares_side_by_side ? together <= 32 : together == 1)
            return r;
        if (shares_side_by_side) {
            if (thread % 32 == 0)
                st_shared_f32(s_partial + thread / 32 * 4, r);
            each = together / 32;
            bar_sync_0();
            r = 0;
            if (part == 0)
                for (u32 i = 0; i < each; i++)
                    r += ld_shared_f32(s_partial + (thread / 32 + i) * 4);
        } else {
            if (thread % 32 < each)
                st_shared_f32(s_partial + (thread / 32 * each + thread % 32) * 4, r);
            bar_sync_0();
            r = 0;
            if (part == 0)
                for (u32 i = 0; i < count_of; i++)
                    r += ld_shared_f32(s_partial + (i * at_once + thread) * 4);
        }
        bar_sync_0(); /* read before the next sums come */
        return r;
    }
};
