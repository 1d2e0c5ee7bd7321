/*
 * The warps that load where others multiply, and what all of them know of the launch. The first one
 * copies. The second one makes the ring's barriers in a CTA by itself, and a thread of it lets the
 * next grid begin.
 */
#pragma once

#include "load/tma.cuh"
#include "ptx/elect.cuh"

struct launch {
    const gemmd_tensor_feed &feed;
    const gemmd_tensor_maps &maps;
    u32 s_base;
    cta_place place;
};

/* By all of them. `warp`: of theirs. */
DEVICE void load(const launch &in, u32 warp, u32 lane)
{
    if (warp == 0) {
        loader loads(in.feed, in.maps, in.place, in.s_base, elect_sync());

        loads.stamp.open(GEMMD_STAMP_LOADER, lane == 0);
        loads.meet_and_run();
        return;
    }
    if (warp == 1 && lane == 0)
        lead_on(in.feed.jobs[0]);
    others_meet(in.s_base, warp, lane);
    if (warp == 1 && lane == 0)
        take_turn();
}
