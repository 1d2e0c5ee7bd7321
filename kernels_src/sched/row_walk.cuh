/*
 * The units of one job that a CTA computes: row after row of them, so that what CTAs store at the
 * same time lies beside each other. For a short K, of which everything is in the L2 whatever the
 * order. The next unit follows from the last one by additions: with little else to do a division
 * shows.
 *
 * The number decides the unit, never who computes it: slices of the range give the same bits.
 */
#pragma once

#include "abi/job.h"
#include "base/config.cuh"
#include "sched/raster.cuh"

struct row_walk {
    /* A unit, by rows of units and units in a row. Rows of all items follow each other. */
    struct unit {
        u32 row, column;
    };

    const gemmd_job &job;
    u32 columns; /* units in a row of them */
    unit at, on; /* and how far it is to this CTA's next one */
    int left;    /* units of the job from this one on */
    u32 step;    /* CTAs */

    DEVICE row_walk(const gemmd_job &of, u32 cta, u32 ctas) : job(of), step(ctas)
    {
        raster::extent size = raster::extent_of(of);
        u32 total = (u32)raster::units(of, size);
        u32 first = of.first_tile < total ? (u32)of.first_tile : total, count = total - first;

        if (of.tile_count != 0 && of.tile_count < count)
            count = (u32)of.tile_count;
        columns = (u32)size.units_n;
        left = (int)count - (int)cta;
        at = unit_of(first + cta);
        on = unit_of(ctas);
    }

    DEVICE unit unit_of(u32 number) const
    {
        u32 row = number / columns;

        return {row, number - row * columns};
    }

    DEVICE bool has_unit() const
    {
        return left > 0;
    }

    DEVICE raster::place place_of(const unit &of) const
    {
        u32 rows = (u32)((job.m + cfg::tile_m - 1) / cfg::tile_m);
        u32 item = job.batch == 1 ? 0 : of.row / rows;

        return {item, (i64)(of.row - item * rows) * cfg::tile_m, (i64)of.column * cfg::tile_n};
    }

    DEVICE void advance()
    {
        left -= (int)step;
        at.row += on.row;
        at.column += on.column;
        at.row += at.column >= columns ? 1 : 0;
        at.column -= at.column >= columns ? columns : 0;
    }
};
