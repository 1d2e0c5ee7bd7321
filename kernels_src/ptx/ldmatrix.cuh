/*
 * ldmatrix: four 8x8 matrices of 16-bit elements from shared memory. Lane i gives the address of
 * row i % 8 of matrix i / 8 (16 bytes, aligned); of matrix j each lane gets d[j] = elements
 * (lane / 4, 2 * (lane % 4)) and the next, with .trans of the transposed matrix.
 */
#pragma once

#include "ptx/target.cuh"

DEVICE void ldmatrix_x4(u32 (&d)[4], u32 s_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(s_row)
                 : "memory");
}

DEVICE void ldmatrix_x4_trans(u32 (&d)[4], u32 s_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(s_row)
                 : "memory");
}
