/*
 * What a CTA works on: the jobs of the feed, tile after tile.
 *
 * Tiles of all jobs form one line; CTA c of g takes tiles c, c + g, c + 2g, ... So the tail of one
 * job fills with the tiles of the next, and no CTA needs another one to know its work.
 */
#pragma once

#include "abi/job.h"
#include "ptx/sync.cuh"
#include "sched/raster.cuh"

struct job_feed {
    const gemmd_feed &feed;
    u32 index; /* of the job */
    u64 next;  /* tile to take, counted from the job's first */
    u64 count; /* tiles the job has here */
    u64 step;  /* CTAs in the grid */
    raster::extent size;

    DEVICE job_feed(const gemmd_feed &from, u32 cta, u32 ctas)
        : feed(from), index(0), next(cta), count(0), step(ctas), size{0, 0}
    {
        if (feed.job_count > 0)
            open();
    }

    DEVICE const gemmd_job &job() const
    {
        return feed.jobs[index];
    }

    DEVICE void open()
    {
        u64 total;

        size = raster::extent_of(job());
        total = raster::tiles(job(), size);
        count = job().first_tile < total ? total - job().first_tile : 0;
        if (job().tile_count != 0 && job().tile_count < count)
            count = job().tile_count;
        /* A job may read what an earlier one of this launch wrote. */
        if (next < count)
            fence_acq_rel_gpu();
    }

    /* The next tile of this CTA; false after the last job. */
    DEVICE bool take(raster::place &ret_place)
    {
        while (next >= count) {
            next -= count;
            index++;
            if (index >= feed.job_count)
                return false;
            open();
        }
        ret_place = raster::place_of(size, job().first_tile + next);
        next += step;
        return true;
    }
};
