#pragma once

#include "ptx/target.cuh"

inline void host_ldmatrix(u32 (&d)[4], u32 s_row, bool is_transposed, const char *name)
{
    machine::exchange mine = {};
    int lane = (int)(machine::now().thread.x % 32);

    mine.instruction = name;
    mine.s_address = s_row;
    const machine::exchange *lanes = machine::together(mine);
    for (int j = 0; j < 4; j++) {
        u16 half[2];

        for (int e = 0; e < 2; e++) {
            int row = lane / 4, col = lane % 4 * 2 + e;
            int from = is_transposed ? col : row, at = is_transposed ? row : col;

            memcpy(&half[e], host::shared(lanes[j * 8 + from].s_address, 16) + at * 2, 2);
        }
        d[j] = half[0] | (u32)half[1] << 16;
    }
    machine::meet(machine::now_warp().meet, 32); /* memory is read before anyone goes on */
}

inline void ldmatrix_x4(u32 (&d)[4], u32 s_row)
{
    host_ldmatrix(d, s_row, false, "ldmatrix");
}

inline void ldmatrix_x4_trans(u32 (&d)[4], u32 s_row)
{
    host_ldmatrix(d, s_row, true, "ldmatrix.trans");
}
