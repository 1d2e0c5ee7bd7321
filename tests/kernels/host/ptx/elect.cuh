#pragma once

#include "ptx/target.cuh"

/* All lanes of the mask, which is all, or it waits for ever. */
inline bool elect_sync()
{
    machine::exchange mine = {};

    mine.instruction = "elect";
    (void)machine::together(mine);
    return machine::now().thread.x % 32 == 0;
}
