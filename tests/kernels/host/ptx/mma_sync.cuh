#pragma once

#include "ptx/cvt.cuh"
#include "ptx/target.cuh"

/* The m16n8 shapes with 32 bytes along K. PER is elements of a register, `element` gives one. */
template <int PER, typename T, typename F>
inline void host_mma_m16n8(
    T (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const T (&c)[4], const char *name, F element)
{
    machine::exchange mine = {};
    int lane = (int)(machine::now().thread.x % 32);
    T sum[4];

    mine.instruction = name;
    for (int i = 0; i < 4; i++)
        mine.r[i] = a[i];
    mine.r[4] = b0;
    mine.r[5] = b1;
    const machine::exchange *lanes = machine::together(mine);
    for (int e = 0; e < 4; e++) {
        int row = lane / 4, low = e / 2, col = lane % 4 * 2 + e % 2;

        sum[e] = c[e];
        for (int half = 0; half < 2; half++)
            for (int t = 0; t < 4; t++)
                for (int p = 0; p < PER; p++)
                    sum[e] += element(lanes[row * 4 + t].r[half * 2 + low], p) *
                              element(lanes[col * 4 + t].r[4 + half], p);
    }
    for (int e = 0; e < 4; e++)
        d[e] = sum[e];
}

inline void
mma_m16n8k16_f32_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const float (&c)[4])
{
    host_mma_m16n8<2>(d, a, b0, b1, c, "mma bf16",
                      [](u32 r, int p) { return __uint_as_float(p ? r & 0xffff0000u : r << 16); });
}

inline void
mma_m16n8k16_f32_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const float (&c)[4])
{
    host_mma_m16n8<2>(d, a, b0, b1, c, "mma f16",
                      [](u32 r, int p) { return cvt_f32_f16((u16)(r >> p * 16)); });
}

inline void mma_m16n8k32_s32_s8(u32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const u32 (&c)[4])
{
    host_mma_m16n8<4>(d, a, b0, b1, c, "mma s8",
                      [](u32 r, int p) { return (u32)(int)(signed char)(r >> p * 8); });
}

inline void mma_m8n8k4_f64(double (&d)[2], double a, double b, const double (&c)[2])
{
    machine::exchange mine = {};
    int lane = (int)(machine::now().thread.x % 32);

    mine.instruction = "mma f64";
    mine.d[0] = a;
    mine.d[1] = b;
    const machine::exchange *lanes = machine::together(mine);
    for (int e = 0; e < 2; e++) {
        double sum = c[e];

        for (int t = 0; t < 4; t++)
            sum += lanes[lane / 4 * 4 + t].d[0] * lanes[(lane % 4 * 2 + e) * 4 + t].d[1];
        d[e] = sum;
    }
}
