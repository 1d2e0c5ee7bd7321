#pragma once

#include "ptx/target.cuh"

inline u32 shfl_sync_idx(u32 value, u32 lane)
{
    machine::exchange mine = {};

    mine.instruction = "shfl";
    mine.r[0] = value;
    return machine::together(mine)[lane % 32].r[0];
}

inline u32 shfl_sync_bfly(u32 value, u32 lane_mask)
{
    return shfl_sync_idx(value, machine::now().thread.x % 32 ^ lane_mask);
}

inline u32 nsmid()
{
    return 4;
}

/* Time stands still: machine.h knows a hang when it sees one. */
inline u32 globaltimer_lo()
{
    return 0;
}

inline void fault()
{
    abort();
}
