/*
 * What a cluster (a CTA, without clusters) works on: the jobs of the feed, unit after unit.
 *
 * Units of all jobs form one line; walker w of g takes units w, w + g, w + 2g, ... So the tail of
 * one job fills with the units of the next, and nobody needs another one to know its work. A unit
 * whose K is cut counts once for each of its splits, which follow each other.
 */
#pragma once

#include "abi/job.h"
#include "ptx/sync.cuh"
#include "sched/raster.cuh"

struct job_feed {
    const gemmd_job *jobs;
    u32 job_count;
    u32 index;            /* of the job */
    raster::number next;  /* unit to take, counted from the job's first; times splits */
    raster::number count; /* units the job has here; times splits */
    raster::number step;  /* walkers in the grid */
    raster::number splits;
    raster::extent size;

    /* FEED: gemmd_feed, or its beginning. */
    template <typename FEED>
    DEVICE job_feed(const FEED &from, u32 walker, u32 walkers)
        : jobs(from.jobs), job_count(from.job_count), index(0), next(walker), count(0),
          step(walkers), splits(1), size{0, 0}
    {
        if (job_count > 0)
            open();
    }

    DEVICE const gemmd_job &job() const
    {
        return jobs[index];
    }

    DEVICE void open()
    {
        raster::number total;

        size = raster::extent_of(job());
        total = raster::units(job(), size);
        count = job().first_tile < total ? total - (raster::number)job().first_tile : 0;
        if (job().tile_count != 0 && job().tile_count < count)
            count = (raster::number)job().tile_count;
        if (cfg::is_split && job().splits > 1) {
            splits = job().splits;
            count *= splits;
        } else {
            splits = 1;
        }
        /* A job may read what an earlier one of this launch wrote. For the first, the launch saw to
         * that, and the fence takes hundreds of cycles that a small product has no others for. */
        if (next < count && index > 0)
            fence_acq_rel_gpu();
    }

    /* On to the next unit of this walker; false after the last job. */
    DEVICE bool take()
    {
        while (next >= count) {
            next -= count;
            index++;
            if (index >= job_count)
                return false;
            open();
        }
        next += step;
        return true;
    }

    /* Units before it, of those that the job has here. */
    DEVICE raster::number unit() const
    {
        return cfg::is_split ? (next - step) / splits : next - step;
    }

    /* Which of its splits. */
    DEVICE raster::number split() const
    {
        return (next - step) % splits;
    }

    /* The last take() may have been this walker's last. */
    DEVICE bool has_more() const
    {
        return next < count || index + 1 < job_count;
    }

    /* Where it is. Some hundred cycles of divisions, for when there is time. */
    DEVICE raster::place place() const
    {
        return raster::place_of(size, (raster::number)job().first_tile + unit(), job());
    }

    DEVICE bool take(raster::place &ret_place)
    {
        if (!take())
            return false;
        ret_place = place();
        return true;
    }
};
