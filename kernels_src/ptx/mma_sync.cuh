/*
 * mma.sync: D = A * B + C by one warp, operands in registers. With g = lane / 4 and t = lane % 4:
 *
 *   m16n8k16, 16-bit: a[0..3] = rows g, g+8, g, g+8; k = 2t.. and for a[2], a[3] 2t+8..
 *                     b[0..1] = column g; k = 2t.., 2t+8..
 *   m16n8k32, 8-bit:  the same with 4t.., 4t+16..
 *   m16n8:            d[0..1] = row g, columns 2t, 2t+1; d[2..3] = row g+8
 *   m8n8k4, f64:      a = (g, t), b = (t, g), d[0..1] = row g, columns 2t, 2t+1
 */
#pragma once

#include "ptx/target.cuh"

// clang-format off
DEVICE void mma_m16n8k16_f32_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                                  const float (&c)[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1),
                   "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

DEVICE void mma_m16n8k16_f32_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                                 const float (&c)[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1),
                   "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/* Without .satfinite: sums are modulo 2^32. */
DEVICE void mma_m16n8k32_s32_s8(u32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const u32 (&c)[4])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1),
                   "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

DEVICE void mma_m8n8k4_f64(double (&d)[2], double a, double b, const double (&c)[2])
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %5};"
                 : "=d"(d[0]), "=d"(d[1])
                 : "d"(a), "d"(b), "d"(c[0]), "d"(c[1]));
}

// clang-format on
