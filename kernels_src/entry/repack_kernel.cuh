/*
 * The kernel that is launched before a product's and copies inputs whose rows start anywhere to
 * rows that tensor copies can read.
 */
#pragma once

#include "load/repack.cuh"
#include "ptx/griddepcontrol.cuh"

extern "C" __global__ void __launch_bounds__(repacking::threads, repacking::ctas_per_multiprocessor)
    repack(const __grid_constant__ gemmd_repack what)
{
    repacking::walk walk(what, blockIdx.x, gridDim.x, threadIdx.x);

    if (what.flags & GEMMD_REPACK_AT_ONCE) {
        griddepcontrol_launch_dependents(); /* of which each waits for the end of this */
        walk.copy();
        griddepcontrol_wait(); /* the end of a grid is that of all before it */
        return;
    }
    walk.prefetch();
    griddepcontrol_wait(); /* for the inputs, and until nobody reads the copies of before */
    griddepcontrol_launch_dependents();
    walk.copy();
}
