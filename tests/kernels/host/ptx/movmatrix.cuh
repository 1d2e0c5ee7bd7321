#pragma once

#include "ptx/target.cuh"

inline u32 movmatrix_trans(u32 a)
{
    machine::exchange mine = {};
    u32 lane = machine::now().thread.x % 32, d = 0;

    mine.instruction = "movmatrix";
    mine.r[0] = a;
    const machine::exchange *lanes = machine::together(mine);
    for (u32 e = 0; e < 2; e++) {
        u32 row = lane % 4 * 2 + e, col = lane / 4;

        d |= (lanes[row * 4 + col / 2].r[0] >> col % 2 * 16 & 0xffff) << e * 16;
    }
    return d;
}
