/*
 * movmatrix: an 8x8 matrix of 16-bit elements turned round, among the lanes of a warp. Lane i brings
 * elements (i / 4, 2 * (i % 4)) and the next, and gets those of the transposed matrix.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

DEVICE u32 movmatrix_trans(u32 a)
{
    u32 d;

    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
