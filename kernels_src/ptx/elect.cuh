/*
 * One lane for all.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

/* True for one lane of a whole warp, the same one each time. The compiler knows that it is one. */
DEVICE bool elect_sync()
{
    u32 is_elected;

    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is_elected));
    return is_elected;
}
