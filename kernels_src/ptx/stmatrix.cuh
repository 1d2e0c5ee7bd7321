/*
 * stmatrix: the way back of ldmatrix. Lane i gives the address of row i % 8 of matrix i / 8 (16
 * bytes, aligned); of matrix j each lane brings elements (lane / 4, 2 * (lane % 4)) and the next.
 */
#pragma once

#include "ptx/target_sm90a.cuh"

DEVICE void stmatrix_x4(u32 s_row, const u32 (&b)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     s_row),
                 "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3])
                 : "memory");
}
