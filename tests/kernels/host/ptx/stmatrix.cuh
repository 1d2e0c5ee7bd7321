#pragma once

#include "ptx/target.cuh"

inline void stmatrix_x4(u32 s_row, const u32 (&b)[4])
{
    machine::exchange mine = {};
    int lane = (int)(machine::now().thread.x % 32);

    mine.instruction = "stmatrix";
    mine.s_address = s_row;
    const machine::exchange *lanes = machine::together(mine);
    for (int j = 0; j < 4; j++)
        memcpy(host::shared(lanes[j * 8 + lane / 4].s_address, 16) + lane % 4 * 4, &b[j], 4);
    machine::meet(machine::now_warp().meet, 32);
}
